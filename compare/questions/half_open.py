"""A breaker tries whether a server has recovered."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from compare.peers import BREAKER
from compare.questions import Data, Question
from compare.stage import Stage

THREADS = 20
RECOVERY_SECONDS = 1.0
PATIENCE_SECONDS = 3.0


def inside(adapter: Any, folder: Path, url: str) -> Data:
    """Open it, wait until it may try, and let twenty threads call; who gets through waits for the others."""
    lock, seen, failing = threading.Lock(), {"through": 0, "refused": 0}, True

    def work() -> str:
        if failing:
            raise ConnectionRefusedError
        with lock:
            seen["through"] += 1
        until = time.monotonic() + PATIENCE_SECONDS
        while sum(seen.values()) < THREADS and time.monotonic() < until:
            time.sleep(0.01)
        return "done"

    charge = adapter.breaking(work, failures=2, recovery=RECOVERY_SECONDS)
    for _ in range(4):
        try:
            charge()
        except Exception as error:
            refused = type(error).__name__
    failing = False
    time.sleep(RECOVERY_SECONDS + 0.2)
    first: list[int] = []

    def caller() -> None:
        try:
            charge()
            first.append(seen["through"])
        except Exception:
            with lock:
                seen["refused"] += 1

    threads = [threading.Thread(target=caller, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE_SECONDS * THREADS)
    return {"probes": min(first, default=0), "raised": refused}


def ask(stage: Stage) -> Data:
    """In the peer's interpreter."""
    return stage.inside("half-open")


QUESTION = Question(
    name="half-open",
    title="A circuit was open, and may try again. Twenty callers come at once.",
    how="How many calls were let through before the first one came back. One is enough to know.",
    ask=ask,
    say=lambda data: f"{data['probes']} of {THREADS} callers were let through",
    cell=lambda data: f"{data['probes']} of {THREADS}",
    right=lambda data: data["probes"] == 1,
    kind=BREAKER,
    order=70,
)
