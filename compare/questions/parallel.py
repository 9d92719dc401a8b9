"""Whether a closed breaker holds up parallel calls."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from compare.peers import BREAKER
from compare.questions import Data, Question
from compare.stage import Stage

THREADS = 8
PATIENCE_SECONDS = 15.0


def inside(adapter: Any, folder: Path, url: str) -> Data:
    """Eight threads; each waits inside for the others."""
    lock, here, most, alone = threading.Lock(), [0], [0], threading.Event()

    def work() -> str:
        with lock:
            here[0] += 1
            most[0] = max(most[0], here[0])
        until = time.monotonic() + PATIENCE_SECONDS
        while most[0] < THREADS and time.monotonic() < until and not alone.is_set():
            time.sleep(0.01)
        if most[0] < THREADS:
            alone.set()  # The others need not wait as well.
        with lock:
            here[0] -= 1
        return "done"

    charge = adapter.breaking(work, failures=5, recovery=30.0)
    threads = [threading.Thread(target=charge, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE_SECONDS)
    return {"most": most[0]}


def ask(stage: Stage) -> Data:
    """In the peer's interpreter."""
    return stage.inside("parallel")


QUESTION = Question(
    name="parallel",
    title="Eight threads call through a closed breaker.",
    how="Each call waits, inside, for the seven others. Eight at once are right.",
    ask=ask,
    say=lambda data: f"{data['most']} of {THREADS} calls were under way at once",
    cell=lambda data: f"{data['most']} of {THREADS}",
    right=lambda data: data["most"] == THREADS,
    kind=BREAKER,
    order=71,
)
