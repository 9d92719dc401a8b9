"""
The database that holds both the caller's rows and the records, reached through another library's cursor.

A library such as SQLAlchemy or Django stands between the caller and several drivers. Its adapter opens and ends
transactions in the library's own way. The statements in between, and the meaning of the drivers' errors, are here for
SQLite and in `_postgres_record_database.py` for PostgreSQL.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from onceward._core.errors import ConfigurationError, IllegalMove, RetryTransaction
from onceward._core.record import PutResult, Record, Write
from onceward.adapters._registry import STATEMENT_IN_PROGRESS, TRANSACTION_ENDED
from onceward.stores import _sqlite_rows as sqlite_rows
from onceward.stores._sqlite_file import is_busy
from onceward.stores._sqlite_file import translate_error as meaning_on_sqlite
from onceward.stores.sqlite import AsyncSqliteStore, SqliteStore
from onceward.stores.tables.sql_steps import Row, Sql
from onceward.stores.tables.sqlite_driver import translate_sql as spelled_for_sqlite

TRANSACTION_FAILED = (
    "a statement of your transaction had failed, so it can only be rolled back; do not "
    "catch that error inside the transaction"
)


class SavepointGone(IllegalMove):
    """The savepoint is not there any more: somebody ended the transaction behind the library's back."""


class LibraryWriter(NamedTuple):
    """For `insert_once`: how statements are run through a library, spelled as psycopg takes them."""

    database: str
    run: Callable[[str, list[Any]], int]
    """How many rows were written."""
    ask: Callable[[str, list[Any]], list[Any]]
    """The rows."""


