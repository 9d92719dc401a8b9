"""
The PostgreSQL database that holds both the caller's rows and the records, for every driver and library.

It knows which database that is, runs our statements there, and translates errors inside the caller's transaction.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onceward._core.errors import ConfigurationError, IllegalMove, RetryTransaction, StoreUnavailable
from onceward._core.record import PutResult, Record, Write
from onceward.adapters._notices import collect_notices
from onceward.adapters._registry import NO_ENCODING, TRANSACTION_ENDED
from onceward.adapters.record_database import TRANSACTION_FAILED, SavepointGone, driver_error, sqlstate_of
from onceward.stores import _postgres_rows as rows
from onceward.stores._postgres_errors import (
    DRIVER_ERRORS,
    READ_ONLY,
    NoticeListener,
    first_line,
    is_server_error,
    read_only_transaction,
    translate_error,
    translate_sqlstate,
    unconfirmed_error,
)
from onceward.stores.postgres import AsyncPostgresStore, PostgresStore
from onceward.stores.tables.postgres_driver import translate_sql
from onceward.stores.tables.sql_steps import Row, Sql

PUT_TRIES = 10
"""Of a put whose snapshot was too old: under READ COMMITTED the second knows."""
STALE_STATEMENT = frozenset(("26000", "0A000", "42P05"))
"""What was prepared is gone, does not fit the table any more, or was prepared by somebody else (in a pooler)."""

_RUN_AGAIN = frozenset(("40001", "40P01", "55P03"))
"""Serialization failure, deadlock, lock timeout."""
_verified: weakref.WeakKeyDictionary[Any, tuple[Any, ...]] = weakref.WeakKeyDictionary()
"""Connections of drivers that have been looked at, and the database that they were found to be open on."""


class PostgresRecordDatabase:
    """A PostgreSQL database. Its cursors take parameters by name, spelled as psycopg spells them."""

    database = "postgresql"

    def __init__(self, store: PostgresStore | AsyncPostgresStore) -> None:
        self.name = store.target.name
        self.lock_timeout = store.target.lock_timeout
        self._store: Any = store
        self.known_address: tuple[Any, ...] | None = store.known_identity
        """Which database this is, if somebody has asked before; whoever awaits has it from `load_identity`."""

    async def load_identity(self) -> None:
        """Learn from an awaiting store which database it is in."""
        self.known_address = await self._store.identify()

    @property
    def address(self) -> tuple[Any, ...]:
        """Which database this is. Asking makes the tables if they are not there."""
        known: tuple[Any, ...] = self.known_address or self._store.identity
        return known

    def check(self, cursor: Any) -> None:
        """Refuse a connection that is open on another database."""
        [theirs] = _ask(cursor, rows.IDENTITY, {})
        self.check_identity(theirs)

    def check_identity(self, theirs: tuple[Any, ...], where: str = "another one") -> None:
        """Refuse a connection whose answer to `IDENTITY` is not ours; `where` it is open, if that is known."""
        if isinstance(theirs[-1], bytes):
            raise ConfigurationError(NO_ENCODING)
        if theirs != self.address:
            raise ConfigurationError(
                "atomic mode needs your rows and the gate's records in one database: your connection is open on "
                f"{where}, the gate's store is {self.name}"
            )

    def knows(self, connection: Any) -> bool:
        """Whether this connection has been checked before."""
        return _verified.get(connection) == self.address

    def remember(self, connection: Any) -> None:
        """Note that this connection has been checked."""
        _verified[connection] = self.address

    def enter(self, cursor: Any) -> None:
        """Wait for the turn to write, where only one transaction at a time can. Here many can."""

    def put(self, cursor: Any, write: Write, expect: bytes | None) -> PutResult:
        """Write a record if its current version is `expect`, in the transaction of the cursor's connection."""
        parameters = rows.put_parameters(write, expect, self.lock_timeout, relaxed=False)
        sql = rows.JOINED_CLAIM if expect is None else rows.JOINED_SWAP
        for _ in range(PUT_TRIES):
            [row] = self._ask(cursor, sql, parameters)
            result = rows.put_result_of(row, write, expect)
            if result is not None:
                return result
        raise snapshot_too_old()

    def load(self, cursor: Any, id: bytes) -> Record | None:
        """Read one record in the transaction of the cursor's connection."""
        for now, *row in self._ask(cursor, rows.FIND, {"id": id}):
            return rows.record_of(now, row)
        return None

    def extend(self, cursor: Any, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer, in the transaction of the cursor's connection."""
        parameters = {"family": family, "replay": replay, "forget": forget, "lock_timeout": self.lock_timeout}
        [(many, _)] = self._ask(cursor, rows.JOINED_EXTEND, parameters)
        return int(many)

    def ask(self, cursor: Any, sql: Sql) -> list[Row]:
        """Run one statement in the transaction of the cursor's connection; its rows."""
        return _ask(cursor, *self.spelled(sql))

    def spelled(self, sql: Sql) -> tuple[bytes, dict[str, Any]]:
        """A statement of steps as psycopg takes it, about our own tables, and its values."""
        return rows.qualified(self.address[-1], translate_sql(sql.text)), dict(sql.values)

    def _ask(self, cursor: Any, sql: bytes, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Of our own tables, wherever the caller's search path leads by now."""
        return _ask(cursor, rows.qualified(self.address[-1], sql), parameters)

    @contextmanager
    def translated(self, *libraries: type[BaseException], committing: bool = False) -> Iterator[None]:
        """A block in which the driver's errors become ours; a violated constraint of the caller's stays as it is."""
        known: tuple[type[BaseException], ...] = (OverflowError, UnicodeError, *libraries)
        try:
            yield
        except known as error:
            raised = self.meaning(driver_error(error), committing=committing)
            if raised is None:
                raise
            raise raised from error

    @contextmanager
    def confirming(self, connection: Any) -> Iterator[None]:
        """A block that commits; `StoreUnavailable` after it if the synchronous standby was not waited for."""
        listener = NoticeListener()
        with collect_notices(connection, listener):
            yield
        if listener.unconfirmed:
            raise unconfirmed_error(self.name)

    def meaning(self, error: BaseException, *, committing: bool = False) -> Exception | None:
        """
        What any driver's error about a statement of ours means inside the caller's transaction.

        None if it is the caller's own constraint or trigger that speaks: its word is left as it is.
        """
        code, line = sqlstate_of(error), first_line(error)
        if code in _RUN_AGAIN:
            return RetryTransaction(f"{line}; roll back and run your transaction again with the same key")
        match code or "":
            case "25P02":  # The transaction has failed already: somebody swallowed an error.
                return IllegalMove(TRANSACTION_FAILED)
            case "3B001" | "25P01":  # There is no such savepoint, or not even a transaction.
                return SavepointGone(TRANSACTION_ENDED)
            case constraint if constraint.startswith("23"):
                return None
            case _ if committing and not is_server_error(code):
                return None
            case stale if stale in STALE_STATEMENT:
                return RetryTransaction(
                    f"{line}: the statements that this connection had prepared are not there any more (DEALLOCATE, a "
                    "table that changed, or a pooler that goes to another server session); roll back and run your "
                    "transaction again with the same key. If it happens often, set prepare_threshold=None on the "
                    "connection"
                )
            case _ if code == READ_ONLY:
                return StoreUnavailable(read_only_transaction(self.name))
        return (
            translate_error(error, self.name)
            if isinstance(error, DRIVER_ERRORS)
            else translate_sqlstate(code, line, self.name)
        )


def snapshot_too_old() -> RetryTransaction:
    """What to raise if a put has asked often enough, and its snapshot was too old each time."""
    return RetryTransaction("your transaction cannot see who won; roll it back and run it again with the same key")


def _ask(cursor: Any, sql: bytes, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    cursor.execute(sql.decode(), parameters)
    # psycopg2 hands out memoryviews.
    return [tuple(bytes(one) if isinstance(one, memoryview) else one for one in row) for row in cursor.fetchall()]
