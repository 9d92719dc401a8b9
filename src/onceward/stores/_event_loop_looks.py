"""
Looks at records on an event loop: what is asked for in one round of the loop is read together, at its end.

It only saves time: a look that fails, for whatever reason, is answered with None, and the claim that follows finds out
what is wrong, with its own retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from onceward._core.record import PeekResult

TOGETHER_MAX = 256
"""Looks in one query: as many as there are writes in a batch."""

ALONE = 32
"""Callers that look by themselves after a round in which only one looked: a round of the loop costs more than that."""

Looks = list[tuple[bytes, asyncio.Future[PeekResult | None]]]


class EventLoopLooks:
    """The looks of one event loop, at a store whose reads take microseconds."""

    def __init__(self, read: Callable[[list[bytes]], Mapping[bytes, PeekResult]]) -> None:
        self._read: Callable[[list[bytes]], Any] = read
        self._waiting: Looks = []
        self._alone = 0

    def has_company(self) -> bool:
        """Whether it is worth waiting for the end of the round: others have looked in the one before, or may have."""
        alone = self._alone
        if alone:
            self._alone = alone - 1
        return not alone

    def look(self, id: bytes, loop: asyncio.AbstractEventLoop) -> asyncio.Future[PeekResult | None]:
        """Look at a record, from a task of this loop. It is under way when this returns."""
        # One for each caller: whoever is cancelled cancels the future that it waits for.
        future: asyncio.Future[PeekResult | None] = loop.create_future()
        if not self._waiting:
            self._begin(loop)
        self._waiting.append((id, future))
        return future

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(self._read_all)

    def _read_all(self) -> None:
        while self._waiting:
            asked, found = self._taken(), dict[bytes, PeekResult]()
            self._alone = ALONE if len(asked) == 1 else 0
            try:
                found.update(self._read([id for id, _ in asked]))
            finally:
                _answer(asked, found)

    def _taken(self) -> Looks:
        asked, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
        return asked


class AwaitedLooks(EventLoopLooks):
    """The same at a store whose reads are awaited: so many at a time, and what comes meanwhile is in the next."""

    def __init__(
        self, read: Callable[[list[bytes]], Awaitable[Mapping[bytes, PeekResult]]], *, in_flight: int = 1
    ) -> None:
        super().__init__(read)  # type: ignore[arg-type] # Awaited by `_lead`, and nowhere else.
        self._in_flight = in_flight
        self._tasks: set[asyncio.Task[None]] = set()

    async def finish(self) -> None:
        """Wait for what is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if len(self._tasks) < self._in_flight:
            self._tasks.add(loop.create_task(self._lead()))

    async def _lead(self) -> None:
        try:
            while self._waiting:
                asked, found = self._taken(), dict[bytes, PeekResult]()
                try:
                    found.update(await self._read([id for id, _ in asked]))
                except Exception:  # noqa: S110 - the claim that follows says what is wrong
                    pass
                finally:
                    _answer(asked, found)
        finally:
            # At once, and not when the loop tells of its end: whoever looks next begins another.
            self._tasks.discard(asyncio.current_task())
            _answer(self._waiting, {})  # Only the end of the loop cancels this task.


def _answer(asked: Looks, found: Mapping[bytes, PeekResult]) -> None:
    for id, future in asked:
        if not future.done():
            future.set_result(found.get(id))
