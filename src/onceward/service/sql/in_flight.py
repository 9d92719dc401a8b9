"""
Keys of SQL requests that run right now, or wait for their turn: what a second request with the same key is told.

The engine would be right without this: it runs one request after the other in the database's own file, and the second
one replays. But it would leave the second one in the queue for as long as the first one takes, and a service may have
promised something else. A note in this process is enough for files, because one process serves a folder. On PostgreSQL
several do, and what runs elsewhere is told by the database (`PostgresEngine`, `in_flight_seconds`). Where a note is
wrong (a first request whose client has gone), the database still decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from onceward._core.errors import InFlight
from onceward.runtime.environment import REAL, Environment

AGAIN_SECONDS = 1.0
"""What a caller who is not to wait here is told to wait instead."""


class RunningKeys:
    """The keys of requests that have begun and not ended. Whether a second one is the same request, the file says."""

    def __init__(self, wait_seconds: float, environment: Environment = REAL) -> None:
        self._wait_seconds = wait_seconds
        self._environment = environment
        self._running: dict[Hashable, _Running] = {}

    @asynccontextmanager
    async def hold(self, key: Hashable | None) -> AsyncIterator[None]:
        """
        Hold a key for the length of a block; None is no key. `InFlight`, if somebody else holds it for too long.

        Whoever waited for a request that ended well goes on beside the others who did: all of them only replay.
        """
        if key is None or (key in self._running and await self._ended_well(key)):
            yield
            return
        held = self._running[key] = _Running()
        try:
            yield
            held.well = True
        finally:
            del self._running[key]
            held.ended.set()

    async def _ended_well(self, key: Hashable) -> bool:
        """Wait until nobody holds the key; whether the last one who did ended well."""
        until = self._environment.monotonic() + self._wait_seconds
        while (first := self._running.get(key)) is not None:
            left = until - self._environment.monotonic()
            if self._wait_seconds <= 0 or left <= 0:
                raise InFlight(retry_after_seconds=AGAIN_SECONDS)
            await self._environment.await_event(first.ended, left)
            if first.well:
                return True
        return False


class _Running:
    """A request under way."""

    __slots__ = ("ended", "well")

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.well = False
