"""Three layers, each of which retries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compare.peers import RETRY
from compare.questions import Data, Question
from compare.stage import Stage


def inside(adapter: Any, folder: Path, url: str) -> Data:
    """A function that never connects, under three policies of three attempts."""
    calls = 0

    def lowest() -> None:
        nonlocal calls
        calls += 1
        raise ConnectionRefusedError

    middle = adapter.retrying(lowest, attempts=3)
    upper = adapter.retrying(middle, attempts=3)
    try:
        adapter.retrying(upper, attempts=3)()
    except Exception as error:
        raised = type(error).__name__
    return {"calls": calls, "raised": raised}


def ask(stage: Stage) -> Data:
    """In the peer's interpreter."""
    return stage.inside("stacked")


QUESTION = Question(
    name="stacked",
    title="Three layers of a program retry, three attempts each.",
    how=(
        "The innermost function is refused a connection each time. Three calls are enough; 27 is what three "
        "layers multiply to."
    ),
    ask=ask,
    say=lambda data: f"{data['calls']} calls",
    cell=lambda data: f"{data['calls']} calls",
    right=lambda data: data["calls"] == 3,
    kind=RETRY,
    order=62,
)
