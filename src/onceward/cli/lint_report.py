"""
What the commands of `onceward lint` share: their arguments, the settings for a run, and how its findings are shown.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from onceward.cli import exit_codes
from onceward.cli.command_table import Argument
from onceward.cli.output import print_json, print_text
from onceward.lint.lint_run import LintReport
from onceward.lint.output import DOCUMENTS, FORMATS, TEXTS
from onceward.lint.settings import LintSettings, find_settings, read_settings

FINDING_ARGUMENTS = (
    Argument("--format", "how findings are printed (default: text; --json is --format json)", choices=FORMATS),
    Argument(
        "--select",
        "only rules whose code begins like this; may be repeated",
        action="append",
        default=[],
        metavar="CODE",
    ),
    Argument(
        "--ignore",
        "skip rules whose code begins like this; may be repeated",
        action="append",
        default=[],
        metavar="CODE",
    ),
    Argument("--config", "settings: a pyproject.toml (default: the nearest one)", type=Path, metavar="FILE"),
)
"""What every command has that looks for findings."""


def settings_of(args: argparse.Namespace) -> LintSettings:
    """The settings for a run: those of the file, with what was typed put over them."""
    settings = find_settings(Path()) if args.config is None else read_settings(args.config)
    return settings.with_typed(args.select, args.ignore)


def show_report(args: argparse.Namespace, report: LintReport) -> int:
    """Print what was found, as it was asked for; the exit code."""
    style = args.format or ("json" if args.json else "text")
    if style in DOCUMENTS:
        print_json(DOCUMENTS[style](report))
    elif text := TEXTS[style](report):
        print_text(text)
    return exit_codes.NO if report.findings else exit_codes.FINE
