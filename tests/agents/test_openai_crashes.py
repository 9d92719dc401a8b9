"""
Agents and loops over OpenAI's SDKs, killed at every point and started again: effects are counted outside of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from crash_kit import POINTS
from crash_runs import Case, crash

from servers.postgres import running

EVERY = os.environ.get("CRASHES") == "all"
SCENARIOS = ("openai_agents_sdk", "openai_loop")

CASES = [
    Case(scenario, point, gated, kind, colour)
    for scenario in SCENARIOS
    for point in POINTS
    for gated, kind in ((True, "blind"), (True, "repeatable"), (False, "blind"))
    for colour in ("async", "sync")
]
DOSE = [
    Case("openai_loop", "effect", colour="sync"),
    Case("openai_loop", "answer", colour="async"),
    Case("openai_loop", "effect", gated=False, colour="sync"),
    Case("openai_agents_sdk", "effect"),
]


def expected(case: Case) -> dict[str, int]:
    """How often each effect takes place."""
    if not case.gated:
        return {"notify": 1 if case.point == "saved" else 2, "charge": {"before": 1, "saved": 1}.get(case.point, 2)}
    if case.kind == "blind":
        return {"notify": 1} if case.point == "before" else {"notify": 1, "charge": 1}
    return {"notify": 1, "charge": 2 if case.point == "effect" else 1}


def told_doubt(case: Case) -> bool:
    """Whether the model is told that the charge may have happened."""
    return case.gated and case.kind == "blind" and case.point in ("before", "effect")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES if EVERY else DOSE, ids=lambda case: "-".join(map(str, case)))
@pytest.mark.dose(1)
def test_a_crash_leaves_one_effect_and_a_model_that_knows(case: Case, tmp_path: Path) -> None:
    """Killed at one point and started again; without the gate, the duplicate appears."""
    if case.scenario == "openai_agents_sdk":
        pytest.importorskip("agents.tool_context", reason="in make test-agents")
    found = crash(case, tmp_path, f"sqlite:///{tmp_path}/agent.db")

    assert dict(found.effects) == expected(case)
    assert found.told_doubt == told_doubt(case)
    assert told_doubt(case) or "charged" in found.read[-1]


@pytest.mark.slow
@pytest.mark.skipif(not EVERY, reason="in make test-agents")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_same_holds_on_postgresql(scenario: str, point: str, tmp_path: Path) -> None:
    """The store is another one, and what it keeps is the same."""
    if scenario == "openai_agents_sdk":
        pytest.importorskip("agents.tool_context", reason="in make test-agents")
    case = Case(scenario, point)
    database = f"{scenario}_{point}"
    running().execute(f"CREATE DATABASE {database}")
    found = crash(case, tmp_path, running().url(database))

    assert dict(found.effects) == expected(case)
    assert found.told_doubt == told_doubt(case)
