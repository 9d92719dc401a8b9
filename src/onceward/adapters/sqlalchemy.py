"""
Atomic mode on SQLAlchemy: `Session` and `Connection` under a `Gate`, `AsyncSession` and `AsyncConnection` under an
`AsyncGate`, on PostgreSQL and SQLite through whichever driver the engine uses.

A session that has not begun is begun and committed by us. Once it has begun, even by its autobegin at a SELECT, a
savepoint is used and the caller commits: what others began is never committed for them. A savepoint is set in either
case: if it is gone later, something else has ended the transaction.

Everything is written for blocking callers; SQLAlchemy runs it under asyncio (`run_sync`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import CursorResult, TextClause, exc, text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

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

_KNOWN = "Session and Connection on a Gate, AsyncSession and AsyncConnection on an AsyncGate"
_CHECKED = "onceward_checked"
"""In `Connection.info`, which lives as long as the driver's connection: the database that it is open on."""


def join(connection: Any, store: object) -> SqlalchemyTransaction:
    """The adapter for this connection; refused unless it is open on the store's own database."""
    if isinstance(connection, scoped_session):
        connection = connection()
    if not isinstance(connection, Session | Connection):
        raise ConfigurationError(_not_for("blocks", connection))
    return SqlalchemyTransaction(connection, record_database_of(store))


def join_async(connection: Any, store: object) -> AsyncSqlalchemyTransaction:
    """The adapter for this connection under an `AsyncGate`; refused unless it is open on the store's own database."""
    if isinstance(connection, async_scoped_session):
        connection = connection()
    if not isinstance(connection, AsyncSession | AsyncConnection):
        raise ConfigurationError(_not_for("awaits", connection))
    return AsyncSqlalchemyTransaction(connection, record_database_of(store))


def run_in_transaction(connection: Any, store: object, steps: SqlSteps[T]) -> T:
    """Run steps of ours in the caller's transaction; it stays open."""
    return join(connection, store).run_in_transaction(steps)


async def run_in_transaction_async(connection: Any, store: object, steps: SqlSteps[T]) -> T:
    """Run steps of ours in the caller's transaction; it stays open."""
    return await join_async(connection, store).run_in_transaction(steps)


def writer(connection: Any) -> LibraryWriter:
    """How `insert_once` runs statements on this session or connection."""
    if isinstance(connection, scoped_session):
        connection = connection()
    if not isinstance(connection, Session | Connection):
        raise ConfigurationError(
            f"insert_once blocks, and cannot use SQLAlchemy's {type(connection).__name__}; it knows Session and "
            "Connection. For those that are awaited: await insert_once_async(session, table, values, key=...)"
        )
    inner = connection.connection() if isinstance(connection, Session) else connection

    def execute(sql: str, values: list[Any]) -> CursorResult[Any]:
        return inner.execute(_numbered(sql), {f"p{number}": value for number, value in enumerate(values)})

    return LibraryWriter(
        inner.dialect.name,
        lambda sql, values: execute(sql, values).rowcount,
        lambda sql, values: list(execute(sql, values).all()),
    )


def _not_for(colour: str, connection: Any) -> str:
    return (
        f"this gate {colour}, and cannot use SQLAlchemy's {type(connection).__name__}; use {_KNOWN}. With an engine, "
        "give it a connection: engine.connect()"
    )


class _Opened(NamedTuple):
    """What one `begin` opened: a savepoint, and the transaction if it was not there."""

    transaction: Any | None
    savepoint: Any


