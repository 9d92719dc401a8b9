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
    """The local state of a shared budget; see `Budget.shared`."""

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
        # The two kinds of rules store different things, so under one name they are two budgets.
        kind = BUDGET if rule.ttl is None else WINDOWED_BUDGET
        self._cell = shared_record(kind, _scope(store, scope), self.name)
        self._client = _shared_state_client(store, self._batch_flow, environment, _positive(patience, "patience"))
        self._deposits, self._failures = 0.0, 0
        self._refused_until = self._away_until = float("-inf")
        self._connected = False
        # Until the store has responded once, this process has no burst of its own: otherwise a fleet that starts
        # together would have as many bursts as it has processes.
        self._bucket.put(environment.monotonic(), -rule.capacity)

    def succeeded(self, paid: float | None = None) -> None:
        """Count it here; it is reported with the next retry."""
        with self._lock:
            self._bucket.succeeded(self.environment.monotonic(), paid)
            if self._deposits < self.rule.capacity:
                self._deposits += self._bucket.worth(paid)

    def failed(self, *, first: bool = True) -> None:
        """Count it here; it is reported with the next retry."""
        with self._lock:
            self._bucket.failed(self.environment.monotonic(), first=first)
            self._failures += bool(self.rule.per_failure)
            if first and self.rule.every_call:
                self._deposits += self.rule.deposit

    def _mark_connected(self) -> None:
        """The store responds. From now on the local count starts full, for the time when the store is unavailable."""
        with self._lock:
            if not self._connected:
                self._connected, self._bucket = True, TokenBucket(self.rule)

    def refund(self, paid: float) -> None:
        """Give it back here; it is reported with the successes."""
        super().refund(paid)
        with self._lock:
            self._deposits += paid

    def _alone(self, throttled: bool) -> tuple[float | None] | None:
        """Decide without the store, if it has just refused or is unavailable; else None."""
        now = self.environment.monotonic()
        with self._lock:
            if now < self._refused_until:
                return (self._counted(None),)
            if now < self._away_until:
                return (self._counted(self._bucket.withdraw(now, throttled=throttled)),)
        return None

    def _note_reply(self, paid: float | None) -> float | None:
        now = self.environment.monotonic()
        self._mark_connected()
        with self._lock:
            if paid is None:
                self._refused_until = now + self._staleness
                self._bucket.put(
                    now, -self.rule.capacity
                )  # There is none for all processes, so there is none for this one.
            else:
                self._bucket.withdraw(now)  # The local count follows, for the time when it is needed.
            return self._counted(paid)

    def _decide_without_store(self, throttled: bool) -> float | None:
        now = self.environment.monotonic()
        with self._lock:
            self._away_until = now + self._staleness
            return self._counted(self._bucket.withdraw(now, throttled=throttled))

    def _batch_flow(self, queries: Sequence[bool | None]) -> Flow[Sequence[float | None]]:
        """Report what was counted, and ask for retries. A query that is None only checks that the store responds."""
        with self._lock:
            draw = BudgetDraw(self._deposits, self._failures, tuple(one for one in queries if one is not None))
            self._deposits, self._failures = 0.0, 0
        try:
            granted = iter((yield from draw_budget(self._cell, self.rule, draw)))
            return [None if one is None else next(granted) for one in queries]
        except BaseException:
            with self._lock:  # Not stored, or nobody knows: to count it twice is the harmless mistake.
                self._deposits += draw.deposits
                self._failures += draw.failures
            raise


class SharedBreakerBase(Breaker):
    """The local state of a shared breaker; see `Breaker.shared`."""

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
        self._client = _shared_state_client(store, self._batch_flow, self.environment, _positive(patience, "patience"))
        self._probes: dict[int, bytes] = {}
        self._unsent, self._anew = 0, False
        self.counts_all = True  # A success here ends the row that others have counted.
        self._asked_at = float("-inf")

    def let_go(self, ticket: int | BreakerRefusal | None) -> None:
        """Give a ticket back without a result. If it was a probe, that is reported to the store."""
        self.report(ticket, "ended")

    def _is_plain(self, ticket: int | BreakerRefusal | None, end: str) -> bool:
        """Whether there is nothing to report: a success while the circuit is closed, or a disabled breaker."""
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

    def _follow_probe_update(self, update: BreakerUpdate) -> int | BreakerRefusal:
        """Do as the store says: probe, make no call, or call as usual because another process's probe succeeded."""
        now = self.environment.monotonic()
        if update.probe is None:
            self._adopt(update)
            if update.seen.state != "closed":
                return BreakerRefusal(max(update.seen.left, 0.001))
        admitted = self._admit_here()
        if update.probe is not None and isinstance(admitted, int):
            with self._lock:
                self._probes = {admitted: update.probe}
        elif isinstance(admitted, BreakerRefusal) and update.seen.state == "closed":
            with self._lock:
                self.circuit.close(now)
                return self.circuit.serial
        return admitted

    def _counted(self, ticket: int | BreakerRefusal | None, end: str) -> BreakerMove | None:
        """Count it here. Returns what to report to the store, if anything."""
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
            move = ReportFailures(count, self._anew)
            self._unsent, self._anew = 0, False
            return move

    def _adopt(self, update: BreakerUpdate) -> None:
        """Take over the state that the store reports."""
        seen, now = update.seen, self.environment.monotonic()
        with self._lock:
            before = self.circuit.state
            if seen.state == "closed" and before is not CircuitState.CLOSED:
                self.circuit.close(now)
            elif seen.state != "closed" and update.probe is None and not self._probes:
                left = min(max(seen.left, 0.0), self.rule.recovery)
                if before is CircuitState.CLOSED or self.circuit.peek(now) is None:
                    self.circuit.open(now, left)
            changed = before is not self.circuit.state
        if changed:
            self._changed()

    def _batch_flow(self, moves: Sequence[BreakerMove]) -> Flow[Sequence[BreakerUpdate]]:
        updates: list[BreakerUpdate] = []
        for move in moves:
            updates += ((yield from move_breaker(self._cell, self.rule, move)),)
        return updates


def _shared_state_client(
    store: Any, batch_flow: BatchFlow, environment: Environment, patience: float
) -> SharedStateClient | AsyncSharedStateClient:
    if isinstance(store, Gate):
        return SharedStateClient(store.store, batch_flow, environment, patience)
    if isinstance(store, AsyncGate):
        return AsyncSharedStateClient(store.store, batch_flow, environment, patience)
    awaits = capabilities_of(store).awaits
    if awaits is None:
        raise ConfigurationError(
            f"{type(store).__name__} does not say whether it awaits. Pass a gate or a store that does "
            "(`capabilities = Capabilities(awaits=...)`)"
        )
    return (AsyncSharedStateClient if awaits else SharedStateClient)(store, batch_flow, environment, patience)


def _scope(store: Any, scope: str | None) -> str:
    if scope is not None:
        return check_scope(scope)
    return store.scope if isinstance(store, Gate | AsyncGate) else SCOPE


def _positive(value: float, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 60:
        raise ConfigurationError(f"{name} is a number of seconds, more than 0 and at most a minute")
    return float(value)
