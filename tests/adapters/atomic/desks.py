"""
Callers' own databases, behind one handle: every library, driver and colour that atomic mode joins.

The promises are written once, as coroutines. A blocking library's methods never wait inside a coroutine, so that
`straight` runs those from beginning to end without an event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from onceward import AsyncGate, Gate
from servers.postgres import running, wanted

CREATED = {"status": 201, "body": {"status": "created"}}
LOCK_SECONDS = 0.5
"""How long a caller waits for another's key before it is told to run its transaction again."""


class Kind(NamedTuple):
    """A library's connection, the driver under it, and the database."""

    target: str
    driver: str

    @property
    def awaits(self) -> bool:
        return self.target.startswith("Async")

    @property
    def database(self) -> str:
        return self.driver.partition("+")[0]

    def __str__(self) -> str:
        return f"{self.target}-{self.driver}"


KINDS = [
    Kind("Session", "sqlite+pysqlite"),
    Kind("Session", "postgresql+psycopg"),
    Kind("Connection", "sqlite+pysqlite"),
    Kind("Connection", "postgresql+psycopg2"),
    Kind("Connection", "postgresql+pg8000"),
    Kind("AsyncSession", "sqlite+aiosqlite"),
    Kind("AsyncSession", "postgresql+asyncpg"),
    Kind("AsyncConnection", "postgresql+psycopg"),
    Kind("django", "sqlite"),
    Kind("django", "postgresql"),
]
"""Every library, target and driver, each at least once on each database that it knows."""
MATRIX = [
    *KINDS,
    Kind("Session", "postgresql+psycopg2"),
    Kind("Session", "postgresql+pg8000"),
    Kind("Connection", "postgresql+psycopg"),
    Kind("AsyncSession", "postgresql+psycopg"),
    Kind("AsyncConnection", "sqlite+aiosqlite"),
    Kind("AsyncConnection", "postgresql+asyncpg"),
]
"""All of them with each other."""


def in_play(kinds: list[Kind]) -> list[Kind]:
    """Those that STORES does not leave out."""
    stores = os.environ.get("STORES", "sqlite,postgres")
    return [kind for kind in kinds if (wanted() if kind.database == "postgresql" else "sqlite" in stores)]


