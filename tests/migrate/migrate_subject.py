"""A database with a table of expenses from before keys, on SQLite or PostgreSQL, in the same words."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from onceward.migrate import Application, historical_key, open_database
from servers.postgres import PostgresServer, running

NUMBERS = itertools.count(1)


class Subject:
    """One database that a test has for itself."""

    def __init__(self, kind: str, url: str, place: str) -> None:
        self.kind = kind
        self.url = url
        self._place = place

    def connect(self) -> Any:
        """A connection in autocommit that waits for others."""
        if self.kind == "sqlite":
            return sqlite3.connect(self._place, isolation_level=None, timeout=120)
        return psycopg.connect(self._place, autocommit=True)

    def run(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; its rows."""
        with closing(self.connect()) as connection:
            cursor = connection.execute(self.spelt(sql), values) if values else connection.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []

    def spelt(self, sql: str) -> str:
        """A statement with its parameters as this driver has them."""
        return sql if self.kind == "sqlite" else sql.replace("?", "%s")

    def script(self, text: str) -> None:
        """Run printed SQL as it stands."""
        with closing(self.connect()) as connection:
            if self.kind == "sqlite":
                connection.executescript(text)
            else:
                connection.execute(text)

    def expenses(self, rows: int, table: str = '"expenses"') -> None:
        """The table of expenses, with rows from before keys."""
        id = "INTEGER PRIMARY KEY" if self.kind == "sqlite" else "bigserial PRIMARY KEY"
        self.run(f"CREATE TABLE {table} (id {id}, token text NOT NULL, amount integer NOT NULL)")
        numbers = (
            f"WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows}) SELECT n FROM n"
            if self.kind == "sqlite"
            else f"SELECT n FROM generate_series(1, {rows}) AS n"
        )
        if rows:
            self.run(f"INSERT INTO {table} (token, amount) SELECT 'old-' || n, n FROM ({numbers}) AS numbers")

    def apply(self, table: str = "expenses", **options: Any) -> int:
        """Apply the migration in this process; rows that got a key."""
        wanted = Application(**options)
        with open_database(self.url) as database:
            found = database.look(table, "", wanted.how)
            return database.apply(found, wanted, lambda text: None)

    def stored_keys(self, table: str = '"expenses"') -> list[tuple[Any, ...]]:
        """Id, worker and key of every row."""
        return self.run(f"SELECT id, worker_id, idempotency_key FROM {table} ORDER BY id")

    def shape(self) -> list[str]:
        """The table as the database describes it, rows included."""
        with open_database(self.url) as database:
            return database.describe(database.look("expenses", "", "builtin"))


def expected(ids: Sequence[object]) -> list[tuple[Any, ...]]:
    """What a backfill stores for these ids, computed here."""
    return [(id, "historical-backfill", historical_key(str(id))) for id in ids]


@contextmanager
def subject_of(kind: str, folder: Path, server: PostgresServer | None = None) -> Iterator[Subject]:
    """An empty database, gone at the end."""
    if kind == "sqlite":
        path = folder / "app.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = wal")
        yield Subject("sqlite", f"sqlite:///{path}", str(path))
        return
    server = server or running()
    name = f"migrate_{next(NUMBERS)}"
    server.execute(f"CREATE DATABASE {name}")
    try:
        yield Subject("postgres", server.url(name), server.url(name))
    finally:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
