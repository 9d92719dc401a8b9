# Made from insert_async.py by `make halves`: change that file, not this one.
"""
`insert_once`: a row that is written once, by the table's own unique constraint. It needs no gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from onceward.adapters.connection_writer import writer_for
from onceward.adapters.insert_statement import (
    Inserted,
    InsertStatement,
    OnDuplicate,
    TableName,
    insert_steps,
)
from onceward.runtime.flow_driver import drive_steps


@overload
def insert_once(
    connection: Any,
    table: TableName,
    values: Mapping[str, Any],
    *,
    key: Sequence[str],
    on_duplicate: OnDuplicate = "ignore",
    returning: None = None,
) -> int: ...


@overload
def insert_once(
    connection: Any,
    table: TableName,
    values: Mapping[str, Any],
    *,
    key: Sequence[str],
    on_duplicate: OnDuplicate = "ignore",
    returning: Sequence[str],
) -> Inserted: ...


def insert_once(
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
    way = writer_for(connection, awaits=False)

    def perform(statement: InsertStatement) -> Any:
        return (way.ask if statement.asks else way.run)(statement.sql, statement.values)

    taken = insert_steps(way.dialect, way.spelling, table, values, key, on_duplicate, returning)
    return drive_steps(taken, perform)
