"""
Listeners that write a log: for the standard library's `logging`, and for structlog.

What needs somebody is a warning or an error, the rest is for debugging. A caller that is refused again and again is
logged once in a while, with the number of times.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Any, Final

from onceward._core.events import Event, EventType
from onceward.runtime.environment import REAL, Environment

EVERY_SECONDS: Final = 60.0
"""How often the same repeated thing is logged."""
REPEATS_MAX: Final = 1_000
"""Different things whose repetitions are counted at a time."""

_LEVELS = {
    EventType.IN_DOUBT: logging.ERROR,
    EventType.UNRECORDED: logging.ERROR,
    EventType.STORE_FORGOT: logging.ERROR,
    EventType.DEAD_LETTERED: logging.ERROR,
    EventType.OVERTAKEN: logging.WARNING,
    EventType.NOT_REPLAYABLE: logging.WARNING,
    EventType.BREAKER_CHANGED: logging.WARNING,
    EventType.GAVE_UP: logging.WARNING,
    EventType.REFUSED: logging.WARNING,
    EventType.STORE_RETRIED: logging.WARNING,
    EventType.BUDGET_REFUSED: logging.WARNING,
    EventType.RECONCILED: logging.INFO,
}
_REPEATED = (EventType.REFUSED, EventType.STORE_RETRIED, EventType.BUDGET_REFUSED)
"""What a stubborn caller can bring about as often as it likes."""


class _Repeats:
    """Since when the same thing is not logged, and how often it was not."""

    __slots__ = ("missed", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.missed = 0


class LogListenerBase(ABC):
    """What both listeners share: the level of an event, and which repetitions are left out. Safe for threads."""

    def __init__(self, *, every: float = EVERY_SECONDS, environment: Environment = REAL) -> None:
        self._every = every
        self._environment = environment
        self._repeats: OrderedDict[tuple[str, ...], _Repeats] = OrderedDict()
        self._guard = threading.RLock()

    def __call__(self, event: Event) -> None:
        """Log one event, if somebody wants to see it."""
        level = _LEVELS.get(event.type, logging.DEBUG)
        if self._wants(level):
            missed = self._missed(event) if event.type in _REPEATED else 0
            if missed is not None:
                self._write(level, event, missed)

    def _missed(self, event: Event) -> int | None:
        """How many of the same were left out before this one; None: leave out this one, too."""
        # Not by digest: an attacker has as many keys as it likes.
        same = (event.type.value, event.scope, event.operation, event.detail)
        now = self._environment.monotonic()
        with self._guard:
            found = self._repeats.get(same)
            if found is not None and now < found.until:
                found.missed += 1
                return None
            self._repeats[same] = _Repeats(now + self._every)
            self._repeats.move_to_end(same)
            if len(self._repeats) > REPEATS_MAX:
                self._repeats.popitem(last=False)
            return 0 if found is None else found.missed

    @abstractmethod
    def _wants(self, level: int) -> bool:
        """Whether anything of that level is logged at all."""

    @abstractmethod
    def _write(self, level: int, event: Event, missed: int) -> None:
        """Write one line; `missed` others like it were left out before."""


class LoggingListener(LogListenerBase):
    """Logs events with the standard library, to `onceward.events` unless another logger is given."""

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        every: float = EVERY_SECONDS,
        environment: Environment = REAL,
    ) -> None:
        super().__init__(every=every, environment=environment)
        self._logger = logging.getLogger("onceward.events") if logger is None else logger

    def _wants(self, level: int) -> bool:
        return self._logger.isEnabledFor(level)

    def _write(self, level: int, event: Event, missed: int) -> None:
        extra = {"onceward": facts_of(event, missed)}
        tail = f" ({missed} more like this one were not logged)" if missed else ""
        self._logger.log(level, "%s%s", _one_line(str(event)), tail, extra=extra)


class StructlogListener(LogListenerBase):
    """Logs events with structlog: `StructlogListener(structlog.get_logger("onceward"))`."""

    def __init__(self, logger: Any, *, every: float = EVERY_SECONDS, environment: Environment = REAL) -> None:
        super().__init__(every=every, environment=environment)
        self._logger = logger

    def _wants(self, level: int) -> bool:
        asked = getattr(self._logger, "is_enabled_for", None)
        return True if asked is None else bool(asked(level))

    def _write(self, level: int, event: Event, missed: int) -> None:
        facts = facts_of(event, missed)
        self._logger.log(level, f"onceward.{facts.pop('type')}", **facts)


def facts_of(event: Event, missed: int = 0) -> dict[str, Any]:
    """An event as names and values, without what it has not."""
    facts = {**event._asdict(), "type": event.type.value, "missed": missed}
    return {name: value for name, value in facts.items() if value not in ("", None, 0)}


def _one_line(text: str) -> str:
    """Without characters that could end a line of the log: names come from callers."""
    return "".join(one if one.isprintable() else " " for one in text)
