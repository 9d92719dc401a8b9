"""
`EventMeter`: what each event counts as. Metrics for Prometheus and for OpenTelemetry are both made by it.

Operations, breakers and endpoints are named in labels, and never keys or digests; scopes only if that is asked for. Of
each label only so many values are told apart: the next ones count as `_other`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from onceward._core.circuit import CircuitState
from onceward._core.events import Event, EventType
from onceward.observe import catalogue
from onceward.observe.catalogue import Metric
from onceward.runtime.environment import REAL, Environment

NAMES_MAX: Final = 100
"""Values of one label that are told apart: every one is a series, and each series costs memory wherever it is kept."""
OTHER: Final = "_other"
UNNAMED: Final = "_unnamed"
OPEN_MAX: Final = 100_000
"""Claims that are remembered until they end."""
LAPSE_SECONDS: Final = 86_400.0
"""A claim of which nothing was heard for that long is not counted as in flight: its end was never told."""

ENDINGS: Final = {
    EventType.SETTLED: "fresh",
    EventType.NOT_REPLAYABLE: "not_replayable",
    EventType.RELEASED: "released",
    EventType.IN_DOUBT: "in_doubt",
    EventType.OVERTAKEN: "overtaken",
    EventType.UNRECORDED: "unrecorded",
}
"""What ends a claim, and what an operation that ended so is counted as."""
_RAN = (EventType.SETTLED, EventType.NOT_REPLAYABLE)
_COUNTED = {
    EventType.RENEWED: catalogue.RENEWALS,
    EventType.RECONCILED: catalogue.RECONCILED,
    EventType.STORE_FORGOT: catalogue.STORE_FORGOT,
    EventType.STORE_RETRIED: catalogue.STORE_RETRIES,
}
_NAMED = {
    EventType.RETRIED: catalogue.RETRIES,
    EventType.GAVE_UP: catalogue.GIVEN_UP,
    EventType.RELAYED: catalogue.RELAY_TRIES,
    EventType.RECEIVED: catalogue.INBOX_RECEIVED,
    EventType.PROCESSED: catalogue.INBOX_PROCESSED,
}
"""Events that count as one, by their name and detail."""

Claim = tuple[str, str, int]


class EventMeter(ABC):
    """A listener that turns events into measurements. Safe for threads; it calls nothing that could wait."""

    def __init__(self, *, names_max: int = NAMES_MAX, scopes: bool = False, environment: Environment = REAL) -> None:
        self._names_max = names_max
        self._scopes = scopes
        self._environment = environment
        self._known: dict[str, set[str]] = {}
        self._operations: dict[str, str] = {}
        """By an operation's name, what it counts as, once it is told apart."""
        self._open: OrderedDict[Claim, tuple[str, float]] = OrderedDict()
        self._guard = threading.RLock()  # Reentrant: garbage may be collected in here, and what ends then tells of it.
        self._waiting: ContextVar[tuple[str, float] | None] = ContextVar("onceward_waiting", default=None)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        with self._guard:
            handler = _HANDLERS.get(event.type)
            if handler is not None:
                handler(self, event)

    # --- what a metrics system does with it ---

    @abstractmethod
    def _add(self, metric: Metric, values: tuple[str, ...], amount: float = 1.0) -> None:
        """Count up; a gauge may be counted down."""

    @abstractmethod
    def _observe(self, metric: Metric, values: tuple[str, ...], seconds: float) -> None:
        """Put a value into a histogram."""

    @abstractmethod
    def _set(self, metric: Metric, values: tuple[str, ...], value: float) -> None:
        """Set a gauge."""

    # --- operations ---

    def _claimed(self, event: Event) -> None:
        if self._waiting.get() is not None:
            self._end_wait(event)
        if event.amount is not None:
            return  # Atomic mode: it is over already, and its end follows.
        name, now = self._operation(event), self._environment.monotonic()
        self._open[_claim_of(event)] = (name, now)
        self._add(catalogue.IN_FLIGHT, (name,))
        if len(self._open) > OPEN_MAX:
            self._drop_first()

    def _ended(self, event: Event) -> None:
        name = self._operation(event)
        begun = self._open.pop(_claim_of(event), None)
        took = event.amount
        if begun is not None:
            self._add(catalogue.IN_FLIGHT, (begun[0],), -1.0)
            took = self._environment.monotonic() - begun[1]
        self._add(catalogue.OPERATIONS, (name, ENDINGS[event.type]))
        if took is not None and event.type in _RAN:
            self._observe(catalogue.DURATION, (name,), took)

    def _replayed(self, event: Event) -> None:
        if self._waiting.get() is not None:
            self._end_wait(event)
        self._add(catalogue.OPERATIONS, (self._operation(event), "replayed"))

    def _refused(self, event: Event) -> None:
        if self._waiting.get() is not None:
            self._end_wait(event)
        name = self._operation(event)
        self._add(catalogue.OPERATIONS, (name, "refused"))
        self._add(catalogue.REFUSALS, (name, self._value("reason", event.detail)))

    def _begin_wait(self, event: Event) -> None:
        self._waiting.set((event.digest, self._environment.monotonic()))

    def _end_wait(self, event: Event) -> None:
        """A caller's next word about the key that it waited for, in the same thread or task, ends its wait."""
        waited = self._waiting.get()
        if waited is not None:
            self._waiting.set(None)
            if waited[0] == event.digest:
                took = self._environment.monotonic() - waited[1]
                self._observe(catalogue.WAIT_DURATION, (self._operation(event),), took)

    def _counted(self, event: Event) -> None:
        self._add(_COUNTED[event.type], (self._operation(event),))

    def _purged(self, event: Event) -> None:
        self._add(catalogue.PURGES, ("yes" if event.detail == "full" else "no",))
        self._add(catalogue.PURGED, (), event.amount or 0.0)

    # --- everything else ---

    def _named(self, event: Event) -> None:
        metric = _NAMED[event.type]
        first, second = metric.labels
        name = self._value(first, event.operation)
        self._add(metric, (name, self._value(second, event.detail)))
        if event.type is EventType.RELAYED and event.detail == "dead":
            self._add(catalogue.DEAD_LETTERS, ("relay", name))  # The inbox puts its own as letters of a gate.

    def _breaker(self, event: Event) -> None:
        name, state = self._value("breaker", event.operation), self._value("state", event.detail)
        self._add(catalogue.BREAKER_CHANGES, (name, state))
        for one in CircuitState:
            self._set(catalogue.BREAKER_STATE, (name, one.value), float(one.value == state))

    def _budget(self, event: Event) -> None:
        self._add(catalogue.BUDGET_REFUSALS, (self._value("budget", event.operation),))

    def _dead_lettered(self, event: Event) -> None:
        self._add(catalogue.DEAD_LETTERS, ("call", self._value("operation", event.operation)))

    def count_call(self, method: str, outcome: str, seconds: float) -> None:
        """Count a call of a service."""
        with self._guard:
            method = self._value("method", method)
            self._add(catalogue.SERVICE_CALLS, (method, self._value("outcome", outcome)))
            self._observe(catalogue.SERVICE_DURATION, (method,), seconds)

    # --- bounds ---

    def oldest_in_flight(self) -> float:
        """Seconds since the oldest claim that this process holds; 0 if it holds none."""
        with self._guard:
            now = self._environment.monotonic()
            while self._open:
                _, begun = next(iter(self._open.values()))
                if now - begun < LAPSE_SECONDS:
                    return now - begun
                self._drop_first()
            return 0.0

    def _drop_first(self) -> None:
        _, (name, _) = self._open.popitem(last=False)
        self._add(catalogue.IN_FLIGHT, (name,), -1.0)

    def _operation(self, event: Event) -> str:
        known = self._operations.get(event.operation)
        if known is not None:
            return known
        name = event.operation or UNNAMED
        if self._scopes:
            return self._value("operation", f"{event.scope}/{name}")
        label = self._value("operation", name)
        if name in self._known["operation"]:  # One that was folded is counted as such each time.
            self._operations[event.operation] = label
        return label

    def _value(self, label: str, text: str) -> str:
        """A label's value, or `_other` if there are too many of it."""
        text = text or UNNAMED
        known = self._known.setdefault(label, set())
        if text in known:
            return text
        if len(known) >= self._names_max:
            self._add(catalogue.NAMES_FOLDED, (label,))
            return OTHER
        known.add(text)
        return text


def _claim_of(event: Event) -> Claim:
    return event.scope, event.digest, event.fence


_HANDLERS: dict[EventType, Callable[[EventMeter, Event], None]] = {
    EventType.CLAIMED: EventMeter._claimed,
    EventType.REPLAYED: EventMeter._replayed,
    EventType.REFUSED: EventMeter._refused,
    EventType.WAITING: EventMeter._begin_wait,
    EventType.PURGED: EventMeter._purged,
    EventType.BREAKER_CHANGED: EventMeter._breaker,
    EventType.BUDGET_REFUSED: EventMeter._budget,
    EventType.DEAD_LETTERED: EventMeter._dead_lettered,
    **dict.fromkeys(ENDINGS, EventMeter._ended),
    **dict.fromkeys(_COUNTED, EventMeter._counted),
    **dict.fromkeys(_NAMED, EventMeter._named),
}
"""Every type of event has one; a test holds it."""
