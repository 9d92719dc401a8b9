"""
One event type. Listeners are plain callables; when nobody listens, no event is ever made.

Gates tell of operations. Policies, breakers, budgets, dead letters, the relay and the inbox tell of themselves, by the
same type: `operation` is then their name, and `digest` and `scope` are empty where there is no key.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, TypeAlias


class EventType(StrEnum):
    """What an event tells of."""

    CLAIMED = "claimed"
    REPLAYED = "replayed"
    WAITING = "waiting"
    REFUSED = "refused"
    SETTLED = "settled"
    NOT_REPLAYABLE = "not_replayable"
    RELEASED = "released"
    IN_DOUBT = "in_doubt"
    RENEWED = "renewed"
    OVERTAKEN = "overtaken"
    STORE_FORGOT = "store_forgot"
    RECONCILED = "reconciled"
    STORE_RETRIED = "store_retried"
    UNRECORDED = "unrecorded"
    """It ran, and the store was away until the lease was over: nobody may ever learn the result."""
    PURGED = "purged"
    """A gate forgot what had expired: `amount` is how many records; `detail` is `full` if it left some for later."""
    RETRIED = "retried"
    """A policy makes another attempt: `detail` is the kind of failure."""
    GAVE_UP = "gave_up"
    """A policy makes no further attempt: `detail` is the reason."""
    BREAKER_CHANGED = "breaker_changed"
    """`operation` is the breaker's name, `detail` its state: `closed`, `open` or `half_open`."""
    BUDGET_REFUSED = "budget_refused"
    """A retry was not paid for."""
    DEAD_LETTERED = "dead_lettered"
    """A call was given up and kept: `operation` is its name, `detail` the reason."""
    RELAYED = "relayed"
    """A try at delivering is over: `operation` is the endpoint, `detail` how it ended."""
    RECEIVED = "received"
    """The inbox was sent an event: `operation` is the source, `detail` is `new` or `duplicate`."""
    PROCESSED = "processed"
    """The inbox is done with a try at an event: `operation` is the source, `detail` how it ended."""


class Event(NamedTuple):
    """Something that happened. It names a key by its digest, never by itself."""

    type: EventType
    digest: str
    scope: str
    operation: str
    attempt: int
    fence: int
    detail: str = ""
    amount: float | None = None
    """How many (of a purge), or how many seconds the run took (in atomic mode, which tells when all is over)."""

    def __str__(self) -> str:
        """One line for a log."""
        tail = f": {self.detail}" if self.detail else ""
        name = self.operation or "operation"
        if not self.digest:
            return f"{self.type.value} {name}{tail}"
        return f"{self.type.value} {name} {self.digest} in {self.scope} (attempt {self.attempt}){tail}"


Listener: TypeAlias = Callable[[Event], object]
"""What is told of events: any callable. What it returns is not looked at, and an error of it is logged."""
