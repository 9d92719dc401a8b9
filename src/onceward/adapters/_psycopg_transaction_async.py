# blocking half: _psycopg_transaction.py
"""
The adapter for the caller's psycopg connection: it sends what `PsycopgTransactionFlow` yields.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from onceward._core.caller_transaction_async import AsyncFinishing
from onceward._core.colour import AWAITS
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


def join_async(connection: Any, store: object) -> AsyncPsycopgTransaction:
    """The adapter for this connection under an `AsyncGate`; refused unless it is open on the store's own database."""
    return AsyncPsycopgTransaction(connection, _database_of_async(connection, store))


async def run_in_transaction_async(connection: Any, store: object, steps: SqlSteps[T]) -> T:
    """Run steps of ours in the caller's transaction. If none has begun, psycopg begins one; the caller commits."""
    database = _database_of_async(connection, store)
    check_connection(connection, "what is written")
    if AWAITS:
        await database.load_identity()
    # A cursor of our own kind: the caller's may take other placeholders.
    with database.translated(psycopg.Error):
        async with psycopg.AsyncCursor[Row](connection, row_factory=tuple_row) as cursor:
            if not database.knows(connection):
                await cursor.execute(rows.IDENTITY)
                [theirs] = await cursor.fetchall()
                database.check_identity(theirs)
                database.remember(connection)

            async def ask(sql: Sql) -> list[Row]:
                await cursor.execute(*database.spelled(sql))
                return await cursor.fetchall()

            return await flow_driver.drive_steps_async(steps, ask)


def _database_of_async(connection: Any, store: object) -> PostgresRecordDatabase:
    """The database that this connection is to be open on; refused if it is of another colour or library."""
    if AWAITS:
        database = postgres_database_of(store, "AsyncGate")
        if not isinstance(connection, psycopg.AsyncConnection):
            raise ConfigurationError(
                f"an AsyncGate needs a psycopg.AsyncConnection, not {type(connection).__name__}: waiting for another "
                "caller would block the event loop. For a blocking connection use Gate"
            )
    else:
        database = postgres_database_of(store, "Gate")
        if not isinstance(connection, psycopg.Connection):
            raise ConfigurationError(
                f"a Gate needs a psycopg.Connection, not {type(connection).__name__}; for an AsyncConnection use "
                "AsyncGate"
            )
    return database


class AsyncPsycopgTransaction(AsyncFinishing):
    """The caller's `psycopg.AsyncConnection`."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], database: PostgresRecordDatabase) -> None:
        self._connection = connection
        self._database = database
        self._statements = PsycopgTransactionFlow(connection, database)

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return transaction_has_ended(self._connection)

    async def begin(self) -> bool:
        """Open a transaction (True) or, inside the caller's own, a savepoint (False)."""
        return await self._run(self._statements.begin())

    async def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Write a record in this transaction if its current version is `expect`."""
        return await self._run(self._statements.put(write, expect))

    async def load(self, id: bytes) -> Record | None:
        """Look at a record inside the transaction."""
        return await self._run(self._statements.load(id))

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer, in this transaction; how many there were."""
        return await self._run(self._statements.extend(family, replay, forget))

    async def finish(self, write: Write, expect: bytes | None) -> PutResult:
        """Put and commit in one round trip; if it does not land, roll back."""
        return await self._run(self._statements.finish(write, expect))

    async def commit(self) -> None:
        """Commit what the last `begin` opened; `IllegalMove` if something else has ended it."""
        await self._run(self._statements.commit())

    async def rollback(self) -> bool:
        """Undo what the last `begin` opened; False if somebody else has ended it."""
        return await self._run(self._statements.rollback())

    async def _run(self, flow: Flow[T]) -> T:
        return await flow_driver.drive_steps_async(flow, self._perform)

    async def _perform(self, effect: SendStatements | SendRollback | IdentifyStore) -> Any:
        if isinstance(effect, IdentifyStore):
            if AWAITS:
                await self._database.load_identity()
            return self._database.address
        connection = self._connection
        answers: list[Any] = []
        try:
            async with connection.lock:
                with closing(exchange(connection, effect, answers)) as talking:
                    await connection.wait(talking)
        except DRIVER_ERRORS as error:
            raise statement_failure(connection, effect, answers, error) from error
        return answers
