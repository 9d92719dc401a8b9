"""A row that is there already: every driver says it in its own way, and it is judged as one thing."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward._core.classifier import DEFAULT
from onceward.verdicts import Action, Certainty, Kind
from servers import postgres

THERE_ALREADY = (Certainty.REJECTED, Kind.STATE, Action.NEVER)
ON_POSTGRES = ("psycopg", "psycopg2", "asyncpg", "sqlalchemy+psycopg", "sqlalchemy+psycopg2", "sqlalchemy+asyncpg")
DRIVERS = ("sqlite3", "sqlalchemy+sqlite", "sqlalchemy+aiosqlite", *(ON_POSTGRES if postgres.wanted() else ()))

Execute = Callable[[str], None]


def by_dbapi(connection: Any) -> Execute:
    def execute(sql: str) -> None:
        connection.cursor().execute(sql)

    return execute


def by_sqlalchemy(url: str) -> tuple[Execute, Callable[[], None]]:
    from sqlalchemy import create_engine, text

    engine = create_engine(url, isolation_level="AUTOCOMMIT")

    def execute(sql: str) -> None:
        with engine.connect() as connection:
            connection.execute(text(sql))

    return execute, engine.dispose


def by_awaiting_sqlalchemy(url: str) -> Execute:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    async def once(sql: str) -> None:
        engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
        try:
            async with engine.connect() as connection:
                await connection.execute(text(sql))
        finally:
            await engine.dispose()

    return lambda sql: asyncio.run(once(sql))


def by_asyncpg(port: int) -> Execute:
    import asyncpg

    async def once(sql: str) -> None:
        connection = await asyncpg.connect(host="127.0.0.1", port=port, user="postgres", database="onceward")
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    return lambda sql: asyncio.run(once(sql))


@pytest.fixture(params=DRIVERS)
def execute(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Execute]:
    """Runs a statement with each driver."""
    name, file = request.param, tmp_path / "unique.db"
    driver = name.partition("+")[2]
    place = f"postgres@127.0.0.1:{postgres.running().port}/onceward" if name in ON_POSTGRES else ""
    if name == "sqlite3":
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            yield by_dbapi(connection)
    elif name in ("psycopg", "psycopg2"):
        with closing(__import__(name).connect(postgres.running().url("onceward"))) as connection:
            connection.autocommit = True
            yield by_dbapi(connection)
    elif name == "asyncpg":
        yield by_asyncpg(postgres.running().port)
    elif driver in ("aiosqlite", "asyncpg"):
        yield by_awaiting_sqlalchemy(
            f"sqlite+aiosqlite:///{file}" if driver == "aiosqlite" else f"postgresql+asyncpg://{place}"
        )
    else:
        execute, dispose = by_sqlalchemy(
            f"sqlite:///{file}" if driver == "sqlite" else f"postgresql+{driver}://{place}"
        )
        yield execute
        dispose()


@pytest.mark.requirement("E18")
@pytest.mark.fault("on-sqlite-a-violation-may-be-tried-again", "on-postgresql-a-violation-may-be-tried-again")
@pytest.mark.fault("a-wrapped-violation-is-not-known")
def test_a_primary_key_a_constraint_and_a_unique_index_are_one_verdict_with_every_driver(execute: Execute) -> None:
    """
    SQLite's 1555 and 2067, PostgreSQL's 23505, whoever wraps them: refused for what is there, and never tried again.
    """
    table = f"unique_{os.urandom(4).hex()}"
    execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, receipt TEXT UNIQUE, invoice TEXT)")
    execute(f"CREATE UNIQUE INDEX {table}_invoice ON {table} (invoice)")
    execute(f"INSERT INTO {table} VALUES (1, 'r-1', 'i-1')")
    verdicts = []
    for row in ("(1, 'r-2', 'i-2')", "(2, 'r-1', 'i-2')", "(2, 'r-2', 'i-1')"):
        with pytest.raises(Exception, match=r"(?i)unique|duplicate") as raised:
            execute(f"INSERT INTO {table} VALUES {row}")
        verdicts.append(DEFAULT.judge(raised.value)[:3])
    execute(f"DROP TABLE {table}")

    assert verdicts == [THERE_ALREADY] * 3
