"""
Connections of one endpoint that are kept for its next message.

Nothing of the guard is lost: a kept connection leads to the address that was checked when it was made, under the
certificate that was checked then, whatever its name means by now. So that a name that moves is followed, a connection
is closed at a certain age. One that has something to read while nobody asked is not used: it was hung up, or somebody
speaks out of turn, and what is read next would not be the response to what was sent.

They are kept only while a relay holds the endpoint: whoever makes an endpoint and calls it once has nothing to close.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from onceward.messaging.outbox.delivery.deadline_socket import DeadlineSocket
from onceward.runtime.environment import Environment

AGE_SECONDS_MAX = 60.0
"""From then on the name is looked up and checked again."""
IDLE_SECONDS_MAX = 15.0
"""Many receivers hang up soon after that."""


class _Kept(NamedTuple):
    line: DeadlineSocket
    until: float
    process: bytes


class KeptConnections:
    """Of one endpoint, for any number of threads."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._guard = threading.Lock()
        self._idle: list[_Kept] = []
        self._holders: list[int] = []

    @property
    def keeps(self) -> bool:
        """Whether a connection is worth keeping open."""
        return bool(self._holders)

    def hold(self, many: int) -> None:
        """Keep up to so many idle connections, until `release`."""
        with self._guard:
            self._holders.append(many)

    def release(self, many: int) -> None:
        """Undo one `hold`; after the last one nothing stays open."""
        with self._guard:
            self._holders.remove(many)
            surplus = self._idle[sum(self._holders) :]
            del self._idle[sum(self._holders) :]
        for one in surplus:
            one.line.close()

    def take(self) -> DeadlineSocket | None:
        """The connection that was used last, if it can be used again; those that cannot are closed."""
        while True:
            with self._guard:
                if not self._idle:
                    return None
                kept = self._idle.pop()
            # After a fork the parent has it, too: two who read from one connection get each other's responses.
            is_ours = kept.process == self._environment.process()
            if is_ours and self._environment.monotonic() < kept.until and kept.line.is_silent():
                return kept.line
            kept.line.close()

    def give_back(self, line: DeadlineSocket) -> None:
        """Keep a connection whose response was read to its end; or close it."""
        now = self._environment.monotonic()
        until = min(now + IDLE_SECONDS_MAX, line.opened_at + AGE_SECONDS_MAX)
        with self._guard:
            if now < until and len(self._idle) < sum(self._holders):
                self._idle.append(_Kept(line, until, self._environment.process()))
                return
        line.close()
