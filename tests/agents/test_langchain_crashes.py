"""
LangChain and LangGraph, killed with SIGKILL at every point and started again: what happened in the world, and what the
model read. `make test` has a dose; CRASHES=all is every point, in both colours, also on PostgreSQL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite", reason="in make test-agents")
from crash_kit import POINTS
from crash_runs import Case, CrashReport, count_effects, crash

from servers import postgres

pytestmark = pytest.mark.slow

AGENT, TOOL_NODE, NODE = "langchain_agent", "langgraph_toolnode", "langgraph_node"
ALL = os.environ.get("CRASHES") == "all"
COLOURS = ("sync", "async")

CASES = [
    Case(scenario, point, gated=gated, colour=colour)
    for scenario in (AGENT, TOOL_NODE, NODE)
    for point in POINTS
    for gated in (True, False)
    for colour in COLOURS
] + [Case(AGENT, point, kind="repeatable", colour=colour) for point in POINTS for colour in COLOURS]

DOSE = [
    Case(AGENT, "effect", colour="sync"),
    Case(TOOL_NODE, "answer", colour="async"),
    Case(TOOL_NODE, "effect", gated=False, colour="async"),
    Case(NODE, "answer", colour="sync"),
]
"""What `make test` has time for."""


def expected(case: Case) -> dict[str, int]:
    """How often each effect takes place."""
    if case.gated and case.kind == "blind":
        return {"notify": 1, "charge": 0 if case.point == "before" else 1}
    if case.gated:  # It may be repeated, and is, if nobody knows whether it happened.
        return {"notify": 1, "charge": 2 if case.point == "effect" else 1}
    notify = 1 if case.scenario == AGENT or case.point == "saved" else 2
    return {"notify": notify, "charge": 1 if case.point in ("before", "saved") else 2}


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """PostgreSQL, where all is wanted."""
    postgres.needed()
    yield postgres.running().url()


def name(case: Case) -> str:
    """A case as a test's name."""
    return "-".join((case.scenario, case.point, "gated" if case.gated else "ungated", case.kind, case.colour))


def marked(case: Case) -> Any:
    """A case; with the requirement that it shows, a node that is entered again, goes on, and has its effect once."""
    shows = case.scenario == NODE and case.gated and case.point == "answer"
    return pytest.param(case, id=name(case), marks=[pytest.mark.requirement("D73")] if shows else [])


def check(case: Case, report: CrashReport) -> None:
    """What happened, and what was read."""
    assert {"charge": 0, **report.effects} == expected(case)
    told = any("may already have happened" in text or text.startswith("InDoubt") for text in report.read)
    assert told == (case.gated and case.kind == "blind" and case.point in ("before", "effect"))
    if not told:
        assert "charged" in report.read[-1]


@pytest.mark.parametrize("case", [marked(case) for case in (CASES if ALL else DOSE)])
@pytest.mark.dose(1)
def test_a_killed_agent_goes_on_and_nothing_happens_twice(case: Case, tmp_path: Path) -> None:
    """
    Resumed by its thread, from what the checkpointer kept: the body of the node is entered again, and each effect
    takes place once. Without us it takes place twice, and so does that of the sibling in a ToolNode.
    """
    check(case, crash(case, tmp_path, f"sqlite:///{tmp_path}/agent.db"))


@pytest.mark.skipif(not ALL, reason="crashes on PostgreSQL are in make test-agents")
@pytest.mark.parametrize("case", [case for case in CASES if case.gated], ids=name)
def test_so_it_is_on_postgresql(case: Case, tmp_path: Path, database: str) -> None:
    """The records are on a server; the framework's state is where it was."""
    check(case, crash(case, tmp_path, database))


@pytest.mark.requirement("B45")
@pytest.mark.parametrize(("mode", "charges"), [("exit-named", 1), ("exit", 2)] if ALL else [("exit-named", 1)])
@pytest.mark.parametrize("colour", COLOURS if ALL else ["async"])
def test_a_resumed_run_has_its_name_and_a_fresh_one_another(
    mode: str, charges: int, colour: str, tmp_path: Path
) -> None:
    """
    With durability="exit" nothing of the thread is on disk when the process dies: the message has a new id, so the
    run is a fresh one, with effects of its own. If the application names the run, the restart has its name, and finds
    them. (That the adapter warns of it is in test_langchain.py.)
    """
    case = Case(AGENT, "answer", colour=colour)

    report = crash(case, tmp_path, f"sqlite:///{tmp_path}/agent.db", AGENT_MODE=mode, AGENT_RUN="order-42")

    assert report.effects == {"notify": charges, "charge": charges}
    assert not report.told_doubt
    assert count_effects(tmp_path) == report.effects
