"""
`onceward lint`: find hazards in Python and SQL before they do harm. Reads files; runs nothing, needs no store.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path

from onceward.cli import exit_codes
from onceward.cli.command_table import Argument, Command, did_you_mean
from onceward.cli.lint_report import FINDING_ARGUMENTS, settings_of, show_report
from onceward.cli.lint_sql import SQL_COMMANDS
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.progress import progress_of
from onceward.cli.text_tables import format_table
from onceward.lint.fixing import fix_files
from onceward.lint.lint_run import lint_files
from onceward.lint.python.checks import CODES, check_python
from onceward.lint.rule_table import all_rules


def _python(args: argparse.Namespace) -> int:
    with progress_of("reading") as progress:
        report = lint_files(
            args.paths,
            settings_of(args),
            suffixes=(".py",),
            check=check_python,
            codes=CODES,
            tests=args.tests,
            progress=progress,
        )
    if not report.files:
        print_note("onceward: there are no Python files there")
    if args.fix:
        remaining = fix_files(report.findings, report.sources)
        fixed = len(report.findings) - len(remaining)
        print_note(f"onceward: {fixed} fixed")
        report = replace(report, findings=tuple(remaining))
    return show_report(args, report)


def _rules(args: argparse.Namespace) -> int:
    if args.json:
        print_json(
            [
                {"code": rule.code, "name": rule.name, "severity": rule.severity.value, "summary": rule.summary}
                for rule in all_rules().values()
            ]
        )
    else:
        rows = [(rule.code, rule.severity.value, rule.summary) for rule in all_rules().values()]
        print_text(format_table(("CODE", "SEVERITY", "WHAT IS FOUND"), rows, limit=None))
    return exit_codes.FINE


def _explain(args: argparse.Namespace) -> int:
    rule = all_rules().get(args.code.upper())
    if rule is None:
        near = did_you_mean(args.code.upper(), all_rules())
        raise exit_codes.UsageError(f"there is no rule {args.code!r}{near or '. See `onceward lint rules`'}")
    if args.json:
        print_json(asdict(rule) | {"severity": rule.severity.value})
    else:
        bad, good = (_indented(example) for example in (rule.bad, rule.good))
        print_text(
            f"{rule.code} {rule.name} ({rule.severity.value})\n\n{rule.summary[0].upper()}{rule.summary[1:]}.\n\n"
            f"{rule.why}\n\nbad:\n{bad}\n\ngood:\n{good}"
        )
    return exit_codes.FINE


def _indented(example: str) -> str:
    lines = (line if len(line) <= 160 else f"{line[:79]}…{line[-79:]}" for line in example.rstrip().split("\n"))
    return "\n".join(f"    {line}".rstrip() for line in lines)


COMMANDS = (
    Command(
        name="lint python",
        summary="find what makes retried work happen twice in Python files",
        run=_python,
        arguments=(
            Argument("paths", "files, and folders to look through", nargs="+", type=Path, metavar="PATH"),
            *FINDING_ARGUMENTS,
            Argument("--tests", "also look at tests (test_*.py, conftest.py, tests/)", action="store_true"),
            Argument("--fix", "fix what can be fixed safely, and show the rest", action="store_true"),
        ),
        examples=(
            "onceward lint python .",
            "onceward lint python . --format github --ignore OW110",
        ),
        exit_codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE),
        no="there are findings",
        more=(
            "Settings are in pyproject.toml, under [tool.onceward.lint]: select, ignore, exclude, per-file-ignores.\n"
            "To keep a line as it is: `# onceward: ignore[OW101] the reason`. Folders that begin with a dot,\n"
            "venv, build, dist, node_modules and site-packages are searched only if they are named;\n"
            "tests, which often make random keys on purpose, are searched with --tests."
        ),
    ),
    *SQL_COMMANDS,
    Command(
        name="lint rules",
        summary="list the rules",
        run=_rules,
        examples=("onceward lint rules",),
        exit_codes=(exit_codes.FINE, exit_codes.USAGE),
    ),
    Command(
        name="lint explain",
        summary="explain a rule, with a bad and a good example",
        run=_explain,
        arguments=(Argument("code", "the rule's code, such as OW101", metavar="CODE"),),
        examples=("onceward lint explain OW101",),
        exit_codes=(exit_codes.FINE, exit_codes.USAGE),
    ),
)
