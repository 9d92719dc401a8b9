"""
Runs a scenario: starts it, lets it be killed, starts it again, and counts what happened in the world.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
SCENARIOS = HERE / "scenarios"
PATIENCE = 240
"""Seconds; a limit for what hangs."""


class Case(NamedTuple):
    """One way to run a scenario."""

    scenario: str
    point: str
    gated: bool = True
    kind: str = "blind"
    colour: str = "async"


class CrashReport(NamedTuple):
    """What came of it."""

    effects: Counter[str]
    """How often each effect took place."""
    read: list[str]
    """What the model read after the restart."""
    seconds: float
    """From the restart until the agent was done; told, and never asserted."""

    @property
    def told_doubt(self) -> bool:
        """Whether the model was told that the charge may have happened."""
        return any("may already have happened" in text for text in self.read)


def crash(case: Case, folder: Path, store: str, **more: str) -> CrashReport:
    """Run a scenario until it is killed, and then again until it is done."""
    first = _run(case, folder, store, more)
    if first.returncode != -signal.SIGKILL:
        raise AssertionError(f"{case} was not killed (exit code {first.returncode}):\n{first.stderr[-4000:]}")
    before, began = len(_lines(folder / "read.jsonl")), time.monotonic()
    second = _run(case, folder, store, more)
    took = time.monotonic() - began
    if second.returncode != 0 or not (folder / "finished").exists():
        raise AssertionError(f"{case} did not finish (exit code {second.returncode}):\n{second.stderr[-4000:]}")
    report = CrashReport(count_effects(folder), _lines(folder / "read.jsonl")[before:], took)
    if "AGENT_MODE" not in more:  # Not the controls that show what a set-up without a run does.
        _note(case, store, report)
    return report


def _note(case: Case, store: str, report: CrashReport) -> None:
    """For the table of the docs (`tools/crash_table.py`), if somebody wants one."""
    if path := os.environ.get("CRASH_TABLE"):
        seen = {**case._asdict(), "store": store.partition(":")[0], "effects": report.effects,
                "told_doubt": report.told_doubt, "seconds": report.seconds}  # fmt: skip
        with Path(path).open("a") as table:
            table.write(json.dumps(seen) + "\n")


def count_effects(folder: Path) -> Counter[str]:
    """How often each effect took place."""
    return Counter(name for name, _ in _lines(folder / "effects.jsonl"))


def _run(case: Case, folder: Path, store: str, more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "AGENT_FOLDER": str(folder),
        "AGENT_STORE": store,
        "AGENT_POINT": case.point,
        "AGENT_KIND": case.kind,
        "AGENT_COLOUR": case.colour,
        "AGENT_GATE": "on" if case.gated else "off",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), *sys.path]),
        **more,
    }
    return subprocess.run(
        [sys.executable, str(SCENARIOS / f"{case.scenario}.py")],
        env=environment, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
