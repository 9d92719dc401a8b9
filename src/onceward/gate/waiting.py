"""
Waiting for another holder, and being woken as soon as it is done.

A gate rings its bell whenever one of its own runs ends, so that waiters in the same process hear at once. Holders in
other processes are found by looking again: the pause is bounded by the flow. Waiters are counted, and limited.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TypeVar

from onceward._core.errors import InFlight
from onceward._core.terms import WAITERS_MAX
from onceward.environment import Environment

W = TypeVar("W")
_Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class Bell:
    """For threads."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._waiters: dict[bytes, list[threading.Event]] = {}
        self._count = 0

    def pause(self, id: bytes, seconds: float) -> None:
        """Wait until the bell rings for that id, or for so many seconds."""
        event = threading.Event()
        with self._lock:
            _check_room(self._count)
            self._count += 1
            self._waiters.setdefault(id, []).append(event)
        try:
            self._environment.wait(event, seconds)
        finally:
            with self._lock:
                self._count -= 1
                _leave(self._waiters, id, event)

    def ring(self, id: bytes) -> None:
        """Wake whoever waits for that id. Costs one look when nobody waits."""
        if not self._waiters:
            return
        with self._lock:
            for event in self._waiters.get(id, ()):
                event.set()


class AsyncBell:
    """Same as `Bell`, for tasks of one or several event loops."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._waiters: dict[bytes, list[_Waiter]] = {}
        self._count = 0

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits for anything."""
        return bool(self._waiters)

    async def pause(self, id: bytes, seconds: float) -> None:
        """Same as `Bell.pause`, but awaits."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            _check_room(self._count)
            self._count += 1
            self._waiters.setdefault(id, []).append(waiter)
        try:
            await self._environment.await_event(waiter[1], seconds)
        finally:
            with self._lock:
                self._count -= 1
                _leave(self._waiters, id, waiter)

    def ring(self, id: bytes) -> None:
        """Same as `Bell.ring`."""
        if not self._waiters:
            return
        with self._lock:
            waiters = list(self._waiters.get(id, ()))
        for loop, event in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)


def _check_room(count: int) -> None:
    if count >= WAITERS_MAX:
        raise InFlight(
            f"{WAITERS_MAX} callers of this process already wait for other holders; ask again with the same key",
            retry_after_seconds=1.0,
        )


def _leave(waiters: dict[bytes, list[W]], id: bytes, waiter: W) -> None:
    waiting = waiters[id]
    waiting.remove(waiter)
    if not waiting:
        del waiters[id]
