# blocking half: insert.py
"""
`insert_once`: a row that is written once, by the table's own unique constraint. It needs no gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from onceward._core.colour import AWAITS
from onceward.adapters.connection_writer import check_async_sqlalchemy, writer_for
from onceward.adapters.insert_statement import (
    Inserted,
    InsertStatement,
    OnDuplicate,
    TableName,
    insert_steps,
)
from onceward.runtime.flow_driver import drive_steps_async


@overload
async def insert_once_async(
    connection: Any,
    table: TableName,
    values: Mapping[str, Any],
    *,
    key: Sequence[str],
    on_duplicate: OnDuplicate = "ignore",
    returning: None = None,
) -> int: ...


@overload
async def insert_once_async(
    connection: Any,
    table: TableName,
    values: Mapping[str, Any],
    *,
    key: Sequence[str],
    on_duplicate: OnDuplicate = "ignore",
    returning: Sequence[str],
) -> Inserted: ...


async def insert_once_async(
    connection: Any,
    table: TableName,
    values: Mapping[str, Any],
    *,
    key: Sequence[str],
    on_duplicate: OnDuplicate = "ignore",
    returning: Sequence[str] | None = None,
) -> int | Inserted:
    """
    Insert a row unless one with the same `key` columns is there; how many rows were written now: 1, then 0.

    A duplicate is no error and changes nothing. With `on_duplicate=Update(["amount"])` it overwrites those columns of
    the row that is there, and counts as one written row. `key` needs a unique constraint on those very columns. With
    `returning=["id"]` the answer is `Inserted`, with these columns of the row that stands now, written or found.

    Runs inside your transaction and never commits. insert_once takes connections that block: a sqlite3.Connection, a
    psycopg.Connection, a connection of psycopg2, SQLAlchemy's Session or Connection, or Django's connection.
    insert_once_async takes those that are awaited: a psycopg.AsyncConnection, a connection of asyncpg (or one from its
    pool), SQLAlchemy's AsyncSession or AsyncConnection. On SQLite a Decimal is stored as text: make its column TEXT.
    Floats are stored as they are.
    """
    if AWAITS:
        library = type(connection).__module__.partition(".")[0]
        if library == "sqlalchemy":
            # SQLAlchemy runs what is written for blocking callers under asyncio by itself.
            from onceward.adapters.insert import insert_once as blocking  # of no colour

            choices: dict[str, Any] = {"key": key, "on_duplicate": on_duplicate, "returning": returning}
            return await check_async_sqlalchemy(connection).run_sync(blocking, table, values, **choices)  # type: ignore[no-any-return]
    way = writer_for(connection, awaits=AWAITS)

    async def perform(statement: InsertStatement) -> Any:
        return await (way.ask if statement.asks else way.run)(statement.sql, statement.values)

    taken = insert_steps(way.dialect, way.spelling, table, values, key, on_duplicate, returning)
    return await drive_steps_async(taken, perform)