class RecordDatabase(Protocol):
    """The database that holds both the caller's rows and the records."""

    database: str
    """What SQLAlchemy and Django call it."""

    @property
    def address(self) -> object:
        """Which one it is: a connection has to be checked but once."""

    async def load_identity(self) -> None:
        """Learn from an awaiting store which one it is, before anything else is asked."""

    def check(self, cursor: Any) -> None:
        """Refuse a connection that is open on another database."""

    def knows(self, connection: Any) -> bool:
        """Whether a driver's connection has been checked before, and need not be again."""

    def remember(self, connection: Any) -> None:
        """Note that a driver's connection has been checked."""

    def enter(self, cursor: Any) -> None:
        """In a transaction that has just begun: wait for one's turn to write, where only one at a time can."""

    def put(self, cursor: Any, write: Write, expect: bytes | None) -> PutResult:
        """Write a record if its current version is `expect`, in the transaction of the cursor's connection."""

    def load(self, cursor: Any, id: bytes) -> Record | None:
        """Read one record in the transaction of the cursor's connection."""

    def extend(self, cursor: Any, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer, in the transaction of the cursor's connection."""

    def ask(self, cursor: Any, sql: Sql) -> list[Row]:
        """Run one statement of `onceward.stores.tables.sql_steps`, in that transaction."""

    def translated(self, *libraries: type[BaseException], committing: bool = False) -> AbstractContextManager[None]:
        """
        A block in which a driver's error, or one of these around it, becomes one of ours.

        A constraint's word is left as it is: none of ours is violated by what we do, so it is the caller's. While
        committing, what the caller has put off is done, too, and its triggers may raise whatever they like.
        """

    def confirming(self, connection: Any) -> AbstractContextManager[None]:
        """
        A block in which the driver's connection commits: `StoreUnavailable` after it, if that did not wait for the
        database's synchronous standby although it should have.
        """


def record_database_of(store: object) -> RecordDatabase:
    """The database of a gate's store; refused if that cannot share a transaction with anybody."""
    if isinstance(store, SqliteStore | AsyncSqliteStore):
        return SqliteRecordDatabase(store)
    postgres = sys.modules.get("onceward.stores.postgres")  # psycopg is an extra: whoever has such a store has it.
    if postgres is not None and isinstance(store, postgres.PostgresStore | postgres.AsyncPostgresStore):
        from onceward.adapters._postgres_record_database import PostgresRecordDatabase

        return PostgresRecordDatabase(store)
    raise ConfigurationError(
        "this gate's store is neither a SQLite file nor a PostgreSQL database, so the record could not share your "
        "transaction; open the gate on the same database: Gate('postgresql://...', ...)"
    )


class SqliteRecordDatabase:
    """A SQLite file. Its cursors take what those of `sqlite3` take."""

    database = "sqlite"

    def __init__(self, store: SqliteStore | AsyncSqliteStore) -> None:
        self.path = store.path
        self.address = self.path
        self._environment = store.environment

    async def load_identity(self) -> None:
        """Learn from an awaiting store which database it is in. Here everybody knows."""

    def check(self, cursor: Any) -> None:
        """Refuse a connection that is open on another database."""
        for _, name, file in cursor.execute("PRAGMA database_list").fetchall():
            if name == "main" and not (file and Path(file).exists() and Path(file).samefile(self.path)):
                raise ConfigurationError(
                    "atomic mode needs your rows and the gate's records in one database: your connection is open on "
                    f"{file or 'a temporary database'}, the gate's store is {self.path}"
                )

    def knows(self, connection: Any) -> bool:
        """Never: the check is cheap, and another file can be put in the place of this one."""
        return False

    def remember(self, connection: Any) -> None:
        """Nothing to note: see `knows`."""

    def enter(self, cursor: Any) -> None:
        """Take the write lock now. A plain BEGIN would read first, and its first write could come too late."""
        cursor.execute("DELETE FROM onceward_records WHERE 0")

    def put(self, cursor: Any, write: Write, expect: bytes | None) -> PutResult:
        """Write a record if its current version is `expect`, in the transaction of the cursor's connection."""
        return sqlite_rows.put_in(cursor, write, expect, self._environment.wall_us())

    def load(self, cursor: Any, id: bytes) -> Record | None:
        """Read one record in the transaction of the cursor's connection."""
        return sqlite_rows.find(cursor, id, self._environment.wall_us())

    def extend(self, cursor: Any, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer, in the transaction of the cursor's connection."""
        return sqlite_rows.extend(cursor, family, replay, forget, self._environment.wall_us())

    def ask(self, cursor: Any, sql: Sql) -> list[Row]:
        """Run one statement in the transaction of the cursor's connection; its rows."""
        return list(cursor.execute(*spelled_for_sqlite(sql, self._environment)).fetchall())

    @contextmanager
    def translated(self, *libraries: type[BaseException], committing: bool = False) -> Iterator[None]:
        """A block in which the driver's errors become ours; a violated constraint of the caller's stays as it is."""
        known: tuple[type[BaseException], ...] = (sqlite3.Error, *libraries)
        try:
            yield
        except known as error:
            raised = translate_error_in_transaction(driver_error(error), self.path)
            if raised is None:
                raise
            raise raised from error

    def confirming(self, connection: Any) -> AbstractContextManager[None]:
        """A block that commits. SQLite has no standby to wait for."""
        return nullcontext()


def translate_error_in_transaction(error: BaseException, path: Path) -> Exception | None:
    """
    What an error of SQLite's about a statement of ours means inside the caller's transaction.

    None if it is a constraint that speaks. None of ours is violated by what we do: it is the caller's, and may be one
    that is checked at the commit.
    """
    if not isinstance(error, sqlite3.Error) or isinstance(error, sqlite3.IntegrityError):
        return None
    if "no such savepoint" in str(error):
        return SavepointGone(TRANSACTION_ENDED)
    if "statements in progress" in str(error):
        return IllegalMove(STATEMENT_IN_PROGRESS)
    if is_busy(error):
        return RetryTransaction(
            "the database is locked by another writer; roll back and run your transaction again. If it had read before "
            "it wrote, waiting cannot help: begin it with BEGIN IMMEDIATE"
        )
    return meaning_on_sqlite(error, path)


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE in an error of psycopg, psycopg2, asyncpg or pg8000; None if there is none."""
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if code is None and error.args and isinstance(error.args[0], dict):
        code = error.args[0].get("C")  # How pg8000 says it.
    return code


def driver_error(error: BaseException) -> BaseException:
    """The driver's own error inside the library's: SQLAlchemy keeps it as `orig`, Django as its cause."""
    return getattr(error, "orig", None) or error.__cause__ or error
