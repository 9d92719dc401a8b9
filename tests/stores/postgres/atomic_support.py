"""
Atomic mode in both colours from one text.

A test is an `async def` that is handed a `Bank`. Under a blocking gate nothing in it ever suspends, so that it can be
driven by hand; under an awaiting gate it runs in an event loop.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any

import psycopg

from onceward import AsyncGate, Gate

COLOURS = ("blocking", "awaiting")


def finish(made: Coroutine[Any, Any, Any]) -> Any:
    """The value of a coroutine that never suspends."""
    try:
        made.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("under a blocking gate something was awaited")


def told(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test whose text is a coroutine over a `bank`."""

    @functools.wraps(scenario)
    def test(bank: Bank, **fixtures: Any) -> None:
        async def whole() -> None:
            try:
                await scenario(bank, **fixtures)
            finally:
                await bank.close()

        asyncio.run(whole()) if bank.awaits else finish(whole())

    return test


class Bank:
    """A gate of either colour, and callers with connections of their own."""

    def __init__(self, url: str, colour: str, **options: Any) -> None:
        self.url = url
        self.awaits = colour == "awaiting"
        store = f"{url}?onceward_lock_timeout=0.5"
        made: Any = AsyncGate if self.awaits else Gate
        self.gate: Any = made(store, scope="test:atomic", **options)
        self._callers: list[Caller] = []

    async def caller(self, url: str = "", **options: Any) -> Caller:
        """Somebody with a connection."""
        if self.awaits:
            connection: Any = await psycopg.AsyncConnection.connect(url or self.url, **options)
        else:
            connection = psycopg.connect(url or self.url, **options)
        self._callers.append(Caller(self, connection))
        return self._callers[-1]

    async def record(self, key: str) -> Any:
        """What is recorded of a key."""
        return await self.value(self.gate.records.get(key))

    async def value(self, made: Any) -> Any:
        """What a method of either colour gave back."""
        return await made if self.awaits else made

    async def together(self, *work: Callable[[], Coroutine[Any, Any, Any]]) -> list[Any]:
        """All at once; values and errors, in order."""
        if self.awaits:
            return await asyncio.gather(*(one() for one in work), return_exceptions=True)
        answers: list[Any] = [None] * len(work)

        def run(number: int) -> None:
            try:
                answers[number] = finish(work[number]())
            except Exception as error:
                answers[number] = error

        threads = [threading.Thread(target=run, args=(number,)) for number in range(len(work))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    async def close(self) -> None:
        """Let go of everything."""
        for caller in self._callers:
            await self.value(caller.connection.close())
        await self.value(self.gate.close())


class Caller:
    """A connection of either colour."""

    def __init__(self, bank: Bank, connection: Any) -> None:
        self.bank = bank
        self.connection = connection

    async def execute(self, sql: str, *parameters: Any) -> list[Any]:
        """Run a statement; its rows."""
        cursor = await self.bank.value(self.connection.execute(sql, parameters or None))
        rows: list[Any] = await self.bank.value(cursor.fetchall()) if cursor.description else []
        return rows

    async def book(self, name: str = "one") -> str:
        """The effect: a row."""
        await self.execute("INSERT INTO effects VALUES (%s)", name)
        return name

    async def commit(self) -> None:
        await self.bank.value(self.connection.commit())

    async def rollback(self) -> None:
        await self.bank.value(self.connection.rollback())

    async def atomic(self, key: str, body: Callable[[], Awaitable[Any]] | None = None, **options: Any) -> Any:
        """gate.atomic with this function; it books a row unless said otherwise."""
        work: Any = body or self.book
        function = work if self.bank.awaits else lambda: finish(work())
        return await self.bank.value(self.bank.gate.atomic(self.connection, key, function, **options))

    @asynccontextmanager
    async def block(self, key: str, **options: Any) -> AsyncIterator[Any]:
        """gate.atomic as a block."""
        async with entered(self.bank.gate.atomic(self.connection, key, **options)) as operation:
            yield operation

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """The caller's own transaction."""
        async with entered(self.connection.transaction()):
            yield


@asynccontextmanager
async def entered(block: AbstractContextManager[Any] | AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
    """Inside a block of either colour."""
    if isinstance(block, AbstractAsyncContextManager):
        async with block as inside:
            yield inside
    else:
        with block as inside:
            yield inside
