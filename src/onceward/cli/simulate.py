"""
`onceward simulate`: what retries do to a system, in seconds and without harm. Needs no store.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from onceward import __version__
from onceward.cli import exit_codes
from onceward.cli.argument_types import count_up_to
from onceward.cli.command_table import Argument, Command
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.progress import progress_of
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
    ("jitter", "show what jitter saves when many clients want the same row", simulate_jitter),
    ("policy", "show what retry policies gain, and what they cost the server", simulate_policy),
    ("collapse", "show how retries keep an overload going after a spike, and how a budget ends it", simulate_collapse),
    ("storm", "show what each remedy changes: 1,000 agents, three services, one outage", simulate_storm),
)


def _running(simulation: Callable[..., SimulationReport]) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        seeded = {} if args.seed is None else {"seed": args.seed}
        with progress_of("simulating") as line:
            report = simulation(**seeded, progress=lambda done, parts: line(done / parts))
        if args.html is not None:
            _write(args.html, page(report, __version__))
        if args.json:
            print_json(report.document())
        else:
            _print_report(report)
        return exit_codes.FINE if report.holds else exit_codes.NO

    return run


def _print_report(report: SimulationReport) -> None:
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


COMMANDS = tuple(
    Command(
        name=f"simulate {name}",
        summary=summary,
        run=_running(simulation),
        arguments=(
            Argument("--seed", "the seed; another seed gives another run", type=count_up_to(SEED_MAX), metavar="N"),
            Argument("--html", "also write a page with plots to this file", type=Path, metavar="FILE"),
        ),
        examples=(f"onceward simulate {name} --seed 7 --html {name}.html",),
        exit_codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE),
        no="a finding does not hold",
        more="The same seed gives the same figures. The exit code is 1 if a finding does not hold.",
    )
    for name, summary, simulation in _SIMULATIONS
)
