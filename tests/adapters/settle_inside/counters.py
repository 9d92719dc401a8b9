"""
Callers whose functions settle inside their own transactions: every library, driver and colour, behind one handle.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
from desks import CREATED, MATRIX, Caller, Desk, Kind, in_play, straight
from django_desk import DjangoDesk

from onceward import Operation, Outcome
from onceward._core import record
from servers.postgres import running

OPTIONS: dict[str, Any] = {"guarantee": "atomic", "settle": "inside"}
BARE = [
    Kind("sqlite3", "sqlite"),
    Kind("Async-sqlite3", "sqlite"),
    Kind("psycopg", "postgresql"),
    Kind("Async-psycopg", "postgresql"),
]
"""The drivers themselves. SQLite's has one colour; under an awaiting gate it is used as it is."""

EVERY = in_play([*BARE, *MATRIX])
SOME = in_play(
    [
        *BARE,
        Kind("Session", "sqlite+pysqlite"),
        Kind("Session", "postgresql+psycopg"),
        Kind("AsyncSession", "sqlite+aiosqlite"),
        Kind("AsyncConnection", "postgresql+asyncpg"),
        Kind("django", "sqlite"),
        Kind("django", "postgresql"),
    ]
)
"""Each library, database and colour once."""
Work = Callable[[Caller, Operation], Awaitable[Any]]


class BareDesk(Desk):
    """A gate and a driver on one database."""

    def _set_up(self) -> None:
        self.violation = sqlite3.IntegrityError if self.kind.database == "sqlite" else psycopg.IntegrityError

    async def close(self) -> None:
        closing = self.gate.close()
        if self.kind.awaits:
            await closing

    @asynccontextmanager
    async def caller(self) -> AsyncIterator[BareCaller]:
        if self.kind.database == "sqlite":
            connection: Any = sqlite3.connect(self.place.path)
        elif self.kind.awaits:
            connection = await psycopg.AsyncConnection.connect(running().url("onceward"))
        else:
            connection = psycopg.connect(running().url("onceward"))
        caller = BareCaller(self, connection)
        try:
            yield caller
        finally:
            await caller.done(connection.close())


class BareCaller(Caller):
    """Somebody with a driver's own connection."""

    async def done(self, answer: Any) -> Any:
        """The answer, awaited if this driver awaits."""
        return await answer if isinstance(answer, Coroutine) else answer

    async def execute(self, sql: str) -> Any:
        cursor = await self.done(self.target.execute(sql))
        return await self.done(cursor.fetchall()) if cursor.description else None

    @asynccontextmanager
    async def transaction(self, nested: bool = False) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await self.done(self.target.rollback())
            raise
        await self.done(self.target.commit())


def play(kind: Kind, folder: Path, scenario: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario at a desk of this kind."""
    made: type[Desk] = BareDesk if kind in BARE else DjangoDesk if kind.target == "django" else Desk

    async def whole() -> None:
        desk = made(kind, folder)
        try:
            await scenario(desk)
        finally:
            await desk.close()

    if kind.awaits:
        asyncio.run(whole())
    else:
        straight(whole())


async def call(desk: Desk, key: str, work: Work, **options: Any) -> Outcome[Any]:
    """Run an operation whose function has a connection of its own."""

    async def function(operation: Operation) -> Any:
        async with desk.caller() as caller:
            return await work(caller, operation)

    fn: Any = function if desk.kind.awaits else lambda operation: straight(function(operation))
    answer = desk.gate.call(key, fn, **{**OPTIONS, **options})
    outcome: Outcome[Any] = await answer if desk.kind.awaits else answer
    return outcome


async def settle(caller: Caller, operation: Operation, value: Any = CREATED) -> None:
    """Settle, in the colour of the connection."""
    if caller.desk.kind.awaits:
        await operation.settle_inside_async(caller.target, value)
    else:
        operation.settle_inside(caller.target, value)


async def charge(caller: Caller, operation: Operation) -> Any:
    """What most of the operations here do: a row and the answer, in one transaction."""
    async with caller.transaction():
        await caller.charge()
        await settle(caller, operation)
    return "not the answer"


def let_lapse(desk: Desk) -> None:
    """As if the lease of whoever holds something had run out."""
    desk.place.ask("UPDATE onceward_records SET lease_until = 1 WHERE state = 'claimed'")


async def renew(desk: Desk, operation: Operation) -> None:
    """A renewal of which the operation has not heard yet."""
    held = operation.record
    write = record.renew(held, version=os.urandom(16), lease=60_000_000)
    answer = desk.gate.store.put(write, held.version)
    standing = await answer if desk.kind.awaits else answer

    assert standing.landed


async def by_another(desk: Desk, key: str) -> Outcome[Any]:
    """Another caller takes over and settles: in a thread of its own, if this one would be in the way."""
    if desk.kind.awaits:
        return await call(desk, key, charge)
    answers: list[Outcome[Any]] = []
    thread = threading.Thread(target=lambda: answers.append(straight(call(desk, key, charge))))
    thread.start()
    thread.join()
    return answers[0]
