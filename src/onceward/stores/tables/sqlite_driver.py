"""
The tables driver for SQLite: a file beside the records, readable by its owner alone.

Writers of one process take turns; other processes are waited for as long as the store's `busy` option says. A commit
waits for the disk: a revoked token must not come back with the power.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from onceward._core.errors import ConfigurationError, OncewardError, StoreUnavailable
from onceward.runtime import failpoints
from onceward.runtime.environment import Environment
from onceward.runtime.flow_driver import drive_steps
from onceward.stores._sqlite_file import (
    BUSY_SECONDS,
    DRIVER_ERRORS,
    connect,
    prepare_file,
    split_statements,
    translate_error,
)
from onceward.stores.tables.schema import Schema
from onceward.stores.tables.sql_steps import Row, RunSql, Sql, SqlSteps

T = TypeVar("T")

_HAS_TABLE = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?"
_NOW = re.compile(r":now\b")
_WORDS = {"{lock}": "", "{free}": "", "{bytes}": "", "{turn}": "1"}
ROWS_AT_A_TIME = (100, 20, 5, 1)


class SqliteDriver:
    """One file."""

    dialect = "sqlite"

    def __init__(self, path: Path, environment: Environment, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path
        self._environment = environment
        self._busy_seconds = busy_seconds
        self._writing = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False

    @classmethod
    def opened(
        cls, path: Path, schema: Schema, environment: Environment, busy_seconds: float = BUSY_SECONDS, *, create: bool
    ) -> SqliteDriver:
        """The file with our tables in it, made if they may be."""
        if not create and not path.exists():
            raise schema.none_yet(str(path))
        driver = cls(prepare_file(path), environment, busy_seconds)
        try:
            with driver._borrowed() as connection:
                if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
                    raise ConfigurationError(f"{path} cannot have a write-ahead log: use a local disk")
                _bring_up_to_date(connection, schema, path, create=create)
        except BaseException:
            driver.close()
            raise
        return driver

    def transact(self, at: str, steps: Callable[[], SqlSteps[T]]) -> T:
        """Run steps in one transaction that may write: all of it, or nothing."""
        return self.share(at, lambda _, ask: drive_steps(steps(), ask))

    def share(self, at: str, work: Callable[[sqlite3.Connection, RunSql], T]) -> T:
        """Run work that needs the connection in one transaction: a record that commits with the rows."""
        with self._borrowed() as connection, self._writing:
            connection.execute("BEGIN IMMEDIATE")
            result = work(connection, self._runner(connection))
            failpoints.hit(f"{at}.written")
            connection.execute("COMMIT")
            return result

    def look(self, steps: Callable[[], SqlSteps[T]]) -> T:
        """Run steps that only read."""
        with self._borrowed() as connection:
            return drive_steps(steps(), self._runner(connection))

    def wipe(self) -> None:
        """After an erasure: let nothing deleted linger in a log, unless somebody reads there."""
        with self._borrowed() as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close files and connections."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _runner(self, connection: sqlite3.Connection) -> Callable[[Sql], list[Row]]:
        return sql_runner(connection, self._environment)

    @contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction; after an error of any kind, nothing of it is left open."""
        connection = self._taken()
        try:
            yield connection
        except OncewardError:  # A refusal of ours: the connection is sound.
            connection.rollback()
            self._given_back(connection)
            raise
        except BaseException as error:
            with suppress(*DRIVER_ERRORS):
                connection.close()
            if isinstance(error, DRIVER_ERRORS):
                raise translate_error(error, self.path) from error
            raise
        self._given_back(connection)

    def _given_back(self, connection: sqlite3.Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def _taken(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreUnavailable(f"{self.path} was closed")
        with suppress(IndexError):
            return self._idle.pop()
        try:
            connection = connect(self.path)
            connection.execute(f"PRAGMA busy_timeout = {round(self._busy_seconds * 1000)}")
            connection.execute("PRAGMA synchronous = full")
            connection.execute("PRAGMA foreign_keys = 1")
            connection.execute("PRAGMA secure_delete = 1")  # What is erased is overwritten, and not only let go of.
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.path) from error
        return connection


def sql_runner(connection: sqlite3.Connection, environment: Environment) -> Callable[[Sql], list[Row]]:
    """What runs one statement of `steps` on a connection."""

    def ask(sql: Sql) -> list[Row]:
        if sql.rows is not None:
            return _ask_with_rows(connection, sql, sql.rows)
        return connection.execute(*translate_sql(sql, environment)).fetchall()

    return ask


def _ask_with_rows(connection: sqlite3.Connection, sql: Sql, rows: Sequence[Row]) -> list[Row]:
    """Many rows at a time, in a few lengths of text only: a text that was seen before is prepared already."""
    found: list[Row] = []
    begin, left = 0, len(rows)
    for many in ROWS_AT_A_TIME:
        while left >= many:
            values = list(chain.from_iterable(rows[begin : begin + many]))
            found += connection.execute(_with_rows(sql.text, len(sql.types), many), values).fetchall()
            begin, left = begin + many, left - many
    return found


@lru_cache(maxsize=64)
def _with_rows(text: str, columns: int, many: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return text.replace("{rows}", f"VALUES {', '.join([row] * many)}")


def translate_sql(sql: Sql, environment: Environment) -> tuple[str, dict[str, Any]]:
    """A statement of `steps` in SQLite's words, and its values."""
    values = dict(sql.values)
    text, asks_for_now = _translated(sql.text)
    if asks_for_now:
        values["now"] = environment.wall_us()
    return text, values


@lru_cache(maxsize=512)
def _translated(text: str) -> tuple[str, bool]:
    asks_for_now = _NOW.search(text) is not None
    for word, theirs in _WORDS.items():
        text = text.replace(word, theirs)
    return text, asks_for_now


def _bring_up_to_date(connection: sqlite3.Connection, schema: Schema, path: Path, *, create: bool) -> None:
    if _version(connection, schema, path) == schema.latest:
        return
    connection.execute("BEGIN IMMEDIATE")
    before = _version(connection, schema, path)
    if not before and not create:
        raise schema.none_yet(str(path))
    for number, script in schema.migrations("sqlite", before):
        for statement in split_statements(script):
            connection.execute(statement)
        connection.execute(schema.set_version(number))
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection, schema: Schema, path: Path) -> int:
    if not connection.execute(_HAS_TABLE, (schema.marker,)).fetchone()[0]:
        return 0
    return schema.understood(connection.execute(schema.version).fetchall(), str(path))
