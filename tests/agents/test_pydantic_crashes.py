"""Pydantic AI agents that are killed, and started again from the messages that they have saved."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai", reason="in make test-agents")

from crash_kit import POINTS
from crash_runs import Case, crash

from servers.postgres import running

SCENARIO = "pydantic_agent"
CASES = [
    Case(SCENARIO, point, gated, kind, colour)
    for point in POINTS
    for colour in ("async", "sync")
    for gated, kind in ((True, "blind"), (False, "blind"), (True, "repeatable"))
]
DOSE = [Case(SCENARIO, "effect"), Case(SCENARIO, "effect", gated=False), Case(SCENARIO, "answer", colour="sync")]
EVERYTHING = os.environ.get("CRASHES") == "all"


def expected(case: Case) -> dict[str, int]:
    """The effects of a case: the answer of the model is saved before its tools run, so without us both run again."""
    if not case.gated:
        return {"notify": 1 if case.point == "saved" else 2, "charge": 2 if case.point in ("effect", "answer") else 1}
    charges = {"blind": {"before": 0}, "repeatable": {"effect": 2}}[case.kind]
    return {"notify": 1, "charge": charges.get(case.point, 1)}


def new_database() -> str:
    """A database of its own, on this process's PostgreSQL server."""
    name = f"crash_{os.urandom(6).hex()}"
    running().execute(f"CREATE DATABASE {name}")
    return running().url(name)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"] if EVERYTHING else ["sqlite"])
@pytest.mark.parametrize("case", CASES if EVERYTHING else DOSE, ids=lambda case: "-".join(map(str, case[1:])))
@pytest.mark.dose(1)
def test_a_killed_agent_does_its_work_once(case: Case, store: str, tmp_path: Path) -> None:
    """Killed anywhere: one charge, one notice, and a model that is told of doubt; without the gate, duplicates."""
    report = crash(case, tmp_path, f"sqlite:///{tmp_path}/agent.db" if store == "sqlite" else new_database())

    found = {"notify": report.effects["notify"], "charge": report.effects["charge"]}
    assert found == expected(case)
    assert report.told_doubt == (case.gated and case.kind == "blind" and case.point in ("before", "effect"))
    if case.gated and case.point in ("answer", "saved"):
        assert "'charged': '42'" in report.read[-1]
