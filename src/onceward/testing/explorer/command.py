"""
`python -m onceward.testing explore`: the explorer as a command.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from itertools import groupby

from onceward.runtime.environment import REAL
from onceward.testing.explorer.exploration import explore
from onceward.testing.explorer.faults import FAULTS, PlantedFault
from onceward.testing.explorer.invariants import INVARIANTS
from onceward.testing.explorer.scenario import Scenario
from onceward.testing.explorer.scenarios import LIMITS, SCENARIOS
from onceward.testing.explorer.search import ExplorationReport, Violation

PROGRAM = "python -m onceward.testing explore"

_ALL = {scenario.name: scenario for scenario in (*SCENARIOS, *LIMITS)}

_EXAMPLES = f"""\
examples:
  {PROGRAM}                           everything; exit 0 if every invariant held
  {PROGRAM} --scenario blind          one scenario (repeat it for more)
  {PROGRAM} --fault upsert-claim      plant a fault: exit 1, with a shortest schedule
  {PROGRAM} --limits                  also show what is not promised
  {PROGRAM} --list                    scenarios, invariants and faults
  {PROGRAM} --json > report.json      for programs

exit codes: 0 everything held, 1 an invariant was broken, 2 the command line is wrong
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    options = build_parser().parse_args(sys.argv[1:] if argv is None else list(argv))
    if options.list:
        print(_listing())
        return 0
    fault = FAULTS[options.fault] if options.fault else None
    scenarios = _chosen(options.scenario, fault, limits=options.limits)
    began = REAL.monotonic()
    reports = _explored(scenarios, fault, quiet=options.json)
    seconds = REAL.monotonic() - began
    if options.json:
        print(json.dumps(_as_data(reports, fault, seconds), indent=2))
    else:
        print(_ending(reports, fault, seconds))
    return 0 if all(report.ok for report in reports) else 1


def build_parser() -> argparse.ArgumentParser:
    """The options, and examples of them."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Try every order of steps and every crash point of the whole flow, and check every change.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--fault", choices=sorted(FAULTS), metavar="NAME", help="plant this fault (see --list)")
    parser.add_argument(
        "--scenario",
        action="append",
        default=[],
        choices=list(_ALL),
        metavar="NAME",
        help="only this scenario (repeatable); with a fault, the default is where it shows",
    )
    parser.add_argument("--limits", action="store_true", help="also show what is not promised, each as a schedule")
    parser.add_argument("--list", action="store_true", help="list scenarios, invariants and faults, and stop")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, for programs")
    return parser


def _chosen(names: list[str], fault: PlantedFault | None, *, limits: bool) -> list[Scenario]:
    if names:
        return [_ALL[name] for name in dict.fromkeys(names)]
    if fault is not None:
        return [_ALL[name] for name in fault.scenarios]
    return [*SCENARIOS, *LIMITS] if limits else list(SCENARIOS)


def _explored(scenarios: list[Scenario], fault: PlantedFault | None, *, quiet: bool) -> list[ExplorationReport]:
    """Try them one by one, each with its line of the table as soon as it is done."""
    progress, clear = _progress()
    if not quiet:
        if fault is not None:
            print(f"planted: {fault.name} ({fault.story}); {fault.breaks} must notice it")
        print(_row("scenario", "schedules", "states", "result"))
    reports = []
    for report in explore(scenarios, fault=fault, progress=progress):
        clear()
        reports.append(report)
        if not quiet:
            scenario = report.scenario
            print(_row(scenario.name, f"{report.schedules:,}", f"{report.states:,}", _result(report)), flush=True)
    return reports


def _progress() -> tuple[Callable[[Scenario, int], None], Callable[[], None]]:
    """Show on a terminal's standard error what is being tried; nothing if that is not a terminal."""
    if not sys.stderr.isatty():
        return lambda scenario, states: None, lambda: None

    def show(scenario: Scenario, states: int) -> None:
        print(f"\r{scenario.name}: {states:,} states so far\x1b[K", end="", file=sys.stderr, flush=True)

    def clear() -> None:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    return show, clear


