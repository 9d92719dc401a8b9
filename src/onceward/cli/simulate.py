"""
`onceward simulate`: what retries do to a system, in seconds and without harm. Needs no store.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from onceward import __version__
from onceward.cli import exit_codes
from onceward.cli.command_parser import CommandGroup, add_command, add_group, count_up_to
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.text_tables import format_table
from onceward.testing.simulator import (
    SimulationReport,
    simulate_collapse,
    simulate_jitter,
    simulate_policy,
    simulate_storm,
)
from onceward.testing.simulator.page import page

SEED_MAX = 2**31 - 1

_SIMULATIONS: tuple[tuple[str, str, Callable[..., SimulationReport]], ...] = (
    ("jitter", "what jitter saves when many clients want the same row", simulate_jitter),
    ("policy", "what retry policies gain, and what they cost the server", simulate_policy),
    ("collapse", "a spike that never ends, and the budget that ends it", simulate_collapse),
    ("storm", "1,000 agents, three services, one outage: each remedy in turn", simulate_storm),
)


def add_to(parsers: CommandGroup) -> None:
    """Declare the commands."""
    group = add_group(parsers, "simulate", "what retries do to a system: seeded simulations of our own code")
    for name, summary, simulation in _SIMULATIONS:
        command = add_command(
            group,
            name,
            summary,
            _running(simulation),
            examples=(f"onceward simulate {name} --seed 7 --html {name}.html",),
            codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE),
            more="The same seed gives the same figures. The answer is no (exit 1) if a finding does not hold.",
        )
        command.add_argument("--seed", type=count_up_to(SEED_MAX), metavar="N", help="another run of chance")
        command.add_argument("--html", type=Path, metavar="FILE", help="also write a page with plots to this file")


def _running(simulation: Callable[..., SimulationReport]) -> Callable[[argparse.Namespace], int]:
    def run(asked: argparse.Namespace) -> int:
        seeded = {} if asked.seed is None else {"seed": asked.seed}
        report = simulation(**seeded, progress=_show_progress)
        if asked.html is not None:
            _write(asked.html, page(report, __version__))
        if asked.json:
            print_json(report.document())
        else:
            _tell(report)
        return exit_codes.FINE if report.holds else exit_codes.NO

    return run


def _show_progress(done: int, parts: int) -> None:
    # Rewriting a line is for people only; a log gets nothing.
    if sys.stderr.isatty():
        sys.stderr.write(f"\rsimulating: {done * 100 // parts} %   \r")
        sys.stderr.flush()


def _tell(report: SimulationReport) -> None:
    print_text(f"{report.name}: {report.about} (seed {report.seed})")
    for one in report.tables:
        print_text(f"\n{one.title}\n")
        print_text(format_table(one.headings, one.rows, limit=None))
    print_text("")
    for finding in report.findings:
        print_text(f"{'holds' if finding.holds else 'FAILS'}  {finding.sentence}")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise exit_codes.UsageError(f"cannot write {file}: {error.strerror}") from error
    print_note(f"wrote {file}")
