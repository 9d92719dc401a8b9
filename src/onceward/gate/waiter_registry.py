"""
Waiting for another holder, and being woken as soon as it is done.

A gate calls `notify` whenever one of its own runs ends, so waiters in the same process wake at once. For holders in
other processes, a waiter looks again after a pause, whose length the flow chooses. The number of waiters is limited.

There is no lock here. If a coroutine is thrown away while it waits, the garbage collector removes its waiter, perhaps
while another is being added or removed. So adding and removing are a single dictionary operation each.
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

SHARDS = 64
"""The number of dictionaries that waiters are spread over, by id: `notify` searches only one of them."""


class _WaiterTable(Generic[W]):
    """Who waits for what."""

    def __init__(self) -> None:
        self._shards: list[dict[object, tuple[bytes, W]]] = [{} for _ in range(SHARDS)]

    def has(self, id: bytes) -> bool:
        """Whether anybody waits for that id, or for another id of its shard."""
        return bool(self._shards[id[0] % SHARDS])

    def add(self, id: bytes, waiter: W) -> object:
        """Add a waiter; the ticket to remove it with. `InFlight` if too many wait already."""
        if sum(map(len, self._shards)) >= WAITERS_MAX:
            raise InFlight(
                f"{WAITERS_MAX} callers in this process are already waiting for other holders; retry with the same key",
                retry_after_seconds=1.0,
            )
        ticket = object()
        self._shard(id)[ticket] = (id, waiter)
        return ticket

    def remove(self, id: bytes, ticket: object) -> None:
        """Remove a waiter."""
        self._shard(id).pop(ticket, None)

    def waiting(self, id: bytes) -> list[W]:
        """Who waits for that id."""
        shard = self._shard(id)
        while shard:
            try:
                return [waiter for waited_for, waiter in list(shard.values()) if waited_for == id]
            except RuntimeError:  # Somebody came or went in the middle of it.
                continue
        return []

    def _shard(self, id: bytes) -> dict[object, tuple[bytes, W]]:
        return self._shards[id[0] % SHARDS]


class WaiterRegistry:
    """Who waits for which record: threads."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._table: _WaiterTable[threading.Event] = _WaiterTable()

    def pause(self, id: bytes, seconds: float) -> None:
        """Wait until `notify` is called for that id, or for so many seconds."""
        event = threading.Event()
        ticket = self._table.add(id, event)
        try:
            self._environment.wait(event, seconds)
        finally:
            self._table.remove(id, ticket)

    def notify(self, id: bytes) -> None:
        """Wake whoever waits for that id. Costs one look when nobody waits."""
        if self._table._shards[id[0] % SHARDS]:
            for event in self._table.waiting(id):
                event.set()


class AsyncWaiterRegistry:
    """Who waits for which record: tasks of one or several event loops."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._table: _WaiterTable[_Waiter] = _WaiterTable()

    def has_waiters(self, id: bytes) -> bool:
        """Whether anybody may wait for that id."""
        return self._table.has(id)

    async def pause(self, id: bytes, seconds: float) -> None:
        """Wait until `notify` is called for that id, or for so many seconds."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        ticket = self._table.add(id, waiter)
        try:
            await self._environment.await_event(waiter[1], seconds)
        finally:
            self._table.remove(id, ticket)

    def notify(self, id: bytes) -> None:
        """Wake whoever waits for that id."""
        for loop, event in self._table.waiting(id):
            with suppress(RuntimeError):  # The loop was closed: nobody is left to hear it.
                loop.call_soon_threadsafe(event.set)
