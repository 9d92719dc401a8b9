"""
Atomic mode on Django's connections: `django.db.connection` and `connections["name"]`, on PostgreSQL and SQLite.

Transactions and savepoints are those of `django.db.transaction.atomic`, so that nesting, `durable` and `on_commit`
behave as Django's users know them. Outside of a transaction, one is opened and committed by us; inside, or where
autocommit is off, a savepoint is used and the caller commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from onceward._core.errors import ConfigurationError, IllegalMove
from onceward._core.record import PutResult, Record, Write
from onceward.adapters._registry import TRANSACTION_ENDED
from onceward.adapters.record_database import (
    TRANSACTION_FAILED,
    LibraryWriter,
    RecordDatabase,
    SavepointGone,
    record_database_of,
)
from onceward.runtime import flow_driver
from onceward.stores.tables.sql_steps import SqlSteps

T = TypeVar("T")


def join(connection: Any, store: object) -> DjangoTransaction:
    """The adapter for this connection; refused unless it is open on the store's own database."""
    return DjangoTransaction(_resolved(connection), record_database_of(store))


def join_async(connection: Any, store: object) -> NoReturn:
    """Refuse an `AsyncGate`: Django's transactions only block."""
    raise ConfigurationError(
        "Django's transactions do not work under asyncio, so an AsyncGate cannot join them; put the transaction into a "
        "function with a blocking Gate, and await that: await sync_to_async(book)(...)"
    )


def run_in_transaction(connection: Any, store: object, steps: SqlSteps[T]) -> T:
    """Run steps of ours in the caller's transaction; it stays open."""
    return join(connection, store).run_in_transaction(steps)


async def run_in_transaction_async(connection: Any, store: object, steps: SqlSteps[T]) -> NoReturn:
    """Run steps of ours in the caller's transaction; it stays open."""
    join_async(connection, store)


def writer(connection: Any) -> LibraryWriter:
    """How `insert_once` runs statements on this connection."""
    connection = _resolved(connection)

    def run(sql: str, values: list[Any]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(sql, values)
            written: int = cursor.rowcount
            return written

    def ask(sql: str, values: list[Any]) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall())

    return LibraryWriter(connection.vendor, run, ask)


def _resolved(connection: Any) -> Any:
    if isinstance(connection, ConnectionProxy):
        return connections[connection.alias]
    if isinstance(connection, BaseDatabaseWrapper):
        return connection
    raise ConfigurationError(
        f"of Django, use django.db.connection or django.db.connections['name'], not {type(connection).__name__}"
    )


