"""A retry after the retention: refused, and not run again."""

from __future__ import annotations

from onceward._core.errors import Expired
from onceward.drill.bench import Bench, until
from onceward.drill.proof import ONE_EFFECT, Claim, Numbers, Proof

RETAIN_SECONDS = 0.3
_PATIENCE_SECONDS = 60.0


def _run(bench: Bench) -> Numbers:
    key, kept = bench.key("expires"), bench.key("kept")
    gate = bench.gate(after_expiry="refuse" if bench.guarded else "run")
    refused = 0

    def send() -> bool:
        """Send it again; whether its retention is over: it is refused, or has run a second time."""
        nonlocal refused
        try:
            gate.call(key, lambda: bench.book.happen(key), retain=RETAIN_SECONDS)
        except Expired:
            refused = 1
        return bool(refused) or bench.book.count(key) > 1

    send()
    gate.call(kept, lambda: bench.book.happen(kept))
    until(_PATIENCE_SECONDS, send)
    within = gate.call(kept, lambda: bench.book.happen(kept))
    effects = bench.book.count(key) + bench.book.count(kept)
    return {"operations": 2, "effects": effects, "refused": refused, "replayedWithin": int(within.replayed)}


EXPIRY = Proof(
    name="expiry",
    shows="a retry within the retention gets the result; a later retry is refused, and does not run again",
    without="the tombstone (after_expiry='run')",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim("after the retention, a retry is refused", lambda n: n["refused"] == 1),
        Claim("within the retention, a retry is replayed", lambda n: n["replayedWithin"] == 1),
    ),
)
