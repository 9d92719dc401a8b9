"""
The kill drill for functions that settle inside their own transactions; also its nursery, if run as a script.

A client that was killed leaves its claim behind, so before it is asked again the lease is made to run out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
from django.db import connection as django_connection
from django.db import transaction
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from adapters.atomic import drill_clients, drill_libraries
from adapters.atomic.drill import Drill, serve
from adapters.atomic.drill_clients import CLIENTS, CONTROLS, Hit
from onceward import AsyncGate, Operation

SCOPE = drill_clients.SCOPE
OPTIONS: dict[str, Any] = {"guarantee": "atomic", "settle": "inside"}


class Psycopg(drill_clients.Psycopg):
    """`psycopg.Connection`: begin, row, settle, commit."""

    def operate(self, key: str) -> None:
        def insert(operation: Operation) -> None:
            with self._connection.transaction():
                self._connection.execute("INSERT INTO effects VALUES (%s)", (key,))
                operation.settle_inside(self._connection, key)

        self._gate.run(key, insert, **OPTIONS)


class AsyncPsycopg(drill_clients.AsyncPsycopg):
    """`psycopg.AsyncConnection`."""

    def operate(self, key: str) -> None:
        async def insert(operation: Operation) -> None:
            async with self._connection.transaction():
                await self._connection.execute("INSERT INTO effects VALUES (%s)", (key,))
                await operation.settle_inside_async(self._connection, key)

        self._loop.run_until_complete(self._gate.run(key, insert, **OPTIONS))


class Sqlite3(drill_clients.Sqlite3):
    """`sqlite3.Connection`: every single statement is a step."""

    def operate(self, key: str) -> None:
        def insert(operation: Operation) -> None:
            with self._connection:
                self._connection.execute("INSERT INTO effects VALUES (?)", (key,))
                operation.settle_inside(self._connection, key)

        self._gate.run(key, insert, **OPTIONS)


class Sqlalchemy(drill_libraries.Sqlalchemy):
    """A `Session`."""

    def operate(self, key: str) -> None:
        def insert(operation: Operation) -> None:
            with Session(self._engine) as session, session.begin():
                session.execute(text("INSERT INTO effects VALUES (:key)"), {"key": key})
                operation.settle_inside(session, key)

        self._gate.run(key, insert, **OPTIONS)


class AsyncSqlalchemy(drill_libraries.AsyncSqlalchemy):
    """An `AsyncSession`."""

    async def _operate(self, key: str) -> None:
        address = drill_libraries._address(self._url, self._driver)
        engine = create_async_engine(address, connect_args=drill_libraries._named(self._driver))
        drill_libraries._step(engine.sync_engine, self._hit)

        async def insert(operation: Operation) -> None:
            async with AsyncSession(engine) as session, session.begin():
                await session.execute(text("INSERT INTO effects VALUES (:key)"), {"key": key})
                await operation.settle_inside_async(session, key)

        async with AsyncGate(self._url, scope=SCOPE) as gate:
            await gate.run(key, insert, **OPTIONS)
        await engine.dispose()


class Threaded(drill_libraries.Sqlalchemy):
    """A blocking `Session` in a thread of an awaiting gate: a framework's worker."""

    def connect(self, url: str, hit: Hit) -> None:
        self._url = url
        address = drill_libraries._address(url, self._driver)
        self._engine = create_engine(address, connect_args=drill_libraries._named(self._driver))
        drill_libraries._step(self._engine, hit)

    def operate(self, key: str) -> None:
        asyncio.run(self._operate(key))

    async def _operate(self, key: str) -> None:
        def insert(operation: Operation) -> None:
            with Session(self._engine) as session, session.begin():
                session.execute(text("INSERT INTO effects VALUES (:key)"), {"key": key})
                operation.settle_inside(session, key)

        async with AsyncGate(self._url, scope=SCOPE) as gate:
            await gate.run(key, lambda operation: asyncio.to_thread(insert, operation), **OPTIONS)


class Django(drill_libraries.Django):
    """`django.db.connection`, in `transaction.atomic`."""

    def operate(self, key: str) -> None:
        def insert(operation: Operation) -> None:
            with transaction.atomic():
                with django_connection.cursor() as cursor:
                    cursor.execute("INSERT INTO effects VALUES (%s)", [key])
                operation.settle_inside(django_connection, key)

        self._gate.run(key, insert, **OPTIONS)


class Elsewhere(drill_clients.Psycopg):
    """The negative control: settled in a transaction of another connection."""

    def connect(self, url: str, hit: Hit) -> None:
        super().connect(url, hit)
        self._other = psycopg.connect(url)

    def operate(self, key: str) -> None:
        def insert(operation: Operation) -> None:
            with self._connection.transaction():
                self._connection.execute("INSERT INTO effects VALUES (%s)", (key,))
            with self._other.transaction():
                self._other.execute("SELECT 1")
                operation.settle_inside(self._other, key)

        self._gate.run(key, insert, **OPTIONS)


INSIDE: dict[str, Callable[[], Any]] = {
    "inside-psycopg": Psycopg,
    "inside-psycopg-async": AsyncPsycopg,
    "inside-sqlite3": Sqlite3,
    "inside-pysqlite": lambda: Sqlalchemy("sqlite+pysqlite"),
    "inside-sqlalchemy": lambda: Sqlalchemy("postgresql+psycopg"),
    "inside-asyncpg": lambda: AsyncSqlalchemy("postgresql+asyncpg"),
    "inside-threaded": lambda: Threaded("postgresql+psycopg"),
    "inside-django-sqlite": lambda: Django("sqlite"),
    "inside-django": lambda: Django("postgres"),
}
INSIDE_CONTROLS: dict[str, Callable[[], Any]] = {"inside-elsewhere": Elsewhere}
CLIENTS_AND_CONTROLS = {**INSIDE, **INSIDE_CONTROLS}


class InsideDrill(Drill):
    """One client, killed over and over, whose claims are left behind."""

    def _look(self, key: str) -> tuple[int, int]:
        """How many rows, how many settled records. A claim is neither: its holder is dead, and nothing is settled."""
        rows, records = super()._look(key)
        found = self._gate.records.get(key)
        return rows, 0 if found is not None and found.state in ("claimed", "lapsed", "released") else records

    def figures(self) -> Any:
        """Let the leases run out, then ask again for every key."""
        self._asking.execute("UPDATE onceward_records SET lease_until = 1 WHERE state = 'claimed'")
        return super().figures()


if __name__ == "__main__":
    CLIENTS.update(INSIDE)
    CONTROLS.update(INSIDE_CONTROLS)
    serve()
