"""
`Budget`: retries as a share of the traffic, for every policy that is given it.

The arithmetic is in `_core/token_bucket.py`; how several processes share one is in `shared.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceward._core.token_bucket import AWS_2026, GRPC, BudgetRule, finagle_rule, ratio_rule
from onceward.retry.breaker_budget_mixins import BudgetMixin
from onceward.retry.breaker_budget_mixins_async import AsyncBudgetMixin
from onceward.runtime.environment import REAL, Environment

if TYPE_CHECKING:
    from onceward._core.store_protocols import AsyncStore, Store
    from onceward.gate import AsyncGate, Gate


class Budget(BudgetMixin, AsyncBudgetMixin):
    """
    Tokens come in with calls that succeed, and go out with retries; when they are gone, nothing is retried.

    One budget serves any number of policies, threads and tasks: make one per dependency. `ratio` is the share of
    retries in the traffic, `burst` how many may come at once.
    """

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

        Successes are counted here and reported with the next retry, so calls that need no retry never touch the store.
        A refusal counts for `staleness` seconds. If the store does not respond within `patience` seconds, this process
        decides by its own count for as long. Until the store has responded once, that count starts empty: otherwise a
        fleet that starts together would have one burst per process. Call `connect()` when a process starts.
        """
        from onceward.retry.shared import SharedBudget

        return SharedBudget(
            store,
            name,
            rule=ratio_rule(ratio, burst) if rule is None else rule,
            scope=scope,
            staleness=staleness,
            patience=patience,
            environment=environment,
        )

    def resilience(self, retry: Any, breaker: Any, budget: Budget | None) -> Any:
        """This budget around an operation. For gates: `once(budget=budget)`."""
        from onceward.retry.resilience import OperationResilience

        return OperationResilience(retry, breaker, budget)
