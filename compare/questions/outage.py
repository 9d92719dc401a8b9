"""A server is down, and everybody retries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compare.peers import RETRY
from compare.questions import Data, Question
from compare.stage import Stage

OPERATIONS, ATTEMPTS = 300, 3


def inside(adapter: Any, folder: Path, url: str) -> Data:
    """Three hundred operations, all of which are refused a connection; with a budget where the library has one."""
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        raise ConnectionRefusedError

    budgeted = hasattr(adapter, "budgeted")
    charge = (adapter.budgeted if budgeted else adapter.retrying)(work, attempts=ATTEMPTS)
    for _ in range(OPERATIONS):
        try:
            charge()
        except Exception as error:
            raised = type(error).__name__
    return {"calls": calls, "budget": budgeted, "raised": raised}


def ask(stage: Stage) -> Data:
    """In the peer's interpreter."""
    return stage.inside("outage")


def say(data: Data) -> str:
    """How many calls, and what bounded them."""
    bounded = "a budget of its own bounds them" if data["budget"] else "it has no budget for retries"
    return f"{data['calls']} calls for {OPERATIONS} operations; {bounded}"


QUESTION = Question(
    name="outage",
    title="A server is down. How much do retries add to the load?",
    how=(
        "300 operations in one process, three attempts each, every connection refused; with the library's budget "
        "where it has one. Fewer are better for the server."
    ),
    ask=ask,
    say=say,
    cell=lambda data: f"{data['calls']} for {OPERATIONS}",
    right=lambda data: data["calls"] < 1.5 * OPERATIONS,
    kind=RETRY,
    order=63,
)