def _row(name: str, schedules: str, states: str, result: str) -> str:
    return f"{name:24}{schedules:>14}{states:>10}  {result}"


def _result(report: ExplorationReport) -> str:
    if report.cut_off:
        return "CUT OFF: too many states"
    if report.scenario.limit:
        return "limit shown" if report.ok else f"no longer a limit: {report.scenario.limit} held"
    return f"BROKEN: {', '.join(report.violations)}" if report.violations else "ok"


def _ending(reports: list[ExplorationReport], fault: PlantedFault | None, seconds: float) -> str:
    """The counterexamples (with a planted fault: the one that it must lead to), and the last line."""
    lines: list[str] = []
    found = _shortest(reports)
    if fault is not None and fault.breaks in found:
        found = {fault.breaks: found[fault.breaks]}
    for name, (scenario, violation) in found.items():
        lines += ["", f"{name} was broken in {scenario.name} ({scenario.story}): {violation.how}"]
        lines += _numbered(violation.schedule)
    total = f"{sum(r.schedules for r in reports):,} schedules, {sum(r.states for r in reports):,} states"
    checks = f"{sum(r.checks for r in reports):,} checks in {seconds:.1f} s"
    broken = sorted({name for report in reports if not report.ok for name in report.violations})
    verdict = f"broken: {', '.join(broken)}" if broken else f"every invariant held ({len(INVARIANTS)} of them)"
    if fault is not None:
        verdict = f"{fault.name} was {'caught' if fault.breaks in broken else 'NOT caught'}; {verdict}"
    return "\n".join([*lines, "", f"{total}, {checks}: {verdict}"])


def _numbered(schedule: tuple[str, ...]) -> list[str]:
    """A schedule, line by line; a line that repeats is shown once."""
    lines, number = [], 1
    for line, same in groupby(schedule):
        times = len(list(same))
        lines.append(f"  {number:2}. {line}" + (f" ({times} times)" if times > 1 else ""))
        number += times
    return lines


def _shortest(reports: list[ExplorationReport]) -> dict[str, tuple[Scenario, Violation]]:
    """For each invariant that broke, where that took the fewest steps. Limits are shown each by itself."""
    found: dict[str, tuple[Scenario, Violation]] = {}
    for report in reports:
        scenario = report.scenario
        for name, violation in report.violations.items():
            if scenario.limit:
                found[f"limit: {name}"] = (scenario, violation)
            elif name not in found or len(violation.schedule) < len(found[name][1].schedule):
                found[name] = (scenario, violation)
    return found


def _listing() -> str:
    lines = ["scenarios:"]
    lines += [f"  {scenario.name:24}{scenario.story}" for scenario in SCENARIOS]
    lines += ["", "limits (what is not promised; with --limits):"]
    lines += [f"  {scenario.name:24}{scenario.story}" for scenario in LIMITS]
    lines += ["", "invariants:"]
    lines += [f"  {invariant.name:26}{invariant.promise}" for invariant in INVARIANTS]
    lines += ["", "faults:"]
    lines += [f"  {fault.name:24}{fault.story}; noticed by {fault.breaks}" for fault in FAULTS.values()]
    return "\n".join(lines)


def _as_data(reports: list[ExplorationReport], fault: PlantedFault | None, seconds: float) -> dict[str, object]:
    return {
        "ok": all(report.ok for report in reports),
        "fault": fault.name if fault is not None else None,
        "seconds": round(seconds, 3),
        "scenarios": [
            {
                "name": report.scenario.name,
                "ok": report.ok,
                "schedules": report.schedules,
                "states": report.states,
                "steps": report.steps,
                "checks": report.checks,
                "violations": [
                    {"invariant": one.invariant, "how": one.how, "schedule": list(one.schedule)}
                    for one in report.violations.values()
                ],
            }
            for report in reports
        ],
    }
