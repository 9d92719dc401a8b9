"""
Clients for the kill drill that go through SQLAlchemy and Django; every statement, savepoint and commit is a step.

Each has `database`, `connect(url, hit)` and `operate(key)`: one row in `effects`, in one transaction with its record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Any

import django
from django.conf import settings
from django.db import connection
from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from onceward import AsyncGate, Gate

# What a client would import late: it is forked from a process that has done so, or every kill would wait for it.
for _late in ("sqlite3.base", "postgresql.base"):
    import_module(f"django.db.backends.{_late}")
for _late in ("aiosqlite", "asyncpg", "psycopg", "onceward.adapters.sqlalchemy", "onceward.adapters.django"):
    import_module(_late)

SCOPE = "test:drill"
Hit = Callable[[str], None]

_STEPS = ("before_cursor_execute", "after_cursor_execute", "savepoint", "release_savepoint", "commit")


class Sqlalchemy:
    """A `Session` under a `Gate`."""

    def __init__(self, driver: str, **options: Any) -> None:
        self.database = "sqlite" if driver.startswith("sqlite") else "postgres"
        self._driver = driver
        self._options = options

    def connect(self, url: str, hit: Hit) -> None:
        """Open gate and engine."""
        self._gate = Gate(url, scope=SCOPE)
        self._engine = create_engine(_address(url, self._driver), connect_args=_named(self._driver))
        _step(self._engine, hit)

    def operate(self, key: str) -> None:
        """Insert the row once."""
        with Session(self._engine) as session:

            def insert() -> str:
                session.execute(text("INSERT INTO effects VALUES (:key)"), {"key": key})
                return key

            self._gate.atomic(session, key, insert, **self._options)


class AsyncSqlalchemy(Sqlalchemy):
    """An `AsyncSession` under an `AsyncGate`."""

    def connect(self, url: str, hit: Hit) -> None:
        """Remember; an engine belongs to its event loop."""
        self._url, self._hit = url, hit

    def operate(self, key: str) -> None:
        """Insert the row once."""
        asyncio.run(self._operate(key))

    async def _operate(self, key: str) -> None:
        engine = create_async_engine(_address(self._url, self._driver), connect_args=_named(self._driver))
        _step(engine.sync_engine, self._hit)
        async with AsyncGate(self._url, scope=SCOPE) as gate, AsyncSession(engine) as session:

            async def insert() -> str:
                await session.execute(text("INSERT INTO effects VALUES (:key)"), {"key": key})
                return key

            await gate.atomic(session, key, insert, **self._options)
        await engine.dispose()


class Django:
    """`django.db.connection` under a `Gate`."""

    def __init__(self, database: str, **options: Any) -> None:
        self.database = database
        self._options = options

    def connect(self, url: str, hit: Hit) -> None:
        """Open the gate, and make Django's settings: this process does nothing else."""
        at = make_url(url)
        engine = "sqlite3" if self.database == "sqlite" else "postgresql"
        where: dict[str, Any] = {"ENGINE": f"django.db.backends.{engine}", "NAME": at.database}
        if self.database == "postgres":
            where |= {"HOST": at.host, "PORT": at.port, "USER": at.username, "OPTIONS": dict(at.query)}
        settings.configure(DATABASES={"default": where}, USE_TZ=True)
        django.setup()
        self._gate = Gate(url, scope=SCOPE)

        def stepping(execute: Any, sql: Any, parameters: Any, many: bool, context: Any) -> Any:
            hit("statement.before")
            done = execute(sql, parameters, many, context)
            hit("statement.after")
            return done

        connection.execute_wrappers.append(stepping)

    def operate(self, key: str) -> None:
        """Insert the row once."""

        def insert() -> str:
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO effects VALUES (%s)", [key])
            return key

        self._gate.atomic(connection, key, insert, **self._options)


def _address(url: str, driver: str) -> str:
    """The gate's URL as an engine takes it; how a connection is named is each driver's own matter."""
    rest = url.partition("://")[2]
    return f"{driver}://{rest.partition('?')[0]}"


def _named(driver: str) -> dict[str, Any]:
    if driver.startswith("sqlite"):
        return {}
    name = {"application_name": "drill"}
    return {"server_settings": name} if driver.endswith("asyncpg") else dict(name)


def _step(engine: Any, hit: Hit) -> None:
    for name in _STEPS:
        event.listen(engine, name, lambda *_, name=name: hit(name))


LIBRARY_CLIENTS: dict[str, Callable[[], Any]] = {
    "sqlalchemy-pysqlite": lambda: Sqlalchemy("sqlite+pysqlite"),
    "sqlalchemy-psycopg": lambda: Sqlalchemy("postgresql+psycopg"),
    "sqlalchemy-asyncpg-last": lambda: AsyncSqlalchemy("postgresql+asyncpg", claim="last"),
    "django-sqlite": lambda: Django("sqlite"),
    "django-postgres": lambda: Django("postgres"),
}
