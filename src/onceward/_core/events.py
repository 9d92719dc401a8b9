"""
One event type. Listeners are plain callables; when nobody listens, no event is ever made.
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


class Event(NamedTuple):
    """Something that happened to an operation. It names the key by its digest, never by itself."""

    type: EventType
    digest: str
    scope: str
    operation: str
    attempt: int
    fence: int
    detail: str = ""

    def __str__(self) -> str:
        """One line for a log."""
        tail = f": {self.detail}" if self.detail else ""
        name = self.operation or "operation"
        return f"{self.type.value} {name} {self.digest} in {self.scope} (attempt {self.attempt}){tail}"


Listener: TypeAlias = Callable[[Event], object]
