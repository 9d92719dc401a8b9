"""
Waiting for another holder, and being woken as soon as it is done.

A gate rings its bell whenever one of its own runs ends, so that waiters in the same process hear at once. Holders in
other processes are found by looking again: the pause is bounded by the flow. Waiters are counted, and limited.

There is no lock here. A coroutine that is thrown away while it waits leaves from wherever garbage happens to be
collected, perhaps in the middle of another's coming or going; so whoever comes or goes does it in one step of a
dictionary.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Generic, TypeVar

from onceward._core.errors import InFlight
from onceward._core.terms import WAITERS_MAX
from onceward.runtime.environment import Environment

W = TypeVar("W")
_Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]

ROOMS = 64
"""Who waits is kept in so many dictionaries, by the id: a ring looks through one of them."""


class _Rooms(Generic[W]):
    """Who waits for what."""

    def __init__(self) -> None:
        self._rooms: list[dict[object, tuple[bytes, W]]] = [{} for _ in range(ROOMS)]

    def holds(self, id: bytes) -> bool:
        """Whether anybody waits for that id, or for one that is kept with it."""
        return bool(self._room(id))

    def enter(self, id: bytes, waiter: W) -> object:
        """Wait for that id; the ticket to leave with. `InFlight` if too many wait already."""
        if sum(map(len, self._rooms)) >= WAITERS_MAX:
            raise InFlight(
                f"{WAITERS_MAX} callers of this process already wait for other holders; ask again with the same key",
                retry_after_seconds=1.0,
            )
        ticket = object()
        self._room(id)[ticket] = (id, waiter)
        return ticket

    def leave(self, id: bytes, ticket: object) -> None:
        """Wait no more."""
        self._room(id).pop(ticket, None)

    def waiting(self, id: bytes) -> list[W]:
        """Who waits for that id."""
        room = self._room(id)
        while room:
            try:
                return [waiter for wanted, waiter in list(room.values()) if wanted == id]
            except RuntimeError:  # Somebody came or went in the middle of it.
                continue
        return []

    def _room(self, id: bytes) -> dict[object, tuple[bytes, W]]:
        return self._rooms[id[0] % ROOMS]


class WaiterRegistry:
    """Who waits for which record: threads."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._rooms: _Rooms[threading.Event] = _Rooms()

    def pause(self, id: bytes, seconds: float) -> None:
        """Wait until `notify` is called for that id, or for so many seconds."""
        event = threading.Event()
        ticket = self._rooms.enter(id, event)
        try:
            self._environment.wait(event, seconds)
        finally:
            self._rooms.leave(id, ticket)

    def notify(self, id: bytes) -> None:
        """Wake whoever waits for that id. Costs one look when nobody waits."""
        for event in self._rooms.waiting(id):
            event.set()


class AsyncWaiterRegistry:
    """Who waits for which record: tasks of one or several event loops."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._rooms: _Rooms[_Waiter] = _Rooms()

    def has_waiters(self, id: bytes) -> bool:
        """Whether anybody may wait for that id."""
        return self._rooms.holds(id)

    async def pause(self, id: bytes, seconds: float) -> None:
        """Wait until `notify` is called for that id, or for so many seconds."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        ticket = self._rooms.enter(id, waiter)
        try:
            await self._environment.await_event(waiter[1], seconds)
        finally:
            self._rooms.leave(id, ticket)

    def notify(self, id: bytes) -> None:
        """Wake whoever waits for that id."""
        for loop, event in self._rooms.waiting(id):
            with suppress(RuntimeError):  # The loop was closed: nobody is left to hear it.
                loop.call_soon_threadsafe(event.set)
