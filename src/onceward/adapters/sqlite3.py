"""
Atomic mode on the caller's own `sqlite3.Connection`.

With no transaction open, one is opened and ended by us (BEGIN IMMEDIATE: a racing caller then waits, and replays the
winner). Inside the caller's transaction a savepoint is used, and the caller commits. A connection in autocommit
with no transaction open is refused: the record would commit alone.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from onceward._core.capabilities import AwaitedTransaction
from onceward._core.errors import ConfigurationError, IllegalMove
from onceward._core.record import PutResult, Record, Write
from onceward.adapters._registry import TRANSACTION_ENDED
from onceward.adapters.record_database import translate_error_in_transaction
from onceward.runtime import flow_driver
from onceward.stores._sqlite_rows import extend, find_on
from onceward.stores.sqlite import AsyncSqliteStore, SqliteStore, put_on
from onceward.stores.tables.sql_steps import SqlSteps
from onceward.stores.tables.sqlite_driver import translate_sql

T = TypeVar("T")


def join(connection: sqlite3.Connection, store: object) -> Sqlite3Transaction:
    """The adapter for this connection; refused unless it is open on the store's own database."""
    return Sqlite3Transaction(connection, store)


def run_in_transaction(connection: sqlite3.Connection, store: object, steps: SqlSteps[T]) -> T:
    """Run steps of ours in the caller's transaction; it stays open."""
    return Sqlite3Transaction(connection, store).run_in_transaction(steps)


def join_async(connection: sqlite3.Connection, store: object) -> AwaitedTransaction:
    """The adapter for this connection under an `AsyncGate`. It blocks: sqlite3 cannot await; statements are short."""
    return AwaitedTransaction(Sqlite3Transaction(connection, store))


async def run_in_transaction_async(connection: sqlite3.Connection, store: object, steps: SqlSteps[T]) -> T:
    """Run steps of ours in the caller's transaction; it stays open."""
    return Sqlite3Transaction(connection, store).run_in_transaction(steps)


class Sqlite3Transaction:
    """The caller's sqlite3 connection."""

    def __init__(self, connection: sqlite3.Connection, store: object) -> None:
        if not isinstance(store, SqliteStore | AsyncSqliteStore):
            raise ConfigurationError(
                "this gate's store is not a SQLite file, so the record could not share your transaction; open the "
                "gate on the same database: Gate('sqlite:///your.db', ...)"
            )
        _check_same_file(connection, store.path)
        self._connection = connection
        self._path = store.path
        self._environment = store.environment
        self._opened: list[tuple[str, bool]] = []
        """Savepoints, innermost last, and whether the transaction was opened with them."""

    def begin(self) -> bool:
        """
        Open a transaction (True) or, inside the caller's own, a savepoint (False).

        A savepoint is set in either case: if it is gone later, somebody has ended the transaction.
        """
        connection = self._connection
        opens = self._check_not_alone("the record")
        name = f"onceward_{len(self._opened)}"
        try:
            with self._translated():
                if opens:
                    connection.execute("BEGIN IMMEDIATE")
                connection.execute(f"SAVEPOINT {name}")
        except BaseException:
            if opens:
                connection.rollback()
            raise
        self._opened.append((name, opens))
        return opens

    def run_in_transaction(self, steps: SqlSteps[T]) -> T:
        """Run steps of ours in the caller's transaction. If none has begun, sqlite3 begins one at the first write."""
        self._check_not_alone("what is written")
        cursor = self._connection.cursor()
        cursor.row_factory = None
        with self._translated():
            return flow_driver.drive_steps(
                steps, lambda sql: cursor.execute(*translate_sql(sql, self._environment)).fetchall()
            )

    def _check_not_alone(self, what: str) -> bool:
        """Whether no transaction has begun; refused if none would."""
        connection = self._connection
        opens = not connection.in_transaction
        autocommits = connection.isolation_level is None or getattr(connection, "autocommit", -1) is True
        if opens and autocommits:
            raise ConfigurationError(
                f"this connection is in autocommit, so {what} would commit alone; BEGIN IMMEDIATE first, or open the "
                "connection with its default isolation_level"
            )
        return opens

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Write a record in this transaction if its current version is `expect`."""
        if not self._in_transaction():
            raise IllegalMove(
                TRANSACTION_ENDED
            )  # With isolation_level=None it would be written, and would commit alone.
        with self._translated():
            return put_on(self._connection, write, expect, self._environment.wall_us())

    def load(self, id: bytes) -> Record | None:
        """Look at a record inside the transaction."""
        with self._translated():
            return find_on(self._connection, id, self._environment.wall_us())

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer, in this transaction; how many there were."""
        with self._translated():
            return extend(self._connection.cursor(), family, replay, forget, self._environment.wall_us())

    def commit(self) -> None:
        """Commit what the last `begin` opened; `IllegalMove` if something else has ended it."""
        name, opened = self._opened[-1]
        if not self._end(f"RELEASE {name}"):
            raise IllegalMove(TRANSACTION_ENDED)
        self._opened.pop()
        if opened:
            try:
                with self._translated():
                    self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()  # Refused, it leaves the transaction open, and the savepoint is gone.
                raise

    def rollback(self) -> bool:
        """Undo what the last `begin` opened; False if somebody else has ended it."""
        if not self._opened:
            return True
        name, opened = self._opened.pop()
        if not self._end(f"ROLLBACK TO {name}"):
            # Not the transaction we were given: at least what has been begun since can be undone.
            with suppress(sqlite3.ProgrammingError):  # It is closed.
                self._connection.rollback()
            return False
        with self._translated():
            self._connection.execute("ROLLBACK" if opened else f"RELEASE {name}")
        return True

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return not self._in_transaction()

    def _end(self, statement: str) -> bool:
        """End a savepoint; False if it is gone."""
        if not self._in_transaction():
            return False
        try:
            self._connection.execute(statement)
        except sqlite3.OperationalError as error:
            if "no such savepoint" in str(error):
                return False
            with self._translated():
                raise
        return True

    def _in_transaction(self) -> bool:
        try:
            return self._connection.in_transaction
        except sqlite3.ProgrammingError:
            return False  # The function has closed it.

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn what SQLite says about our own statements into our errors; the caller's statements are not run here."""
        try:
            yield
        except sqlite3.Error as error:
            raised = translate_error_in_transaction(error, self._path)
            if raised is None:
                raise
            raise raised from error


def _is_same(theirs: str, path: Path) -> bool:
    """`os.stat` itself: this is asked for every call, and pathlib would take four times as long."""
    try:
        return os.path.samestat(os.stat(theirs), os.stat(path))  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return False


def _check_same_file(connection: sqlite3.Connection, path: Path) -> None:
    cursor = connection.cursor()
    cursor.row_factory = None
    for _, name, file in cursor.execute("PRAGMA database_list"):
        main = name.decode() if isinstance(name, bytes) else name
        if main == "main":
            theirs = file.decode() if isinstance(file, bytes) else file
            if theirs and _is_same(theirs, path):
                return
            raise ConfigurationError(
                "atomic mode needs your rows and the gate's records in one database: your connection is open on "
                f"{theirs or 'a temporary database'}, the gate's store is {path}"
            )
