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
from collections.abc import Hashable
from types import TracebackType

from onceward._core.errors import InFlight
from onceward.runtime.environment import REAL, Environment

AGAIN_SECONDS = 1.0
"""What a caller who is not to wait here is told to wait instead."""


class RunningKeys:
    """The keys of requests that have begun and not ended. Whether a second one is the same request, the file says."""

    def __init__(self, wait_seconds: float, environment: Environment = REAL) -> None:
        self._wait_seconds = wait_seconds
        self._environment = environment
        self._running: dict[Hashable, RunningKey] = {}

    def hold(self, key: Hashable | None) -> KeyHold:
        """
        Hold a key for the length of a block; None is no key. `InFlight`, if somebody else holds it for too long.

        Whoever waited for a request that ended well goes on beside the others who did: all of them only replay.
        """
        return KeyHold(self, key)

    def is_held(self, key: Hashable) -> bool:
        """Whether somebody holds it; for `KeyHold`."""
        return key in self._running

    def begin(self, key: Hashable) -> RunningKey:
        """Hold a key that nobody holds; for `KeyHold`."""
        held = self._running[key] = RunningKey(key)
        return held

    def end(self, held: RunningKey, *, well: bool) -> None:
        """Nobody holds it any more; for `KeyHold`."""
        held.well = well
        del self._running[held.key]
        if held.ended is not None:
            held.ended.set()

    async def ended_well(self, key: Hashable) -> bool:
        """Wait until nobody holds the key; whether the last one who did ended well."""
        until = self._environment.monotonic() + self._wait_seconds
        while (first := self._running.get(key)) is not None:
            left = until - self._environment.monotonic()
            if self._wait_seconds <= 0 or left <= 0:
                raise InFlight(retry_after_seconds=AGAIN_SECONDS)
            if first.ended is None:
                first.ended = asyncio.Event()
            await self._environment.await_event(first.ended, left)
            if first.well:
                return True
        return False


class RunningKey:
    """A request under way."""

    __slots__ = ("ended", "key", "well")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.ended: asyncio.Event | None = None
        """Made by the first who waits for it: most of the time nobody does."""
        self.well = False


class KeyHold:
    """A key that is held for the length of an `async with` block."""

    __slots__ = ("_held", "_key", "_keys")

    def __init__(self, keys: RunningKeys, key: Hashable | None) -> None:
        self._keys = keys
        self._key = key
        self._held: RunningKey | None = None

    async def __aenter__(self) -> None:
        key, keys = self._key, self._keys
        if key is not None and not (keys.is_held(key) and await keys.ended_well(key)):
            self._held = keys.begin(key)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._keys.end(self._held, well=kind is None)
