"""Batches by hand, for the raw limits of crowds: whatever was asked for meanwhile travels together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from bench.adapters.raw import identity
from bench.work import Request, Result, Work

FLIGHTS = 2
"""Batches under way at a time: the next one travels while the server syncs the disk for the one before."""


class Asked(NamedTuple):
    """A claim (`result` is None) or a settle, and who waits for it."""

    id: bytes
    result: str | None
    answered: asyncio.Future[str | None]


class Batches:
    """Collects what tasks ask for, and hands it over in lists; an answer is a stored result, or None."""

    def __init__(self, send: Callable[[int, list[Asked]], Awaitable[list[str | None]]]) -> None:
        self._send = send
        self._waiting: list[Asked] = []
        self._idle = list(range(FLIGHTS))
        self._flights: set[asyncio.Task[None]] = set()

    def ask(self, id: bytes, result: str | None = None) -> asyncio.Future[str | None]:
        """Claim, or settle with a result."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[str | None] = loop.create_future()
        self._waiting.append(Asked(id, result, answered))
        if self._idle:
            flight = loop.create_task(self._fly(self._idle.pop()))
            self._flights.add(flight)
            flight.add_done_callback(self._flights.discard)
        return answered

    async def _fly(self, number: int) -> None:
        """One batch after the other, until nothing waits. `number` says which connection is ours."""
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                found: list[Any] = await self._send(number, batch)
            except Exception as error:
                found = [error] * len(batch)
            for asked, one in zip(batch, found, strict=True):
                if isinstance(one, Exception):
                    asked.answered.set_exception(one)
                else:
                    asked.answered.set_result(one)
        self._idle.append(number)


class BatchedTasks:
    """The tasks of a raw adapter, in batches: whoever has this says how a batch is sent."""

    _work: Work

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._batches = Batches(self._send)

    async def afresh(self, key: str, request: Request) -> Result:
        """Claim, run, settle; or find."""
        stored = identity(key, request)
        found = await self.claim(stored)
        if found is not None:
            return read_stored(found)
        result = self._work.effect()
        await self.settle(stored, json.dumps(result))
        return result

    areplay = afresh

    async def claim(self, id: bytes) -> str | None:
        """None: the key is ours. Otherwise what is stored under it."""
        return await self._batches.ask(id)

    async def settle(self, id: bytes, result: str) -> None:
        """Keep it."""
        await self._batches.ask(id, result)

    async def _send(self, number: int, batch: list[Asked]) -> list[str | None]:
        raise NotImplementedError


def read_stored(stored: bytes | str | None) -> Result:
    """The result that a key has; a key without one is taken, and nobody waits for it."""
    if not stored:
        raise RuntimeError("the key is taken")
    result: Result = json.loads(stored)
    return result
