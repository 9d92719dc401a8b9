"""
Clients of the kill drill: each does one atomic operation in a process of its own, which may be killed at any step.

To add a library: a class with `database`, `connect` and `operate`, and a line in `CLIENTS`. `hit(label)` is a step, to
be called between any two statements; the failpoints of the flow are steps anyway.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, Protocol

import psycopg

from adapters.atomic.drill_libraries import LIBRARY_CLIENTS
from onceward import AsyncGate, Gate

SCOPE = "test:drill"
Hit = Callable[[str], None]


class Client(Protocol):
    """One atomic operation: a row in `effects`, and its record."""

    database: str
    """Where it runs: "postgres" or "sqlite"."""

    def connect(self, url: str, hit: Hit) -> None:
        """Open gate and connection; nothing of this is killed."""

    def operate(self, key: str) -> None:
        """Insert the row once, in the same transaction as the record."""


class Psycopg:
    """`psycopg.Connection` under a `Gate`."""

    database = "postgres"

    def __init__(self, **options: Any) -> None:
        self._options = options

    def connect(self, url: str, hit: Hit) -> None:
        self._gate = Gate(url, scope=SCOPE)
        self._gate.records.get("opened")
        self._connection = psycopg.connect(url)
        _step_at_statements(psycopg.Cursor, hit)

    def operate(self, key: str) -> None:
        def insert() -> str:
            self._connection.execute("INSERT INTO effects VALUES (%s)", (key,))
            return key

        self._gate.atomic(self._connection, key, insert, **self._options)


class AsyncPsycopg:
    """`psycopg.AsyncConnection` under an `AsyncGate`."""

    database = "postgres"

    def __init__(self, **options: Any) -> None:
        self._options = options

    def connect(self, url: str, hit: Hit) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._connect(url))
        _step_at_awaited_statements(psycopg.AsyncCursor, hit)

    async def _connect(self, url: str) -> None:
        self._gate = AsyncGate(url, scope=SCOPE)
        await self._gate.records.get("opened")
        self._connection = await psycopg.AsyncConnection.connect(url)

    def operate(self, key: str) -> None:
        async def insert() -> str:
            await self._connection.execute("INSERT INTO effects VALUES (%s)", (key,))
            return key

        self._loop.run_until_complete(self._gate.atomic(self._connection, key, insert, **self._options))


class Sqlite3:
    """`sqlite3.Connection` under a `Gate`: every single statement is a step."""

    database = "sqlite"

    def __init__(self, **options: Any) -> None:
        self._options = options

    def connect(self, url: str, hit: Hit) -> None:
        self._gate = Gate(url, scope=SCOPE)
        self._connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10)
        self._connection.set_trace_callback(lambda sql: hit(sql[:20]))

    def operate(self, key: str) -> None:
        def insert() -> str:
            self._connection.execute("INSERT INTO effects VALUES (?)", (key,))
            return key

        self._gate.atomic(self._connection, key, insert, **self._options)


class Apart:
    """The negative control: the row in one transaction, the record in others."""

    database = "postgres"

    def connect(self, url: str, hit: Hit) -> None:
        self._gate = Gate(url, scope=SCOPE, wait=0)
        self._gate.records.get("opened")
        self._connection = psycopg.connect(url)
        _step_at_statements(psycopg.Cursor, hit)

    def operate(self, key: str) -> None:
        def insert() -> str:
            self._connection.execute("INSERT INTO effects VALUES (%s)", (key,))
            self._connection.commit()
            return key

        self._gate.run(key, insert)


def _step_at_statements(cursor: Any, hit: Hit) -> None:
    execute = cursor.execute

    def stepping(self: Any, *arguments: Any, **options: Any) -> Any:
        hit("statement.before")
        done = execute(self, *arguments, **options)
        hit("statement.after")
        return done

    cursor.execute = stepping


def _step_at_awaited_statements(cursor: Any, hit: Hit) -> None:
    execute = cursor.execute

    async def stepping(self: Any, *arguments: Any, **options: Any) -> Any:
        hit("statement.before")
        done = await execute(self, *arguments, **options)
        hit("statement.after")
        return done

    cursor.execute = stepping


CLIENTS: dict[str, Callable[[], Client]] = {
    "psycopg": Psycopg,
    "psycopg-last": lambda: Psycopg(claim="last"),
    "psycopg-async": AsyncPsycopg,
    "psycopg-async-last": lambda: AsyncPsycopg(claim="last"),
    "sqlite3": Sqlite3,
    "sqlite3-last": lambda: Sqlite3(claim="last"),
    **LIBRARY_CLIENTS,
}
CONTROLS: dict[str, Callable[[], Client]] = {"apart": Apart}
