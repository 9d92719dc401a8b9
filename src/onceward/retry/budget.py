"""
`Budget`: retries as a share of the traffic, for every policy that is given it.

The arithmetic is in `_core/budget.py`; here are the clock, the threads, and how several processes share one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from onceward._core.budget import AWS_2026, GRPC, Bucket, BudgetRule, finagle_rule, ratio_rule
from onceward.environment import REAL, Environment

if TYPE_CHECKING:
    from onceward._core.register import AsyncStore, Store
    from onceward.gate import AsyncGate, Gate


class Budget:
    """
    Tokens come in with calls that succeed, and go out with retries; when they are gone, nothing is retried.

    One budget serves any number of policies, threads and tasks: make one per dependency. `ratio` is the share of
    retries in the traffic, `burst` how many may come at once.
    """

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
        self.granted = 0
        """Retries that were paid for."""
        self.refused = 0
        """Retries that were not."""
        self._bucket = Bucket(self.rule)
        self._lock = threading.RLock()  # See `Breaker`.
        # A full bucket takes nothing more, so a success need not be counted. One whose deposits expire is never full.
        self._full = self.rule.capacity if self.rule.ttl is None else float("inf")

    @classmethod
    def grpc(cls, *, environment: Environment = REAL) -> Budget:
        """gRPC's retry throttling (A6): ten tokens, one per failure, a tenth back per success, none below half."""
        return cls(rule=GRPC, environment=environment)

    @classmethod
    def aws2026(cls, *, environment: Environment = REAL) -> Budget:
        """The AWS SDKs' standard mode of 2026: 500 tokens, 14 per retry, 5 per throttled one, 1 back per success."""
        return cls(rule=AWS_2026, environment=environment)

    @classmethod
    def finagle(
        cls, ratio: float = 0.2, per_second: float = 10, ttl: float = 10, *, environment: Environment = REAL
    ) -> Budget:
        """Finagle's: a share of the calls of the last seconds, and so many a second always."""
        return cls(rule=finagle_rule(ratio, per_second, ttl), environment=environment)

    @classmethod
    def shared(
        cls,
        store: Gate | AsyncGate | Store | AsyncStore,
        name: str,
        *,
        ratio: float = 0.1,
        burst: float = 10,
        rule: BudgetRule | None = None,
        scope: str | None = None,
        staleness: float = 1.0,
        patience: float = 0.25,
        environment: Environment = REAL,
    ) -> Budget:
        """
        One budget for every process that names it on the same store.

        Successes are counted here and handed in when a retry is wanted; so calls that need no retry never touch the
        store. A refusal is believed for `staleness` seconds. A store that does not answer within `patience` seconds is
        left alone for as long, and this process's own count decides meanwhile: from an empty bucket until the store
        has answered once, so that a fleet that starts cold has no burst for each of its processes. `connect()` when a
        process starts makes that contact early.
        """
        from onceward.retry.sharing import SharedBudget

        return SharedBudget(
            store,
            name,
            rule=ratio_rule(ratio, burst) if rule is None else rule,
            scope=scope,
            staleness=staleness,
            patience=patience,
            environment=environment,
        )

    def connect(self, patience: float = 10.0) -> bool:
        """Whether whoever keeps the budget answers: True for one of this process alone. See `Budget.shared`."""
        return True

    async def aconnect(self, patience: float = 10.0) -> bool:
        """Same as `connect`, but awaits."""
        return True

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

    def withdraw(self, *, throttled: bool = False) -> float | None:
        """Pay for a retry: what it cost, or None: do not retry."""
        with self._lock:
            return self._counted(self._bucket.withdraw(self.environment.monotonic(), throttled=throttled))

    async def awithdraw(self, *, throttled: bool = False) -> float | None:
        """Same as `withdraw`, for awaiting callers."""
        return self.withdraw(throttled=throttled)

    def refund(self, paid: float) -> None:
        """A retry that was paid for is not made: give back what it cost."""
        with self._lock:
            self._bucket.put(self.environment.monotonic(), paid)
            self.granted -= 1

    def around(self, retry: Any, breaker: Any, budget: Budget | None) -> Any:
        """This budget around an operation. For gates: `once(budget=budget)`."""
        from onceward.retry.gated import Around

        return Around(retry, breaker, budget)

    def _counted(self, paid: float | None) -> float | None:
        if paid is None:
            self.refused += 1
        else:
            self.granted += 1
        return paid

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._bucket.tokens:g} of {self.rule.capacity:g} tokens>"
