"""A duplicate that arrives while the first is running: refused at once, or told the answer when it is there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from onceward._core.errors import InFlight
from onceward._core.events import Event, EventType
from onceward.drill.bench import Bench
from onceward.drill.proof import ONE_EFFECT, Claim, Numbers, Proof

_PATIENCE_SECONDS = 60.0


def _run(bench: Bench) -> Numbers:
    key = bench.key("in-flight")
    running, waiting = threading.Event(), threading.Event()

    def listen(event: Event) -> None:
        if event.type is EventType.WAITING:
            waiting.set()

    gate = bench.gate()
    other = bench.gate(listeners=[listen])

    def slow(_: Any) -> str:
        bench.book.happen(key)
        running.set()
        waiting.wait(_PATIENCE_SECONDS)
        return "the first"

    def quick(_: Any) -> str:
        bench.book.happen(key)
        waiting.set()
        return "a duplicate"

    refused = 0
    with ThreadPoolExecutor(2) as senders:
        try:
            first = senders.submit(bench.send, gate, key, slow)
            running.wait(_PATIENCE_SECONDS)
            try:
                bench.send(other, key, quick, in_flight="refuse")
            except InFlight:
                refused = 1
            second = senders.submit(bench.send, other, key, quick)
            answers = [one.result()[0] for one in (first, second)]
        finally:
            waiting.set()  # Whatever happened here, nobody is kept waiting.
    return {"operations": 1, "effects": bench.book.count(key), "refused": refused, "answers": len(set(answers))}


IN_FLIGHT = Proof(
    name="in-flight",
    shows="a duplicate that arrives while the first is running is refused, or waits and gets the same result",
    without="the gate",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim("a caller that does not wait is refused", lambda n: n["refused"] == 1),
        Claim("a caller that waits gets the first caller's result", lambda n: n["answers"] == 1),
    ),
)
