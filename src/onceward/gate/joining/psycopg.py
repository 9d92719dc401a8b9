"""
Atomic mode on the caller's own psycopg connection, of either colour.

With no transaction open, one is opened and ended by us. Inside the caller's transaction a savepoint is used, and the
caller commits. A connection in autocommit with no transaction open is refused: the record would commit alone.

Statements that follow one another are sent together (psycopg's pipeline mode), so that atomic mode adds no round trip:
begin and claim are one, settle and commit are one.

Under READ COMMITTED a racer waits at the constraint, as long as the store's lock timeout allows, and replays the
winner. Above that level, on a deadlock and on a lock timeout, the caller has to run its transaction again:
`RetryTransaction`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from onceward._core.errors import ConfigurationError
from onceward._core.record import Record, Standing, Write
from onceward.gate.joining._psycopg_statements import Failed, Flow, Identify, Send, Statements
from onceward.stores._postgres_errors import DRIVER_ERRORS
from onceward.stores.postgres import AsyncPostgresStore, PostgresStore

T = TypeVar("T")


def join(connection: Any, store: object) -> JoinedPsycopg:
    """See `onceward.gate.joining.join`."""
    if not isinstance(store, PostgresStore | AsyncPostgresStore):
        raise ConfigurationError(
            "this gate's store is not a PostgreSQL database, so the record could not share your transaction; open the "
            "gate on the same database: Gate('postgresql://...', ...)"
        )
    if not isinstance(connection, psycopg.Connection):
        raise ConfigurationError(
            f"atomic mode of a Gate knows psycopg.Connection, not {type(connection).__name__}; for an AsyncConnection "
            "use AsyncGate"
        )
    return JoinedPsycopg(connection, store)


def join_async(connection: Any, store: object) -> AsyncJoinedPsycopg:
    """See `onceward.gate.joining.join_async`."""
    if not isinstance(store, AsyncPostgresStore):
        raise ConfigurationError(
            "this gate's store is not a PostgreSQL database, so the record could not share your transaction; open the "
            "gate on the same database: AsyncGate('postgresql://...', ...)"
        )
    if not isinstance(connection, psycopg.AsyncConnection):
        raise ConfigurationError(
            f"atomic mode of an AsyncGate knows psycopg.AsyncConnection, not {type(connection).__name__}: waiting for "
            "a racer would stop the event loop; for a blocking connection use Gate"
        )
    return AsyncJoinedPsycopg(connection, store)


class JoinedPsycopg:
    """The caller's `psycopg.Connection`."""

    def __init__(self, connection: psycopg.Connection[Any], store: PostgresStore | AsyncPostgresStore) -> None:
        self._connection = connection
        self._store = store
        self._statements = Statements(connection, store)

    def begin(self) -> bool:
        """See `Joined.begin`."""
        return self._run(self._statements.begin())

    def put(self, write: Write, expect: bytes | None) -> Standing:
        """See `Joined.put`."""
        return self._run(self._statements.put(write, expect))

    def load(self, id: bytes) -> Record | None:
        """Look at a record inside the transaction."""
        return self._run(self._statements.load(id))

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """See `Joined.extend`."""
        return self._run(self._statements.extend(family, replay, forget))

    def finish(self, write: Write, expect: bytes | None) -> Standing:
        """Put and commit in one round trip; if it does not land, roll back."""
        return self._run(self._statements.finish(write, expect))

    def commit(self) -> None:
        """See `Joined.commit`."""
        self._run(self._statements.commit())

    def rollback(self) -> bool:
        """See `Joined.rollback`."""
        return self._run(self._statements.rollback())

    def _run(self, flow: Flow[T]) -> T:
        try:
            effect = next(flow)
            while True:
                try:
                    answer = self._store.identity if isinstance(effect, Identify) else self._send(effect)
                except Failed as failed:
                    effect = flow.throw(failed)
                else:
                    effect = flow.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def _send(self, effect: Send) -> list[Any]:
        """On cursors of our own kind: the caller's rows may be made into anything."""
        connection = self._connection
        cursors: list[psycopg.Cursor[Any] | None] = []
        try:
            if _goes_together(effect):
                with connection.pipeline() as pipeline:
                    if effect.begin is not None:
                        _send_command(pipeline, effect.begin)
                    for sql, parameters, is_command in effect.statements:
                        if is_command:
                            _send_command(pipeline, sql)
                            cursors.append(None)
                        else:
                            cursors.append(cursor := psycopg.Cursor(connection, row_factory=tuple_row))
                            cursor.execute(sql, parameters or None, binary=True, prepare=bool(parameters))
            else:
                for sql, parameters, _ in effect.statements:
                    cursors.append(cursor := psycopg.Cursor(connection, row_factory=tuple_row))
                    cursor.execute(sql, parameters or None, binary=True)
        except DRIVER_ERRORS as error:
            raise Failed(_done(cursors), error) from error
        return [[] if cursor is None or not _has_rows(cursor) else cursor.fetchall() for cursor in cursors]


