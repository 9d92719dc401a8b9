"""
`EVENT_STREAM`: one stream of events for the whole process.

Whoever listens here is told of every gate, policy, breaker, budget, dead letter, relay and inbox of the process, even
of those that are made later, or deep inside a library. `Gate(listeners=...)` is for one gate.

While nobody listens, no event is made: everybody who tells looks at `listeners` first, and that is all that is paid.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeAlias

from onceward._core.events import Event, EventType, Listener

_log = logging.getLogger("onceward")

Surrounding: TypeAlias = Callable[[str, str, int], Callable[[], None] | None]
"""
Called with scope, digest and fence just before an operation's function runs, in its context, so that a trace can go on
inside. What it returns is called when the function has ended, if it is still the same context. Neither may wait.
"""


class ProcessEventStream:
    """Listeners, and a way to tell them. Safe for threads."""

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        """Who listens now. Look here before making an event."""
        self.surroundings: tuple[Surrounding, ...] = ()
        """Who wants to be around functions, besides being told."""
        self._changing = threading.Lock()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every event from now on; returns the function that stops it."""
        with self._changing:
            self.listeners = (*self.listeners, listener)

        def stop() -> None:
            with self._changing:
                # By identity: a listener may compare equal to another, and each stops only its own.
                self.listeners = tuple(one for one in self.listeners if one is not listener)

        return stop

    def surround(self, surrounding: Surrounding) -> Callable[[], None]:
        """Call `surrounding` around every function that a gate runs; returns the function that stops it."""
        with self._changing:
            self.surroundings = (*self.surroundings, surrounding)

        def stop() -> None:
            with self._changing:
                self.surroundings = tuple(one for one in self.surroundings if one is not surrounding)

        return stop

    def enter(self, scope: str, digest: str, fence: int) -> Callable[[], None]:
        """A function is about to run: what is to be called when it has ended. Never raises, and neither does that."""
        leaving: list[Callable[[], None]] = []
        for surrounding in self.surroundings:
            try:
                leave = surrounding(scope, digest, fence)
            except Exception:
                _log.exception("onceward: a hook around operations raised; the operation is not affected")
            else:
                if leave is not None:
                    leaving.append(leave)

        def left() -> None:
            for leave in reversed(leaving):
                try:
                    leave()
                except Exception:
                    _log.exception("onceward: a hook around operations raised; the operation is not affected")

        return left

    def note(
        self,
        happening: EventType,
        operation: str,
        detail: str = "",
        *,
        digest: str = "",
        scope: str = "",
        attempt: int = 0,
        amount: float | None = None,
    ) -> None:
        """Make an event of something that has no record, and tell it. Nothing is made if nobody listens."""
        if self.listeners:
            self.tell(Event(happening, digest, scope, operation, attempt, 0, detail, amount))

    def tell(self, event: Event) -> None:
        """Hand an event to every listener."""
        hand_to(self.listeners, event)


def hand_to(listeners: tuple[Listener, ...], event: Event) -> None:
    """Hand an event to listeners. One that raises is logged: it must not change what happens."""
    for listener in listeners:
        try:
            listener(event)
        except Exception:
            _log.exception("onceward: a listener raised on %s; the operation is not affected", event.type)


EVENT_STREAM = ProcessEventStream()
"""The stream of this process."""
