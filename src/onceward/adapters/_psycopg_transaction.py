# Made from _psycopg_transaction_async.py by `make halves`: change that file, not this one.
"""
The adapter for the caller's psycopg connection: it sends what `PsycopgTransactionFlow` yields.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from onceward._core.caller_transaction import Finishing
from onceward._core.errors import ConfigurationError
from onceward._core.record import PutResult, Record, Write
from onceward.adapters._postgres_record_database import PostgresRecordDatabase
from onceward.adapters._psycopg_pipeline import SendRollback, SendStatements, exchange
from onceward.adapters._psycopg_transaction_flow import (
    Flow,
    IdentifyStore,
    PsycopgTransactionFlow,
    check_connection,
    postgres_database_of,
    statement_failure,
    transaction_has_ended,
)
from onceward.runtime import flow_driver
from onceward.stores import _postgres_rows as rows
from onceward.stores._postgres_errors import DRIVER_ERRORS
from onceward.stores.tables.sql_steps import Row, Sql, SqlSteps

T = TypeVar("T")


def join(connection: Any, store: object) -> PsycopgTransaction:
    """The adapter for this connection under a `Gate`; refused unless it is open on the store's own database."""
    return PsycopgTransaction(connection, _database_of(connection, store))


def run_in_transaction(connection: Any, store: object, steps: SqlSteps[T]) -> T:
    """Run steps of ours in the caller's transaction. If none has begun, psycopg begins one; the caller commits."""
    database = _database_of(connection, store)
    check_connection(connection, "what is written")
    # A cursor of our own kind: the caller's may take other placeholders.
    with database.translated(psycopg.Error), psycopg.Cursor[Row](connection, row_factory=tuple_row) as cursor:
        if not database.knows(connection):
            cursor.execute(rows.IDENTITY)
            [theirs] = cursor.fetchall()
            database.check_identity(theirs)
            database.remember(connection)

        def ask(sql: Sql) -> list[Row]:
            cursor.execute(*database.spelled(sql))
            return cursor.fetchall()

        return flow_driver.drive_steps(steps, ask)


def _database_of(connection: Any, store: object) -> PostgresRecordDatabase:
    """The database that this connection is to be open on; refused if it is of another colour or library."""
    database = postgres_database_of(store, "Gate")
    if not isinstance(connection, psycopg.Connection):
        raise ConfigurationError(
            f"a Gate needs a psycopg.Connection, not {type(connection).__name__}; for an AsyncConnection use AsyncGate"
        )
    return database


class PsycopgTransaction(Finishing):
    """The caller's `psycopg.Connection`."""

    def __init__(self, connection: psycopg.Connection[Any], database: PostgresRecordDatabase) -> None:
        self._connection = connection
        self._database = database
        self._statements = PsycopgTransactionFlow(connection, database)

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return transaction_has_ended(self._connection)

    def begin(self) -> bool:
        """Open a transaction (True) or, inside the caller's own, a savepoint (False)."""
        return self._run(self._statements.begin())

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Write a record in this transaction if its current version is `expect`."""
        return self._run(self._statements.put(write, expect))

    def load(self, id: bytes) -> Record | None:
        """Look at a record inside the transaction."""
        return self._run(self._statements.load(id))

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer, in this transaction; how many there were."""
        return self._run(self._statements.extend(family, replay, forget))

    def finish(self, write: Write, expect: bytes | None) -> PutResult:
        """Put and commit in one round trip; if it does not land, roll back."""
        return self._run(self._statements.finish(write, expect))

    def commit(self) -> None:
        """Commit what the last `begin` opened; `IllegalMove` if something else has ended it."""
        self._run(self._statements.commit())

    def rollback(self) -> bool:
        """Undo what the last `begin` opened; False if somebody else has ended it."""
        return self._run(self._statements.rollback())

    def _run(self, flow: Flow[T]) -> T:
        return flow_driver.drive_steps(flow, self._perform)

    def _perform(self, effect: SendStatements | SendRollback | IdentifyStore) -> Any:
        if isinstance(effect, IdentifyStore):
            return self._database.address
        connection = self._connection
        answers: list[Any] = []
        try:
            with connection.lock, closing(exchange(connection, effect, answers)) as talking:
                connection.wait(talking)
        except DRIVER_ERRORS as error:
            raise statement_failure(connection, effect, answers, error) from error
        return answers
