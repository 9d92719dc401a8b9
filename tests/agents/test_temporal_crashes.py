"""A worker is killed in an activity, and the server has it attempted again: one effect, and no guessing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("temporalio", reason="in make test-agents")

from crash_kit import POINTS
from crash_runs import Case, CrashReport, crash

from servers import postgres
from servers.temporal import running

ALL = os.environ.get("CRASHES") == "all"

CASES = [
    Case("temporal_worker", point, gated, kind, colour)
    for colour in ("async", "sync")
    for kind, gated in (("blind", True), ("blind", False), ("keyed", True))
    for point in POINTS
]
DOSE = [
    Case("temporal_worker", "effect", True, "blind", "async"),
    Case("temporal_worker", "answer", True, "blind", "sync"),
    Case("temporal_worker", "effect", False, "blind", "sync"),
]


def expected(case: Case) -> dict[str, int]:
    """The effects of a case. Every activity's end is saved by the server at once: siblings are never in danger."""
    return {"notify": 1, "charge": _charges(case)} if _charges(case) else {"notify": 1}


def _charges(case: Case) -> int:
    if case.point == "before":
        return 0 if case.gated and case.kind == "blind" else 1
    if case.point == "effect":
        return 1 if case.gated and case.kind == "blind" else 2  # A keyed one is sent again, with the same key.
    if case.point == "answer":
        return 1 if case.gated else 2
    return 1


def run(case: Case, folder: Path, store: str = "sqlite", **more: str) -> CrashReport:
    """Run a case; what it came to is printed, for the table."""
    url = f"sqlite:///{folder}/gate.db" if store == "sqlite" else new_database()
    report = crash(case, folder, url, AGENT_TEMPORAL=running().address, **more)
    print(f"{case} -> {dict(report.effects)} doubt={report.told_doubt} {report.seconds:.1f}s")
    return report


def new_database() -> str:
    """A database of its own, on this process's PostgreSQL server."""
    name = f"crash_{os.urandom(6).hex()}"
    postgres.running().execute(f"CREATE DATABASE {name}")
    return postgres.running().url(name)


@pytest.mark.slow
@pytest.mark.requirement("D75")
@pytest.mark.parametrize("store", ["sqlite", "postgres"] if ALL else ["sqlite"])
@pytest.mark.parametrize("case", CASES if ALL else DOSE, ids=lambda case: "-".join(map(str, case)))
def test_an_activity_whose_worker_is_killed_has_its_effect_once(case: Case, store: str, tmp_path: Path) -> None:
    """
    Killed at any point, a blind activity has one effect or none, and its workflow reads that it may have happened.
    Without the gate, the server's own retry repeats it.
    """
    report = run(case, tmp_path, store)

    assert dict(report.effects) == expected(case)
    assert report.told_doubt == (case.gated and case.kind == "blind" and case.point in ("before", "effect"))
    if not report.told_doubt:
        assert "{'charged': 'order-42'}" in report.read[-1]


@pytest.mark.slow
@pytest.mark.fault("temporal-leases-outlive-the-attempts")
def test_no_attempt_is_spent_on_the_lease_of_a_dead_worker(tmp_path: Path) -> None:
    """
    On another host nobody sees that the first worker is dead. The policy allows two attempts: the second one waits for
    the lease, which is shorter than its own time, and does the work.
    """
    case = Case("temporal_worker", "before", kind="keyed")

    report = run(case, tmp_path, AGENT_TAKEOVER="lease")

    assert dict(report.effects) == {"notify": 1, "charge": 1}
    assert "{'charged': 'order-42'}" in report.read[-1]