class SqlalchemyTransaction:
    """The caller's session or connection."""

    def __init__(self, target: Session | Connection, database: RecordDatabase) -> None:
        self._target = target
        self._database = database
        self._opened: list[_Opened] = []
        """Innermost last."""
        self.nested = False
        """Whether the caller was in a savepoint of its own."""

    def begin(self) -> bool:
        """Open a transaction (True) or, inside the caller's own, a savepoint (False)."""
        target = self._target
        opens = not target.in_transaction()
        self.nested = bool(target.in_nested_transaction())
        with self._translated():
            transaction = target.begin() if opens else None
        try:
            self._flush()
            with self._translated():
                connection = self._connection()
                self._check(connection)
                if not _has_begun(connection):
                    # A savepoint would be the transaction, and its release the commit. And a racing caller waits here.
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                elif opens:
                    self._database.enter(_Cursor(connection))
                savepoint = target.begin_nested()
                self._connection()  # A session sets its savepoint when the connection is next asked for.
        except BaseException:
            if transaction is not None:
                transaction.rollback()
            raise
        self._opened.append(_Opened(transaction, savepoint))
        return opens

    def run_in_transaction(self, steps: SqlSteps[T]) -> T:
        """Run steps of ours in the caller's transaction. SQLAlchemy begins one if there is none."""
        with self._translated():
            connection = self._connection()
            self._check(connection)
            cursor = _Cursor(connection)
            return flow_driver.drive_steps(steps, lambda sql: self._database.ask(cursor, sql))

    def _check(self, connection: Connection) -> None:
        """That rows and records are in one database, once for each connection; and that there will be a transaction."""
        if connection.dialect.name != self._database.database:
            raise ConfigurationError(
                f"atomic mode needs your rows and the gate's records in one database: your connection is to "
                f"{connection.dialect.name}, the gate's store is {self._database.database}"
            )
        if connection.info.get(_CHECKED) != self._database.address:
            self._database.check(_Cursor(connection))
            connection.info[_CHECKED] = self._database.address
        if _is_autocommit(connection):
            raise ConfigurationError(
                "this connection is in AUTOCOMMIT, so the record would commit alone; use an engine, or a connection, "
                "without isolation_level='AUTOCOMMIT'"
            )

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return not self._target.in_transaction()

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Write a record in this transaction if its current version is `expect`."""
        with self._translated():
            connection = self._connection()
            if not _has_begun(connection):
                raise SavepointGone(TRANSACTION_ENDED)  # Whatever is written now would commit alone.
            return self._database.put(_Cursor(connection), write, expect)

    def load(self, id: bytes) -> Record | None:
        """Read one record in this transaction; None if there is none."""
        with self._translated():
            return self._database.load(_Cursor(self._connection()), id)

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer, in this transaction; how many there were."""
        with self._translated():
            return self._database.extend(_Cursor(self._connection()), family, replay, forget)

    def commit(self) -> None:
        """
        Commit what the last `begin` opened; `IllegalMove` if something else has ended it.

        A session is flushed first: if that violates a constraint, everything is undone.
        """
        transaction, savepoint = self._opened[-1]
        if not self._stands(savepoint):
            raise IllegalMove(TRANSACTION_ENDED)
        try:
            self._flush()
            with self._translated():
                savepoint.commit()
        except BaseException:
            if len(self._opened) > 1:
                self.rollback()  # The flow undoes what is around it.
            raise
        self._opened.pop()
        if transaction is not None:
            try:
                driver = self._connection().connection.driver_connection
                with self._translated(committing=True), self._database.confirming(driver):
                    transaction.commit()
            except BaseException:
                with suppress(exc.SQLAlchemyError):
                    self._target.rollback()
                raise

    def rollback(self) -> bool:
        """Undo what the last `begin` opened; False if somebody else has ended it."""
        if not self._opened:
            return True
        transaction, savepoint = self._opened.pop()
        try:
            if not self._stands(savepoint):
                raise SavepointGone(TRANSACTION_ENDED)
            with self._translated():
                savepoint.rollback()
                if transaction is not None:
                    transaction.rollback()
        except SavepointGone:
            # Not the transaction we were given: at least what has been begun since can be undone.
            self._opened.clear()
            self._target.rollback()
            return False
        except BaseException:
            if transaction is not None:
                with suppress(exc.SQLAlchemyError):  # Not every driver's lost connection is recognised as one.
                    self._target.rollback()
            raise
        return True

    def _stands(self, savepoint: Any) -> bool:
        """Whether, as far as SQLAlchemy knows, nobody has ended it."""
        if isinstance(self._target, Connection):
            return bool(savepoint.is_active)
        inner = self._target.get_nested_transaction()
        while inner is not None and inner is not savepoint:
            inner = inner.parent
        return inner is savepoint

    def _connection(self) -> Connection:
        if isinstance(self._target, Connection):
            return self._target
        try:
            return self._target.connection()
        except exc.UnboundExecutionError as error:
            raise ConfigurationError(
                "this session has no bind of its own, so it is not known which of its databases the record belongs to; "
                "give atomic mode a connection: session.connection(bind_arguments={'mapper': ...})"
            ) from error

    def _flush(self) -> None:
        """Outside of any translation: what a flush raises is the caller's own news."""
        if isinstance(self._target, Session):
            self._target.flush()

    @contextmanager
    def _translated(self, *, committing: bool = False) -> Iterator[None]:
        """Turn what is said about our own statements into our errors; the caller's are not run here."""
        try:
            with self._database.translated(exc.StatementError, committing=committing):
                yield
        except exc.PendingRollbackError as error:
            raise IllegalMove(TRANSACTION_FAILED) from error


