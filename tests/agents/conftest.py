"""Agents in both colours, and stores to keep their calls in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_support import Colour, Effects

from onceward.agents import AgentGate, Tool


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    """Both colours."""
    made = Colour(request.param)
    yield made
    made.close()


@pytest.fixture
def open_gate(colour: Colour, tmp_path: Path) -> Iterator[Callable[..., AgentGate]]:
    """Opens gates on one file: each stands for a process of its own."""
    opened: list[AgentGate] = []

    def opens(**tools: Tool) -> AgentGate:
        gate = AgentGate(f"sqlite:///{tmp_path}/agent.db", scope="test:agents", tools=tools, wait=2)
        opened.append(gate)
        return gate

    yield opens
    for gate in opened:
        if colour.awaits:
            colour.do(gate.aclose())
        gate.close()


@pytest.fixture
def effects() -> Effects:
    """An effect that counts itself."""
    return Effects()
