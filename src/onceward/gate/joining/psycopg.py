"""
Atomic mode on the caller's own psycopg connection, of either colour.

With no transaction open, one is opened and ended by us. Inside the caller's transaction a savepoint is used, and the
caller commits. A connection in autocommit with no transaction open is refused: the record would commit alone.

Statements that follow one another are sent together (libpq's pipeline mode), so that atomic mode adds no round trip:
begin and claim are one, settle and commit are one.

Under READ COMMITTED a racer waits at the constraint, as long as the store's lock timeout allows, and replays the
winner. Above that level, on a deadlock and on a lock timeout, the caller has to run its transaction again:
`RetryTransaction`.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, TypeVar

import psycopg

from onceward._core.errors import ConfigurationError
from onceward._core.record import Record, Standing, Write
from onceward.gate.joining._psycopg_statements import STALE, Failed, Flow, Identify, Statements
from onceward.gate.joining._psycopg_talk import Connection, Send, Undo, forget, talk
from onceward.gate.joining._psycopg_walk import walk_on, walk_on_async
from onceward.stores._postgres_errors import DRIVER_ERRORS
from onceward.stores.postgres import AsyncPostgresStore, PostgresStore
from onceward.tables.steps import Steps

T = TypeVar("T")


def join(connection: Any, store: object) -> JoinedPsycopg:
    """See `onceward.gate.joining.join`."""
    return JoinedPsycopg(connection, _check_blocking(connection, store))


def walk(connection: Any, store: object, steps: Steps[T]) -> T:
    """See `onceward.gate.joining.walk`."""
    return walk_on(connection, _check_blocking(connection, store), steps)


def _check_blocking(connection: Any, store: object) -> PostgresStore | AsyncPostgresStore:
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
    return store


def join_async(connection: Any, store: object) -> AsyncJoinedPsycopg:
    """See `onceward.gate.joining.join_async`."""
    return AsyncJoinedPsycopg(connection, _check_awaiting(connection, store))


async def walk_async(connection: Any, store: object, steps: Steps[T]) -> T:
    """See `onceward.gate.joining.walk_async`."""
    return await walk_on_async(connection, _check_awaiting(connection, store), steps)


def _check_awaiting(connection: Any, store: object) -> AsyncPostgresStore:
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
    return store


def _is_over(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    idle = psycopg.pq.TransactionStatus.IDLE
    return connection.closed or connection.pgconn.transaction_status == idle


class JoinedPsycopg:
    """The caller's `psycopg.Connection`."""

    def __init__(self, connection: psycopg.Connection[Any], store: PostgresStore | AsyncPostgresStore) -> None:
        self._connection = connection
        self._store = store
        self._statements = Statements(connection, store)

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return _is_over(self._connection)

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

    def _send(self, effect: Send | Undo) -> list[Any]:
        connection = self._connection
        answers: list[Any] = []
        try:
            with connection.lock, closing(talk(connection, effect, answers)) as talking:
                connection.wait(talking)
        except DRIVER_ERRORS as error:
            raise _failed(connection, effect, answers, error) from error
        return answers


class AsyncJoinedPsycopg:
    """The caller's `psycopg.AsyncConnection`."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], store: AsyncPostgresStore) -> None:
        self._connection = connection
        self._store = store
        self._statements = Statements(connection, store)

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return _is_over(self._connection)

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

    async def _send(self, effect: Send | Undo) -> list[Any]:
        connection = self._connection
        answers: list[Any] = []
        try:
            async with connection.lock:
                with closing(talk(connection, effect, answers)) as talking:
                    await connection.wait(talking)
        except DRIVER_ERRORS as error:
            raise _failed(connection, effect, answers, error) from error
        return answers


def _failed(connection: Connection, effect: Send | Undo, answers: list[Any], error: BaseException) -> Failed:
    failed = Failed(len(answers), error)
    if failed.code in STALE:
        forget(connection, effect)
    return failed