class AsyncSqlalchemyTransaction:
    """The caller's awaiting session or connection: SQLAlchemy runs the blocking adapter under asyncio."""

    def __init__(self, target: AsyncSession | AsyncConnection, database: RecordDatabase) -> None:
        self._target = target
        self._database = database
        inner = target.sync_session if isinstance(target, AsyncSession) else target.sync_connection
        if inner is None:
            raise ConfigurationError("this AsyncConnection is not open; `async with engine.connect() as connection:`")
        self._joined = SqlalchemyTransaction(inner, database)

    @property
    def nested(self) -> bool:
        """Whether the caller was in a savepoint of its own when this began."""
        return self._joined.nested

    def is_over(self) -> bool:
        """Whether the caller's transaction has ended."""
        return self._joined.is_over()

    async def begin(self) -> bool:
        """Open a transaction (True) or, inside the caller's own, a savepoint (False)."""
        await self._database.load_identity()
        return await self._run(self._joined.begin)

    async def run_in_transaction(self, steps: SqlSteps[T]) -> T:
        """Run steps of ours in the caller's transaction; it stays open."""
        await self._database.load_identity()
        return await self._run(self._joined.run_in_transaction, steps)

    async def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Write a record in this transaction if its current version is `expect`."""
        return await self._run(self._joined.put, write, expect)

    async def load(self, id: bytes) -> Record | None:
        """Read one record in this transaction; None if there is none."""
        return await self._run(self._joined.load, id)

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer, in this transaction; how many there were."""
        return await self._run(self._joined.extend, family, replay, forget)

    async def commit(self) -> None:
        """Commit what the last `begin` opened; `IllegalMove` if something else has ended it."""
        await self._run(self._joined.commit)

    async def rollback(self) -> bool:
        """Undo what the last `begin` opened; False if somebody else has ended it."""
        return await self._run(self._joined.rollback)

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await self._target.run_sync(lambda _: work(*arguments))


class _Cursor:
    """A connection as a cursor: statements go through SQLAlchemy, in the spelling of the store's own driver."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._result: CursorResult[Any]

    def execute(self, sql: str, parameters: Any = ()) -> _Cursor:
        """Run a statement."""
        if isinstance(parameters, dict):
            self._result = self._connection.execute(_named(sql), parameters)
        else:
            self._result = self._connection.exec_driver_sql(sql, tuple(parameters))
        return self

    @property
    def rowcount(self) -> int:
        """How many rows were written."""
        return self._result.rowcount

    def fetchone(self) -> Any:
        """The first row, and no more; or None."""
        return self._result.first()

    def fetchall(self) -> list[Any]:
        """All rows."""
        return list(self._result.all())


@cache
def _named(sql: str) -> TextClause:
    """A statement of psycopg's as SQLAlchemy takes it for every driver: `%(id)s::bytea` is `(:id)::bytea` there."""
    return text(re.sub(r"%\((\w+)\)s", r"(:\1)", sql))


def _numbered(sql: str) -> TextClause:
    """A statement with `%s` as SQLAlchemy takes it. A colon or a doubled percent sign in a name is no placeholder."""
    numbers = itertools.count()
    spelled = re.sub("%(.)", lambda found: f":p{next(numbers)}" if found[1] == "s" else "%", sql.replace(":", "\\:"))
    return text(spelled)


def _is_autocommit(connection: Connection) -> bool:
    if connection.dialect.name != "sqlite":
        return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))
    # Without an isolation level, sqlite3 begins nothing by itself; an event of the engine's may have done it.
    driver: Any = connection.connection.driver_connection
    speaks = driver.isolation_level is not None and getattr(driver, "autocommit", None) is not True
    return not speaks and not driver.in_transaction


def _has_begun(connection: Connection) -> bool:
    """Whether SQLAlchemy's BEGIN is more than a word: `sqlite3` begins when something is written, or is told to."""
    driver: Any = connection.connection.driver_connection
    return connection.dialect.name != "sqlite" or bool(driver.in_transaction)
