"""
Looks at records on an event loop: what is asked for in one round of the loop is read together, one query at a time.

It is for ids that were seen settled lately, and it only saves time: a look that fails, for whatever reason, is answered
with None, and the claim that follows finds out what is wrong, with its own retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from onceward._core.record import PeekResult

TOGETHER_MAX = 256
"""Looks in one query: as many as there are writes in a batch."""


class EventLoopLooks:
    """The looks of one event loop."""

    def __init__(self, read: Callable[[list[bytes]], Awaitable[Mapping[bytes, PeekResult]]]) -> None:
        self._read = read
        self._waiting: list[tuple[bytes, asyncio.Future[PeekResult | None]]] = []
        self._task: asyncio.Task[None] | None = None

    def look(self, id: bytes) -> asyncio.Future[PeekResult | None]:
        """Look at a record. It is under way when this returns."""
        loop = asyncio.get_running_loop()
        # One for each caller: whoever is cancelled cancels the future that it waits for.
        future: asyncio.Future[PeekResult | None] = loop.create_future()
        self._waiting.append((id, future))
        if self._task is None:
            self._task = loop.create_task(self._lead())
        return future

    async def finish(self) -> None:
        """Wait for what is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _lead(self) -> None:
        """Read until nobody waits."""
        try:
            while self._waiting:
                asked, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
                found: Mapping[bytes, PeekResult] = {}
                try:
                    found = await self._read([id for id, _ in asked])
                except Exception:  # noqa: S110 - the claim that follows says what is wrong
                    pass
                finally:
                    for id, future in asked:
                        if not future.done():
                            future.set_result(found.get(id))
        finally:
            self._task = None
            for _, future in self._waiting:  # Only the end of the loop cancels this task.
                future.cancel()
