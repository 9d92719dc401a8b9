"""
The part of a budget that has no colour: the clock and the lock. The arithmetic is in `_core/token_bucket.py`.
"""

from __future__ import annotations

import threading

from onceward._core.events import EventType
from onceward._core.token_bucket import BudgetRule, TokenBucket, ratio_rule
from onceward.runtime.environment import REAL, Environment
from onceward.runtime.event_stream import EVENT_STREAM


class BudgetBase:
    """The state of a budget. `Budget` adds the ways to use it."""

    def __init__(
        self,
        ratio: float = 0.1,
        burst: float = 10,
        *,
        rule: BudgetRule | None = None,
        environment: Environment = REAL,
    ) -> None:
        self.rule = ratio_rule(ratio, burst) if rule is None else rule
        self.environment = environment
        self.name = "budget"
        """What listeners are told; a shared budget has a name of its own."""
        self.granted = 0
        """Retries that were paid for."""
        self.refused = 0
        """Retries that were not."""
        self._bucket = TokenBucket(self.rule)
        self._lock = threading.RLock()  # Reentrant, for the same reason as that of `BreakerBase`.
        # A full bucket takes nothing more, so a success need not be counted. One whose deposits expire is never full.
        self._full = self.rule.capacity if self.rule.ttl is None else float("inf")

    @property
    def tokens(self) -> float:
        """What there is at the moment."""
        with self._lock:
            self._bucket.levels(self.environment.monotonic())
            return self._bucket.tokens

    def succeeded(self, paid: float | None = None) -> None:
        """A call ended well; `paid` is what its last retry cost (None: it needed none)."""
        if paid is None and self._bucket.tokens >= self._full:
            return
        with self._lock:
            self._bucket.succeeded(self.environment.monotonic(), paid)

    def failed(self, *, first: bool = True) -> None:
        """An attempt failed in a way that could be retried."""
        with self._lock:
            self._bucket.failed(self.environment.monotonic(), first=first)

    def _withdraw_here(self, throttled: bool) -> float | None:
        with self._lock:
            return self._counted(self._bucket.withdraw(self.environment.monotonic(), throttled=throttled))

    def _told(self, paid: float | None) -> float | None:
        """What a retry cost. Listeners are told of one that was not paid for, outside of the lock."""
        if paid is None:
            EVENT_STREAM.note(EventType.BUDGET_REFUSED, self.name)
        return paid

    def refund(self, paid: float) -> None:
        """A retry that was paid for is not made: give back what it cost."""
        with self._lock:
            self._bucket.put(self.environment.monotonic(), paid)
            self.granted -= 1

    def _counted(self, paid: float | None) -> float | None:
        if paid is None:
            self.refused += 1
        else:
            self.granted += 1
        return paid

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._bucket.tokens:g} of {self.rule.capacity:g} tokens>"
