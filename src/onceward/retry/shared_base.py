"""
The part of shared budgets and breakers that has no colour: local counts, and what the store last said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward._core.capabilities import capabilities_of
from onceward._core.circuit import BreakerRefusal, CircuitState
from onceward._core.errors import ConfigurationError
from onceward._core.flow import Flow
from onceward._core.keys import check_scope
from onceward._core.shared_state import (
    BREAKER,
    BUDGET,
    WINDOWED_BUDGET,
    BreakerMove,
    BreakerUpdate,
    BudgetDraw,
    ReportFailures,
    SettleProbe,
    draw_budget,
    move_breaker,
    shared_record,
)
from onceward._core.store_protocols import AsyncStore, Store
from onceward._core.token_bucket import BudgetRule, TokenBucket
from onceward.gate import AsyncGate, Gate
from onceward.retry.breaker import Breaker, checked_name
from onceward.retry.budget import Budget
from onceward.retry.shared_state_client import AsyncSharedStateClient, BatchFlow, SharedStateClient
from onceward.runtime.environment import Environment

SCOPE = "live:shared"
"""Whose record it is if only a store is given: not a tenant's, but everybody's who uses that store."""


class SharedBudgetBase(Budget):
    """A shared budget without the ways to ask the store: see `Budget.shared`."""

    def __init__(
        self,
        store: Gate | AsyncGate | Store | AsyncStore,
        name: str,
        *,
        rule: BudgetRule,
        scope: str | None,
        staleness: float,
        patience: float,
        environment: Environment,
    ) -> None:
        super().__init__(rule=rule, environment=environment)
        self.name = checked_name(name)
        self._staleness = _positive(staleness, "staleness")
        # What the two kinds of rules store is not the same: under one name they are two budgets.
        kind = BUDGET if rule.ttl is None else WINDOWED_BUDGET
        self._cell = shared_record(kind, _scope(store, scope), self.name)
        self._courier = _shared_state_client(store, self._errand, environment, _positive(patience, "patience"))
        self._deposits, self._failures = 0.0, 0
        self._refused_until = self._away_until = float("-inf")
        self._met = False
        # Before the store has answered once, this process has no burst of its own: a fleet that starts together, and
        # before its stores are connected, would have as many bursts as it has processes.
        self._bucket.put(environment.monotonic(), -rule.capacity)

    def succeeded(self, paid: float | None = None) -> None:
        """Counted here, and handed in when a retry is wanted."""
        with self._lock:
            self._bucket.succeeded(self.environment.monotonic(), paid)
            if self._deposits < self.rule.capacity:
                self._deposits += self._bucket.worth(paid)

    def failed(self, *, first: bool = True) -> None:
        """Counted here, and handed in when a retry is wanted."""
        with self._lock:
            self._bucket.failed(self.environment.monotonic(), first=first)
            self._failures += bool(self.rule.per_failure)
            if first and self.rule.every_call:
                self._deposits += self.rule.deposit

    def _meet(self) -> None:
        """The store answers: what it grants is counted here as well, from a full bucket, for the time it is needed."""
        with self._lock:
            if not self._met:
                self._met, self._bucket = True, TokenBucket(self.rule)

    def refund(self, paid: float) -> None:
        """Given back here, and handed in with the successes."""
        super().refund(paid)
        with self._lock:
            self._deposits += paid

    def _alone(self, throttled: bool) -> tuple[float | None] | None:
        """Decide without asking: the store has just said no, or is away."""
        now = self.environment.monotonic()
        with self._lock:
            if now < self._refused_until:
                return (self._counted(None),)
            if now < self._away_until:
                return (self._counted(self._bucket.withdraw(now, throttled=throttled)),)
        return None

    def _heard(self, paid: float | None) -> float | None:
        now = self.environment.monotonic()
        self._meet()
        with self._lock:
            if paid is None:
                self._refused_until = now + self._staleness
                self._bucket.put(now, -self.rule.capacity)  # There is none for all, so there is none for one.
            else:
                self._bucket.withdraw(now)  # The local count goes along, for the time when it is needed.
            return self._counted(paid)

    def _missed(self, throttled: bool) -> float | None:
        now = self.environment.monotonic()
        with self._lock:
            self._away_until = now + self._staleness
            return self._counted(self._bucket.withdraw(now, throttled=throttled))

    def _errand(self, wants: Sequence[bool | None]) -> Flow[Sequence[float | None]]:
        """Hand in what was counted, and ask for retries; None among the questions only wants to know the store."""
        with self._lock:
            brought = BudgetDraw(self._deposits, self._failures, tuple(one for one in wants if one is not None))
            self._deposits, self._failures = 0.0, 0
        try:
            granted = iter((yield from draw_budget(self._cell, self.rule, brought)))
            return [None if one is None else next(granted) for one in wants]
        except BaseException:
            with self._lock:  # Not handed in, or nobody knows: counting it again later is the generous mistake.
                self._deposits += brought.deposits
                self._failures += brought.failures
            raise


class SharedBreakerBase(Breaker):
    """A shared breaker without the ways to ask the store: see `Breaker.shared`."""

    def __init__(
        self,
        store: Gate | AsyncGate | Store | AsyncStore,
        name: str,
        *,
        scope: str | None,
        staleness: float,
        patience: float,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        rule = self.rule
        if rule.rate is not None or rule.probes != 1 or rule.successes != 1 or rule.age is not None:
            raise ConfigurationError(
                "a shared breaker counts failures in a row and sends one probe at a time: rate, age, probes and "
                "successes are for breakers of one process"
            )
        self._staleness = _positive(staleness, "staleness")
        self._cell = shared_record(BREAKER, _scope(store, scope), self.name)
        self._courier = _shared_state_client(store, self._errand, self.environment, _positive(patience, "patience"))
        self._probes: dict[int, bytes] = {}
        self._unsent, self._anew = 0, False
        self.counts_all = True  # A success here ends the row that others have counted.
        self._asked_at = float("-inf")

    def let_go(self, ticket: int | BreakerRefusal | None) -> None:
        """Give a ticket back without a result; if it was a probe, the store is told."""
        self.report(ticket, "ended")

    def _is_plain(self, ticket: int | BreakerRefusal | None, end: str) -> bool:
        """A success while nothing is wrong: noted, and that is all."""
        if not self.enabled:
            return True
        circuit = self.circuit
        if end != "succeeded" or circuit.streak or ticket != circuit.serial or circuit.state is not CircuitState.CLOSED:
            return False
        self._anew = True
        return True

    def _is_due(self) -> bool:
        if self.circuit.state is CircuitState.CLOSED:
            return False
        now = self.environment.monotonic()
        with self._lock:
            return self.circuit.peek(now) is None

    def _told_of_probe(self, told: BreakerUpdate) -> int | BreakerRefusal:
        """Do as the store says: probe, stay away, or go on as usual because another's probe has succeeded."""
        now = self.environment.monotonic()
        if told.probe is None:
            self._adopt(told)
            if told.seen.state != "closed":
                return BreakerRefusal(max(told.seen.left, 0.001))
        admitted = self._admit_here()
        if told.probe is not None and isinstance(admitted, int):
            with self._lock:
                self._probes = {admitted: told.probe}
        elif isinstance(admitted, BreakerRefusal) and told.seen.state == "closed":
            with self._lock:
                self.circuit.close(now)
                return self.circuit.serial
        return admitted

    def _counted(self, ticket: int | BreakerRefusal | None, end: str) -> BreakerMove | None:
        """Count it here; what is to be handed in, if anything."""
        self._report_here(ticket, end)
        if not isinstance(ticket, int):
            return None
        now = self.environment.monotonic()
        with self._lock:
            version = self._probes.pop(ticket, None)
            if version is not None:
                return SettleProbe(version, end)
            if end != "failed":
                if end == "succeeded":
                    self._unsent, self._anew = 0, True
                return None
            self._unsent += 1
            opened = self.circuit.state is not CircuitState.CLOSED
            if not opened and now - self._asked_at < self._staleness and self._asked_at <= now:
                return None
            self._asked_at = now
            count = max(self._unsent, self.rule.threshold) if opened else self._unsent
            what = ReportFailures(count, self._anew)
            self._unsent, self._anew = 0, False
            return what

    def _adopt(self, told: BreakerUpdate) -> None:
        """Take over what the others know."""
        seen, now = told.seen, self.environment.monotonic()
        with self._lock:
            before = self.circuit.state
            if seen.state == "closed" and before is not CircuitState.CLOSED:
                self.circuit.close(now)
            elif seen.state != "closed" and told.probe is None and not self._probes:
                left = min(max(seen.left, 0.0), self.rule.recovery)
                if before is CircuitState.CLOSED or self.circuit.peek(now) is None:
                    self.circuit.open(now, left)
            changed = before is not self.circuit.state
        if changed:
            self._changed()

    def _errand(self, moves: Sequence[BreakerMove]) -> Flow[Sequence[BreakerUpdate]]:
        told: list[BreakerUpdate] = []
        for what in moves:
            told += ((yield from move_breaker(self._cell, self.rule, what)),)
        return told


def _shared_state_client(
    store: Any, errand: BatchFlow, environment: Environment, patience: float
) -> SharedStateClient | AsyncSharedStateClient:
    if isinstance(store, Gate):
        return SharedStateClient(store.store, errand, environment, patience)
    if isinstance(store, AsyncGate):
        return AsyncSharedStateClient(store.store, errand, environment, patience)
    awaits = capabilities_of(store).awaits
    if awaits is None:
        raise ConfigurationError(
            "a shared budget or breaker needs a gate or a store, and a store that says whether it awaits "
            f"(`capabilities = Capabilities(awaits=...)`); {type(store).__name__} does not"
        )
    return (AsyncSharedStateClient if awaits else SharedStateClient)(store, errand, environment, patience)


def _scope(store: Any, scope: str | None) -> str:
    if scope is not None:
        return check_scope(scope)
    return store.scope if isinstance(store, Gate | AsyncGate) else SCOPE


def _positive(value: float, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 60:
        raise ConfigurationError(f"{name} is a number of seconds, more than 0 and at most a minute")
    return float(value)
