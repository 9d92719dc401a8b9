"""
`Effects`: stands in for the outside world, and counts what was done to it.

    effects.record("charge")                                        each call is one more charge
    effects.record("charge", key=operation.downstream_key("bank"))  a bank that honours keys: one for each key

Both sides of an effect are failpoints (`effect.before`, `effect.after`), so a crash can come right after it.
"""

from __future__ import annotations

import threading

from onceward.runtime import failpoints

BEFORE = failpoints.declare("effect.before", "just before an effect that a test records")
AFTER = failpoints.declare("effect.after", "just after an effect that a test records")
POINTS = frozenset({BEFORE, AFTER})


class Effects:
    """Counts effects by name. Safe for threads and tasks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[str, list[str | None]] = {}

    def record(self, what: str = "effect", *, key: str | None = None) -> int:
        """
        Have an effect. Returns how many of this name there are now.

        A key stands for a receiver that honours keys: it does the same thing only once, however often it is asked.
        """
        failpoints.hit(BEFORE)
        with self._lock:
            made = self._made.setdefault(what, [])
            if key is None or key not in made:
                made.append(key)
            count = len(made)
        failpoints.hit(AFTER)
        return count

    def count(self, what: str | None = None) -> int:
        """How many effects of this name there were; of all names together, if none is given."""
        counts = self.counts()
        return sum(counts.values()) if what is None else counts.get(what, 0)

    def counts(self) -> dict[str, int]:
        """How many effects there were, by name."""
        with self._lock:
            return {what: len(made) for what, made in self._made.items()}

    def clear(self) -> None:
        """Forget all of them: the world is as it was."""
        with self._lock:
            self._made.clear()
