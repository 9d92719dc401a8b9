"""
Tables of the drill's own in a SQLite or PostgreSQL database: made under a random name, and gone afterwards.

If none can be made there, `NotAllowed` says why, and the proof uses a temporary SQLite file instead.
"""

# ruff: noqa: S608 - names are ours: letters and digits

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from onceward.adapters.insert import insert_once
from onceward.stores._store_kinds import scheme_of

KEY = ("worker_id", "idempotency_key")
BUSY_SECONDS = 30.0


class NotAllowed(Exception):
    """The drill may not make a table in this database."""


def is_sqlite(url: str) -> bool:
    """Whether a URL names a SQLite file."""
    return scheme_of(url) == "sqlite"


def is_postgres(url: str) -> bool:
    """Whether a URL names a PostgreSQL database."""
    return scheme_of(url) in ("postgresql", "postgres")


def connect(url: str) -> Any:
    """A connection of the caller's own to the database that a URL names: of sqlite3 or psycopg."""
    if is_sqlite(url):
        from onceward.stores._sqlite_file import parse

        return sqlite3.connect(parse(url)[0], timeout=BUSY_SECONDS)
    import psycopg

    from onceward.stores._postgres_errors import DRIVER_ERRORS, translate_connect_error
    from onceward.stores._postgres_url import parse as parse_postgres

    target = parse_postgres(url)
    try:
        return psycopg.connect(**target.parameters)
    except DRIVER_ERRORS as error:
        raise translate_connect_error(error, target.name, ever_connected=False) from error


class DrillTable:
    """A table with the columns of the second document's example, on a connection of its own."""

    def __init__(self, connection: Any, name: str, *, constrained: bool) -> None:
        self.connection = connection
        self.name = name
        self._constrained = constrained
        self._hole = "?" if isinstance(connection, sqlite3.Connection) else "%s"

    def create(self) -> None:
        """Make it, with or without the unique constraint."""
        constraint = f", UNIQUE ({', '.join(KEY)})" if self._constrained else ""
        self._run(f"CREATE TABLE {self.name} (worker_id TEXT, idempotency_key TEXT, amount TEXT{constraint})")

    def drop(self) -> None:
        """Delete it."""
        self.connection.rollback()
        self._run(f"DROP TABLE IF EXISTS {self.name}")

    def insert(self, row: Mapping[str, str]) -> int:
        """Insert a row and commit; how many were written. Without the constraint by a plain INSERT."""
        if self._constrained:
            written = insert_once(self.connection, self.name, row, key=KEY)
        else:
            holes = ", ".join(self._hole for _ in row)
            sql = f"INSERT INTO {self.name} ({', '.join(row)}) VALUES ({holes})"
            written = self.connection.cursor().execute(sql, tuple(row.values())).rowcount
        self.connection.commit()
        return written

    def add(self, row: Mapping[str, str]) -> None:
        """Insert a row in the transaction that is open, whatever is there."""
        holes = ", ".join(self._hole for _ in row)
        sql = f"INSERT INTO {self.name} ({', '.join(row)}) VALUES ({holes})"
        self.connection.cursor().execute(sql, tuple(row.values()))

    def count(self, key: str = "") -> int:
        """How many rows there are, or how many with this key."""
        cursor = self.connection.cursor()
        cursor.execute(f"SELECT count(*) FROM {self.name} WHERE {self._hole} IN ('', idempotency_key)", (key,))
        [(count,)] = cursor.fetchall()
        self.connection.commit()
        return int(count)

    def _run(self, sql: str) -> None:
        self.connection.cursor().execute(sql)
        self.connection.commit()


@contextmanager
def made_table(url: str, name: str, *, constrained: bool) -> Iterator[DrillTable]:
    """A table in the database that a URL names, until the block ends; `NotAllowed` if it cannot be made."""
    with closing(connect(url)) as connection:
        table = DrillTable(connection, name, constrained=constrained)
        try:
            table.create()
        except Exception as error:
            connection.rollback()
            raise NotAllowed(f"no table can be created there ({type(error).__name__})") from error
        try:
            yield table
        finally:
            table.drop()


@contextmanager
def made_schema(url: str, name: str) -> Iterator[str]:
    """A PostgreSQL schema until the block ends; the URL of the same database that works in it."""
    from onceward.stores._postgres_url import parse

    if not parse(url).direct:
        raise NotAllowed("behind a pooler, a session does not keep its schema")
    with closing(connect(url)) as connection:
        try:
            connection.execute(f"CREATE SCHEMA {name}")
            connection.commit()
        except Exception as error:
            connection.rollback()
            raise NotAllowed(f"no schema can be created there ({type(error).__name__})") from error
        try:
            yield _in_schema(url, name)
        finally:
            connection.rollback()
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
            connection.commit()


def _in_schema(url: str, name: str) -> str:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    query["options"] = f"{query.get('options', '')} -csearch_path={name}".strip()
    text = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in query.items())
    return f"postgresql://{parts.netloc}{parts.path}?{text}"
