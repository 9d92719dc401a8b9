"""
How `insert_once` runs its statements on the caller's connection: one pair of functions for each driver.

A driver is found by the connection's type: no library is imported that is not in use already. psycopg's functions are
in `_psycopg_writer_async.py`, for both colours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from onceward._core.errors import ConfigurationError


class ConnectionWriter(NamedTuple):
    """A connection that can be written to: what it is to, how it spells placeholders, and how it runs a statement."""

    dialect: str
    spelling: str
    run: Callable[[str, list[Any]], Any]
    """How many rows were written; to be awaited if the connection is."""
    ask: Callable[[str, list[Any]], Any]
    """The rows, as tuples; to be awaited if the connection is."""


def writer_for(connection: Any, *, awaits: bool) -> ConnectionWriter:
    """How to write through this connection; refused if it is of the other colour, or of no library that is known."""
    found = _awaited(connection) if awaits else _blocking(connection)
    if found is not None:
        return found
    kind = f"{type(connection).__module__}.{type(connection).__name__}"
    if awaits:
        raise ConfigurationError(
            f"insert_once_async does not support connections of {kind}; it supports psycopg.AsyncConnection, asyncpg's "
            "connections, and SQLAlchemy's AsyncSession and AsyncConnection. For one that blocks: "
            "insert_once(connection, ...)"
        )
    raise ConfigurationError(
        f"insert_once does not support connections of {kind}; it supports sqlite3.Connection, "
        "psycopg.Connection, psycopg2's "
        "connection, SQLAlchemy's Session and Connection, and Django's connection"
    )


def _blocking(connection: Any) -> ConnectionWriter | None:
    # Whoever has such a connection has imported its library; nobody else needs it.
    for base in type(connection).__mro__:
        match base.__module__.partition(".")[0]:
            case "sqlite3" | "_sqlite3" if isinstance(connection, sys.modules["sqlite3"].Connection):
                return ConnectionWriter("sqlite", "sqlite", *_of_sqlite(connection))
            case "psycopg" if isinstance(connection, sys.modules["psycopg"].Connection):
                from onceward.adapters._psycopg_writer import write_functions

                return ConnectionWriter("postgresql", "postgresql", *write_functions(connection))
            case "psycopg2" if isinstance(connection, sys.modules["psycopg2"].extensions.connection):
                return ConnectionWriter("postgresql", "postgresql", *_of_psycopg2(connection))
            case "psycopg" | "asyncpg":
                raise ConfigurationError(
                    f"{type(connection).__name__} of {base.__module__.partition('.')[0]} is awaited: "
                    "await insert_once_async(connection, ...)"
                )
            case "sqlalchemy" | "django" as library:
                writer = import_module(f"onceward.adapters.{library}").writer(connection)
                return ConnectionWriter(writer.database, "postgresql", writer.run, writer.ask)
    return None


def _awaited(connection: Any) -> ConnectionWriter | None:
    for base in type(connection).__mro__:
        match base.__module__.partition(".")[0]:
            case "psycopg" if isinstance(connection, sys.modules["psycopg"].AsyncConnection):
                from onceward.adapters._psycopg_writer_async import write_functions_async

                return ConnectionWriter("postgresql", "postgresql", *write_functions_async(connection))
            case "asyncpg" if hasattr(connection, "fetch"):
                return ConnectionWriter("postgresql", "asyncpg", *_of_asyncpg(connection))
    return None


def check_async_sqlalchemy(connection: Any) -> Any:
    """An awaiting session or connection of SQLAlchemy, which runs blocking code by itself."""
    if not hasattr(connection, "run_sync"):
        raise ConfigurationError(
            f"SQLAlchemy's {type(connection).__name__} blocks: insert_once(connection, ...), without await"
        )
    return connection


_WriteFunctions: TypeAlias = tuple[Callable[[str, list[Any]], Any], Callable[[str, list[Any]], Any]]


def _of_sqlite(connection: Any) -> _WriteFunctions:
    def ask(sql: str, values: list[Any]) -> list[Any]:
        cursor = connection.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, values).fetchall()  # type: ignore[no-any-return]

    return lambda sql, values: connection.execute(sql, values).rowcount, ask


def _of_psycopg2(connection: Any) -> _WriteFunctions:
    kind = sys.modules["psycopg2"].extensions.cursor  # The caller's own may give rows as something else.

    def run(sql: str, values: list[Any]) -> int:
        with connection.cursor(cursor_factory=kind) as cursor:
            cursor.execute(sql, values)
            return cursor.rowcount  # type: ignore[no-any-return]

    def ask(sql: str, values: list[Any]) -> list[Any]:
        with connection.cursor(cursor_factory=kind) as cursor:
            cursor.execute(sql, values)
            return cursor.fetchall()  # type: ignore[no-any-return]

    return run, ask


def _of_asyncpg(connection: Any) -> _WriteFunctions:
    async def run(sql: str, values: list[Any]) -> int:
        status = await connection.execute(sql, *values)
        return int(status.rpartition(" ")[2])  # Such as INSERT 0 1.

    async def ask(sql: str, values: list[Any]) -> list[Any]:
        return [tuple(row.values()) for row in await connection.fetch(sql, *values)]

    return run, ask
