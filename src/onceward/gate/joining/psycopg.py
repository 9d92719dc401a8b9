"""
Atomic mode on the caller's own `psycopg.Connection`.

With no transaction open, one is opened and ended by us. Inside the caller's transaction a savepoint is used, and the
caller commits. A connection in autocommit with no transaction open is refused: the record would commit alone.

Under READ COMMITTED a racer waits at the constraint, as long as the store's lock timeout allows, and replays the
winner. Above that level, on a deadlock and on a lock timeout, the caller has to run its transaction again:
`RetryTransaction`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from onceward._core.errors import ConfigurationError, IllegalMove, RetryTransaction
from onceward._core.record import Standing, Write
from onceward.gate.joining import AsyncJoined
from onceward.stores import _postgres_rows as rows
from onceward.stores._postgres_errors import DRIVER_ERRORS, meaning_of
from onceward.stores.postgres import PostgresStore

ASKS = 10
"""Of a put whose snapshot was too old: under READ COMMITTED the second knows."""

_RUN_AGAIN = frozenset(("40001", "40P01", "55P03"))
"""Serialization failure, deadlock, lock timeout."""
_FAILED = "25P02"
"""The transaction has failed already: somebody swallowed an error."""

_verified: weakref.WeakKeyDictionary[psycopg.Connection[Any], tuple[Any, ...]] = weakref.WeakKeyDictionary()
"""Connections that have been looked at and found good, and what they are connected to."""


def join(connection: Any, store: object) -> JoinedPsycopg:
    """See `onceward.gate.joining.join`."""
    return JoinedPsycopg(connection, store)


def join_async(connection: Any, store: object) -> AsyncJoined:
    """See `onceward.gate.joining.join_async`."""
    raise ConfigurationError("atomic mode of an AsyncGate does not know psycopg connections yet; use Gate")


class JoinedPsycopg:
    """The caller's psycopg connection."""

    def __init__(self, connection: Any, store: object) -> None:
        if not isinstance(store, PostgresStore):
            raise ConfigurationError(
                "this gate's store is not a PostgreSQL database for blocking callers, so the record could not share "
                "your transaction; open the gate on the same database: Gate('postgresql://...', ...)"
            )
        if not isinstance(connection, psycopg.Connection):
            raise ConfigurationError(f"atomic mode knows psycopg.Connection, not {type(connection).__name__}")
        self._connection: psycopg.Connection[Any] = connection
        self._store = store
        self._opened: list[tuple[bytes, bool]] = []
        """Savepoints, innermost last, and whether the transaction was opened with them."""

    def begin(self) -> bool:
        """See `Joined.begin`. A savepoint is set in either case: if it is gone later, the transaction was ended."""
        connection = self._connection
        opens = connection.info.transaction_status == TransactionStatus.IDLE
        if opens and connection.autocommit:
            raise ConfigurationError(
                "this connection is in autocommit, so the record would commit alone; use connection.transaction(), or "
                "a connection that is not in autocommit"
            )
        ours = self._store.identity  # Before anything else: it makes the tables if they are not there.
        name = b"onceward_%d" % len(self._opened)
        with self._translated():
            connection.execute(b"SAVEPOINT " + name)  # psycopg begins the transaction, as the caller set it up.
        self._opened.append((name, opens))
        if _verified.get(connection) != ours:
            self._verify(ours)
        return opens

    def _verify(self, ours: tuple[Any, ...]) -> None:
        """Once for each connection: that its rows and our records are in one database, and its path leads to them."""
        with self._translated():
            [theirs] = self._ask(rows.IDENTITY, {})
        if theirs != ours:
            self.rollback()
            raise ConfigurationError(
                "atomic mode needs your rows and the gate's records in one database: your connection is open on "
                f"{self._connection.info.dbname} at {self._connection.info.host}, the gate's store is "
                f"{self._store.target.name}"
            )
        _verified[self._connection] = ours

    def put(self, write: Write, expect: bytes | None) -> Standing:
        """See `Joined.put`."""
        parameters = rows.put_parameters(write, expect, self._store.target.lock_timeout, relaxed=False)
        for _ in range(ASKS):
            with self._translated():
                [row] = self._ask(rows.JOINED_CLAIM if expect is None else rows.JOINED_SWAP, parameters)
            standing = rows.standing_of(row, write, expect)
            if standing is not None:
                return standing
        raise RetryTransaction("your transaction cannot see who won; roll it back and run it again with the same key")

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """See `Joined.extend`."""
        with self._translated():
            return len(self._ask(rows.JOINED_EXTEND, {"family": family, "replay": replay, "forget": forget}))

    def commit(self) -> None:
        """See `Joined.commit`."""
        name, opened = self._opened[-1]
        if not self._end(b"RELEASE SAVEPOINT " + name):
            raise IllegalMove(
                "your function ended the transaction that it was given (a commit or a rollback), so record and rows "
                "can no longer commit together; leave the ending to the gate"
            )
        with self._translated():
            if opened:
                self._connection.commit()
        self._opened.pop()

    def rollback(self) -> bool:
        """See `Joined.rollback`."""
        if not self._opened:
            return True
        name, opened = self._opened.pop()
        if self._connection.closed:
            return True  # The server has undone it.
        if not self._end(b"ROLLBACK TO SAVEPOINT " + name):
            # Not the transaction we were given: at least what has been begun since can be undone.
            self._connection.rollback()
            return False
        with self._translated():
            if opened:
                self._connection.rollback()
            else:
                self._connection.execute(b"RELEASE SAVEPOINT " + name)
        return True

    def _end(self, statement: bytes) -> bool:
        """End a savepoint; False if it is gone."""
        if self._connection.info.transaction_status == TransactionStatus.IDLE:
            return False
        try:
            self._connection.execute(statement)
        except psycopg.errors.InvalidSavepointSpecification:
            return False
        except DRIVER_ERRORS as error:
            raise self._meaning(error) from error
        return True

    def _ask(self, sql: bytes, parameters: Mapping[str, Any]) -> list[Any]:
        """On a cursor of our own kind: the caller's rows may be made into anything."""
        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            return cursor.execute(sql, parameters or None, binary=True).fetchall()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn what PostgreSQL says about our own statements into our errors; the caller's are not run here."""
        try:
            yield
        except DRIVER_ERRORS as error:
            raise self._meaning(error) from error

    def _meaning(self, error: BaseException) -> Exception:
        code = error.sqlstate if isinstance(error, psycopg.Error) else None
        if code in _RUN_AGAIN:
            return RetryTransaction(f"{error}; roll back and run your transaction again with the same key")
        if code == _FAILED:
            return IllegalMove(
                "a statement of your transaction had failed, so it can only be rolled back; let the error through"
            )
        return meaning_of(error, self._store.target.name)
