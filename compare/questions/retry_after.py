"""A 429 whose Retry-After is longer than the caller has time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from compare.peers import RETRY
from compare.questions import Data, Question, number
from compare.stage import Stage

WAIT_SECONDS, TOTAL_SECONDS, AT_ONCE_SECONDS = 3.0, 1.0, 0.9


def inside(adapter: Any, folder: Path, url: str) -> Data:
    """Call what always responds so, with a second in all."""
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        raise adapter.limited(WAIT_SECONDS)

    begin = time.monotonic()
    try:
        adapter.retrying(work, attempts=3, total=TOTAL_SECONDS)()
    except Exception as error:
        raised = type(error).__name__
    return {"calls": calls, "seconds": round(time.monotonic() - begin, 1), "raised": raised}


def ask(stage: Stage) -> Data:
    """In the peer's interpreter."""
    return stage.inside("retry-after")


def say(data: Data) -> str:
    """How long it slept, and whether it asked too early."""
    calls = f"{number(data['calls'])} call{'' if data['calls'] == 1 else 's'} in {data['seconds']} s"
    if data["calls"] > 1 and data["seconds"] < WAIT_SECONDS:
        return f"{calls}: it asked again before it was allowed to"
    if data["seconds"] >= WAIT_SECONDS:
        return f"{calls}: it slept past its own limit"
    if data["seconds"] >= AT_ONCE_SECONDS:
        return f"{calls}: it slept until its limit, and then gave up with `{data['raised']}`"
    return f"{calls}: it stopped at once, with `{data['raised']}`"


QUESTION = Question(
    name="retry-after",
    title="A server says `Retry-After: 3`, and the caller has one second.",
    how=(
        "A limit of one second in all, as the library has it, and its own way to read the server's wait. Stopping"
        " at once is right."
    ),
    ask=ask,
    say=say,
    cell=lambda data: f"{data['calls']} in {data['seconds']} s",
    right=lambda data: data["calls"] == 1,
    kind=RETRY,
    order=60,
)