def straight(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("a blocking caller has nothing to wait for")


@functools.cache
def _onlooker(url: str) -> psycopg.Connection[Any]:
    """A connection that sees only what is committed. One for all tests: connecting takes longer than most of them."""
    connection = psycopg.connect(url, autocommit=True)
    atexit.register(connection.close)
    return connection


class Place:
    """A database, seen from outside: nobody's transaction."""

    def __init__(self, database: str, folder: Path) -> None:
        self.database = database
        self.path = folder / "app.db"
        self.url = f"sqlite:///{self.path}" if database == "sqlite" else running().url("onceward")
        if database == "sqlite":
            self.ask("PRAGMA journal_mode = WAL")
        elif self.ask("SELECT to_regclass('onceward_records')") != [(None,)]:
            self.ask("DELETE FROM onceward_records")
        for table in ("charges (customer INTEGER, amount TEXT)", "invoices (number TEXT PRIMARY KEY)"):
            self.ask(f"DROP TABLE IF EXISTS {table.partition(' ')[0]}")
            self.ask(f"CREATE TABLE {table}")

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement by itself; its rows."""
        if self.database == "postgresql":
            cursor = _onlooker(self.url).execute(sql.encode())
            return cursor.fetchall() if cursor.description else []
        other = sqlite3.connect(self.path, isolation_level=None)
        try:
            return other.execute(sql).fetchall()
        finally:
            other.close()

    def rows(self, table: str = "charges") -> int:
        """How many rows are committed."""
        [(count,)] = self.ask(f"SELECT count(*) FROM {table}")
        return int(count)

    def states(self) -> dict[str, str]:
        """The committed records: key (without the environment of its scope) -> state."""
        return dict(self.ask("SELECT substr(key, 6), state FROM onceward_records"))  # type: ignore[arg-type]

    def gate_url(self) -> str:
        """Where the gate keeps its records: in the same place."""
        return f"{self.url}?onceward_lock_timeout={LOCK_SECONDS}" if self.database == "postgresql" else self.url


class Desk:
    """A gate and a caller's library on one database."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        self.place = Place(kind.database, folder)
        gate = AsyncGate if kind.awaits else Gate
        self.gate: Any = gate(self.place.gate_url(), scope="live:acme", wait=0)
        self.violation: type[Exception] = sqlalchemy.exc.IntegrityError
        self._set_up()

    def _set_up(self) -> None:
        url = self.place.url.replace(self.kind.database, self.kind.driver, 1)
        if self.kind.awaits:
            self.engine: Any = create_async_engine(url)
        else:
            self.engine = sqlalchemy.create_engine(url)

    async def close(self) -> None:
        """Let go of everything."""
        if self.kind.awaits:
            await self.gate.close()
            await self.engine.dispose()
        else:
            self.gate.close()
            self.engine.dispose()

    @asynccontextmanager
    async def caller(self) -> AsyncIterator[Caller]:
        """A caller, with a session or a connection of its own."""
        target, engine = self.kind.target, self.engine
        if target == "Session":
            with Session(engine) as session:
                yield Caller(self, session)
        elif target == "Connection":
            with engine.connect() as connection:
                yield Caller(self, connection)
        elif target == "AsyncSession":
            async with AsyncSession(engine) as session:
                yield Caller(self, session)
        else:
            async with engine.connect() as connection:
                yield Caller(self, connection)

    async def race(self, many: int, work: Callable[[int], Coroutine[Any, Any, Any]]) -> list[Any]:
        """Start many at once, as tasks or as threads; what became of each."""
        if self.kind.awaits:
            return list(await asyncio.gather(*(work(number) for number in range(many))))
        answers: list[Any] = [None] * many
        barrier = threading.Barrier(many)

        def run(number: int) -> None:
            barrier.wait()
            answers[number] = straight(work(number))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(many)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers


class Caller:
    """Somebody with a session or a connection."""

    def __init__(self, desk: Desk, target: Any) -> None:
        self.desk = desk
        self.target = target

    async def did(self, answer: Any) -> Any:
        """The answer, awaited where that is needed."""
        return await answer if self.desk.kind.awaits else answer

    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self.target.in_transaction())

    async def execute(self, sql: str) -> Any:
        """Run a statement in the transaction; its rows if it has any."""
        result = await self.did(self.target.execute(sqlalchemy.text(sql)))
        return [tuple(row) for row in result.all()] if result.returns_rows else None

    async def charge(self, amount: str = "12.5000") -> dict[str, Any]:
        """What most of the operations here do."""
        await self.execute(f"INSERT INTO charges VALUES (1, '{amount}')")
        return CREATED

    @asynccontextmanager
    async def transaction(self, nested: bool = False) -> AsyncIterator[None]:
        """A transaction, or a savepoint, of the caller's own."""
        block = self.target.begin_nested() if nested else self.target.begin()
        if self.desk.kind.awaits:
            async with block:
                yield
        else:
            with block:
                yield

    async def end(self, how: str) -> None:
        """Commit or roll back, as one should not inside an operation."""
        await self.did(getattr(self.target, how)())

    def _own_colour(self, fn: Callable[[], Awaitable[Any]] | None) -> Any:
        if fn is None or self.desk.kind.awaits:
            return fn
        return lambda: straight(fn())  # type: ignore[arg-type]

    async def atomic(self, key: str, fn: Callable[[], Awaitable[Any]] | None = None, **options: Any) -> Any:
        """Run an operation; by default, charge."""
        work = self._own_colour(fn or self.charge)
        return await self.did(self.desk.gate.atomic(self.target, key, work, **options))

    async def run(self, key: str, fn: Callable[[], Awaitable[Any]]) -> Any:
        """Run an operation outside of any transaction."""
        return await self.did(self.desk.gate.run(key, self._own_colour(fn)))

    @asynccontextmanager
    async def block(self, key: str, **options: Any) -> AsyncIterator[Any]:
        """The block form."""
        block = self.desk.gate.atomic(self.target, key, **options)
        if self.desk.kind.awaits:
            async with block as operation:
                yield operation
        else:
            with block as operation:
                yield operation

    async def step(self, plan: str, name: str, fn: Callable[[], Awaitable[Any]]) -> Any:
        """A step of a plan, in the transaction."""
        work = self._own_colour(fn)
        return await self.did(self.desk.gate.plan(plan).step(name, work, connection=self.target))