class AsyncJoinedPsycopg:
    """The caller's `psycopg.AsyncConnection`."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], store: AsyncPostgresStore) -> None:
        self._connection = connection
        self._store = store
        self._statements = Statements(connection, store)

    async def begin(self) -> bool:
        """See `Joined.begin`."""
        return await self._run(self._statements.begin())

    async def put(self, write: Write, expect: bytes | None) -> Standing:
        """See `Joined.put`."""
        return await self._run(self._statements.put(write, expect))

    async def load(self, id: bytes) -> Record | None:
        """Look at a record inside the transaction."""
        return await self._run(self._statements.load(id))

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """See `Joined.extend`."""
        return await self._run(self._statements.extend(family, replay, forget))

    async def finish(self, write: Write, expect: bytes | None) -> Standing:
        """Put and commit in one round trip; if it does not land, roll back."""
        return await self._run(self._statements.finish(write, expect))

    async def commit(self) -> None:
        """See `Joined.commit`."""
        await self._run(self._statements.commit())

    async def rollback(self) -> bool:
        """See `Joined.rollback`."""
        return await self._run(self._statements.rollback())

    async def _run(self, flow: Flow[T]) -> T:
        try:
            effect = next(flow)
            while True:
                try:
                    if isinstance(effect, Identify):
                        answer: Any = await self._store.identify()
                    else:
                        answer = await self._send(effect)
                except Failed as failed:
                    effect = flow.throw(failed)
                else:
                    effect = flow.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value

    async def _send(self, effect: Send) -> list[Any]:
        connection = self._connection
        cursors: list[psycopg.AsyncCursor[Any] | None] = []
        try:
            if _goes_together(effect):
                async with connection.pipeline() as pipeline:
                    if effect.begin is not None:
                        _send_command(pipeline, effect.begin)
                    for sql, parameters, is_command in effect.statements:
                        if is_command:
                            _send_command(pipeline, sql)
                            cursors.append(None)
                        else:
                            cursors.append(cursor := psycopg.AsyncCursor(connection, row_factory=tuple_row))
                            await cursor.execute(sql, parameters or None, binary=True, prepare=bool(parameters))
            else:
                for sql, parameters, _ in effect.statements:
                    cursors.append(cursor := psycopg.AsyncCursor(connection, row_factory=tuple_row))
                    await cursor.execute(sql, parameters or None, binary=True)
        except DRIVER_ERRORS as error:
            raise Failed(_done(cursors), error) from error
        return [[] if cursor is None or not _has_rows(cursor) else await cursor.fetchall() for cursor in cursors]


def _goes_together(effect: Send) -> bool:
    """Whether there is more than one statement, and libpq (from 14) can send them together."""
    return (effect.begin is not None or len(effect.statements) > 1) and psycopg.Pipeline.is_supported()


def _send_command(pipeline: psycopg.Pipeline | psycopg.AsyncPipeline, command: bytes) -> None:
    """
    Send a command along with the rest, and leave its answer to the end of the pipeline.

    psycopg would send a BEGIN by itself and wait for its answer; and after every statement it looks whether an earlier
    one has failed, and then says so in the log.
    """
    pipeline.pgconn.send_query_params(command, None)
    pipeline.result_queue.append(None)


def _has_rows(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> bool:
    """Cheaper than the cursor's `description`, which is made anew each time."""
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def _done(cursors: Sequence[psycopg.Cursor[Any] | psycopg.AsyncCursor[Any] | None]) -> int:
    """How many statements with an answer were answered before one failed."""
    return sum(cursor is not None and cursor.pgresult is not None for cursor in cursors)