class DjangoTransaction:
    """The caller's connection, under its alias."""

    def __init__(self, connection: Any, database: RecordDatabase) -> None:
        self._connection = connection
        self._database = database
        self._opened: list[list[transaction.Atomic]] = []
        """What each `begin` has entered and nobody has left: a transaction if need be, and a savepoint in it."""
        self.nested = False
        """Whether the caller was in a savepoint of its own."""
        self._committed = False
        self._gone = False
        """Whether a savepoint was found missing: somebody ended the transaction in SQL, behind Django's back."""

    def begin(self) -> bool:
        """
        Open a transaction (True) or, inside the caller's own, a savepoint (False).

        A savepoint is set in either case: if it is gone later, somebody has ended the transaction.
        """
        connection = self._connection
        self._check_kind()
        with self._translated():
            opens = not connection.in_atomic_block and connection.get_autocommit()
        self.nested = any(savepoint is not None for savepoint in connection.savepoint_ids)
        entered: list[transaction.Atomic] = []
        self._opened.append(entered)
        try:
            with self._translated():
                if opens:
                    self._enter(entered)
                    connection.on_commit(self._note_the_commit)  # The first: it says whether later ones were reached.
                connection.validate_no_broken_transaction()
                self._check()
                if opens:
                    with self._cursor() as cursor:
                        self._database.enter(cursor)
                self._enter(entered)
        except BaseException:
            self.rollback()
            raise
        return opens

    def run_in_transaction(self, steps: SqlSteps[T]) -> T:
        """Run steps of ours in the caller's transaction; it stays open."""
        connection = self._connection
        self._check_kind()
        if not connection.in_atomic_block and connection.get_autocommit():
            raise ConfigurationError(
                "this connection is in autocommit, so what is written would commit alone; put it into "
                "`with transaction.atomic():`, with the rows that it is about"
            )
        with self._translated():
            connection.validate_no_broken_transaction()
            connection.ensure_connection()
            self._check()
            if self._database.database == "sqlite":
                cursor = connection.connection.cursor()
                return flow_driver.drive_steps(steps, lambda sql: self._database.ask(cursor, sql))
            with connection.cursor() as cursor:
                return flow_driver.drive_steps(steps, lambda sql: self._database.ask(cursor, sql))

    def _check_kind(self) -> None:
        if self._connection.vendor != self._database.database:
            raise ConfigurationError(
                f"atomic mode needs your rows and the gate's records in one database: your connection is to "
                f"{self._connection.vendor}, the gate's store is {self._database.database}"
            )

    def _enter(self, entered: list[transaction.Atomic]) -> None:
        connection = self._connection
        by_hand = not connection.in_atomic_block and not connection.get_autocommit()
        if by_hand and connection.vendor == "sqlite" and not connection.connection.in_transaction:
            # sqlite3 begins when something is written. A savepoint before that would be the transaction, and its
            # release the commit.
            connection.connection.execute("BEGIN IMMEDIATE")
        block = transaction.atomic(using=connection.alias)
        block.__enter__()
        entered.append(block)

    def _check(self) -> None:
        """That rows and records are in one database; on PostgreSQL once for each connection."""
        if self._database.database == "sqlite":
            self._database.check(self._connection.connection.cursor())
        elif not self._database.knows(self._connection.connection):
            with self._connection.cursor() as cursor:
                self._database.check(cursor)
            self._database.remember(self._connection.connection)

    def _note_the_commit(self) -> None:
        self._committed = True

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Write a record in this transaction if its current version is `expect`."""
        with self._translated(), self._cursor() as cursor:
            return self._database.put(cursor, write, expect)

    def load(self, id: bytes) -> Record | None:
        """Read one record in this transaction; None if there is none."""
        with self._translated(), self._cursor() as cursor:
            return self._database.load(cursor, id)

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer, in this transaction; how many there were."""
        with self._translated(), self._cursor() as cursor:
            return self._database.extend(cursor, family, replay, forget)

    def commit(self) -> None:
        """Commit what the last `begin` opened; `IllegalMove` if something else has ended it."""
        entered = self._opened[-1]
        try:
            with self._translated():
                self._connection.validate_no_broken_transaction()  # Or leaving would undo without a word.
                entered.pop().__exit__(None, None, None)
        except BaseException as error:
            self._gone = self._gone or isinstance(error, SavepointGone)
            if len(self._opened) > 1:
                self.rollback()  # The flow undoes what is around it.
            raise
        while entered:
            try:
                with self._database.confirming(self._connection.connection):
                    entered.pop().__exit__(None, None, None)
            except Error:
                if self._committed:
                    raise  # Of the caller's own `on_commit`: the transaction stands.
                with self._translated(committing=True):
                    raise
        self._opened.pop()

    def rollback(self) -> bool:
        """Undo what the last `begin` opened; False if somebody else has ended it."""
        entered = self._opened.pop() if self._opened else []
        while entered:
            entered.pop().__exit__(_Undone, _Undone(), None)
            # Django swallows that a savepoint is gone, and dooms what is around it.
            lost = getattr(self._connection.connection, "closed", False)  # Then the server has undone it.
            self._gone = self._gone or (self._connection.needs_rollback and not lost)
        return not self._gone

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return not self._connection.in_atomic_block and self._connection.autocommit

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """On SQLite the driver's own: Django's takes other placeholders, and fails on ours where DEBUG is on."""
        if self._database.database == "sqlite":
            if not self._connection.connection.in_transaction:
                self._gone = True
                raise SavepointGone(TRANSACTION_ENDED)  # Whatever is written now would commit alone.
            yield self._connection.connection.cursor()
        else:
            with self._connection.cursor() as cursor:
                yield cursor

    @contextmanager
    def _translated(self, *, committing: bool = False) -> Iterator[None]:
        """Turn what is said about our own statements into our errors; the caller's are not run here."""
        with self._database.translated(Error, committing=committing):
            try:
                yield
            except transaction.TransactionManagementError as error:
                raise IllegalMove(TRANSACTION_FAILED) from error


class _Undone(Exception):
    """What an atomic block is left with, so that it is undone."""
