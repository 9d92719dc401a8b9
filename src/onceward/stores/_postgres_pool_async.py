# blocking half: _postgres_pool.py; asleep=sleep
"""
A pool of PostgreSQL connections, for a store or for tables: a connection is opened by the caller who needs one.

Why not psycopg_pool: it opens connections in threads of its own, so that a wrong password would reach the caller as a
timeout, and a forked child would wait for threads that it does not have. Here the caller that needs a connection opens
it, and gets its error.

Besides the connections that are lent there are those for batches, one for each that may be under way. They belong to
the leaders of the group commit: callers who wait for a lock, each on a connection of their own, cannot keep the others
from writing. On an event loop there are two more, for looks: a replay does not wait for a commit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from onceward._core.colour import AWAITS
from onceward._core.errors import StoreUnavailable
from onceward._core.record import PeekResult, PutResult
from onceward.runtime import failpoints
from onceward.runtime.environment import Environment
from onceward.runtime.flow_driver import drive_steps_async
from onceward.stores import _postgres_flow as flows
from onceward.stores._group_commit import QueueEntry
from onceward.stores._postgres_errors import (
    DRIVER_ERRORS,
    NotConnected,
    NoticeListener,
    RetryDecision,
    ServerSilent,
    connect_failure,
    no_free_connection,
    retry_decision,
)
from onceward.stores._postgres_flow import Effect, Flow, QueryEffect, QueryParameters, ScriptEffect, SleepEffect
from onceward.stores._postgres_rows import landed_record, new_tuple, record_of
from onceward.stores._postgres_timeout import POLL_SECONDS, interrupt_or_silence, with_silence_timeout
from onceward.stores._postgres_url import PostgresTarget
from onceward.stores._postgres_wire import (
    FIND,
    LOOK,
    RECORD_CONVERSION,
    ConversionContext,
    NumberedStatement,
    StatementSender,
    connect_arguments,
    ids_value,
)
from onceward.stores._settled_ids import SettledIds

T = TypeVar("T")

PREPARE_AFTER = 1
"""Runs of a statement on one connection before it is prepared."""
_IDLE = TransactionStatus.IDLE
IS_DIRECT = b"SELECT current_setting('onceward.direct', true)"


class AsyncPostgresConnection(psycopg.AsyncConnection[Any]):
    """
    A connection that does not wait for ever, and does not take a commit for more than it is (see `NoticeListener`).
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.notices = NoticeListener()
        self.add_notice_handler(self.notices)

    silence_seconds = 0.0
    """0 while it is being opened, which has a limit of its own (connect_timeout)."""

    async def wait(self, gen: Any, interval: float = POLL_SECONDS, *more: Any, **options: Any) -> Any:
        """Run one of psycopg's generators on this connection."""
        asked = with_silence_timeout(gen, self.silence_seconds) if self.silence_seconds else gen
        if AWAITS:
            answer = await super().wait(asked, interval, *more, **options)
        else:
            try:
                answer = super().wait(asked, interval, *more, **options)
            except ServerSilent as error:
                raise interrupt_or_silence(error) from None
        self.notices.check()
        return answer

    async def ask(self, talk: Generator[Any, Any, T]) -> T:
        """Run a generator of ours, which counts the server's silence by itself."""
        if AWAITS:
            answer = await super().wait(talk, POLL_SECONDS)
        else:
            try:
                answer = super().wait(talk, POLL_SECONDS)
            except ServerSilent as error:
                raise interrupt_or_silence(error) from None
        if self.notices.unconfirmed:
            self.notices.check()
        return answer


class AsyncPooledConnection(NamedTuple):
    """An open connection and the cursor that is used on it."""

    connection: AsyncPostgresConnection
    cursor: psycopg.AsyncCursor[Any]
    wire: StatementSender


class AsyncPostgresPool:
    """The connections of one user of a database: in one event loop, or in one process."""

    def __init__(
        self,
        target: PostgresTarget,
        environment: Environment,
        *,
        lends: int | None = None,
        reading: ConversionContext = RECORD_CONVERSION,
        schema: Callable[[PostgresTarget], Flow[Any]] | None = flows.open_schema,
    ) -> None:
        """
        For a store, unless something else is said.

        `lends` is how many connections there are besides those for batches; `schema` is done before anything else.
        """
        self.target = target
        self.environment = environment
        self.closed = False
        self._size = lends or target.pool_size
        self._reading = reading
        self._schema = schema
        self._opened = schema is None
        self._ever = False
        """Whether it has worked before."""
        self._idle: list[AsyncPooledConnection] = []
        self._for_batches: list[AsyncPooledConnection] = []
        self.seen = SettledIds()
        """Ids whose results were seen lately."""
        lent = lends or max(1, target.pool_size - target.batches)
        if AWAITS:
            lent = lends or lent - target.looks
            self._opening = asyncio.Lock()
            self._free = asyncio.Semaphore(lent)
            self._pooled: set[AsyncPooledConnection] = set()
            """Every open connection, idle or in use: for letting go of them when their loop is no more."""
        else:
            self._opening = threading.Lock()
            self._free = threading.Semaphore(lent)

    async def run(self, flow: Flow[T], *, in_batch: bool = False) -> T:
        """Do what a flow asks for; its answer."""
        if not self._opened:
            await self._open()
        return await self._run(flow, in_batch)

    async def answer(self, batch: Sequence[QueueEntry]) -> None:
        """Give each put of a batch its answer or its error. A lead is ours, and with it a connection."""
        came: list[PutResult | None] | Exception | None
        try:
            if len(batch) == 1 and self._opened and not failpoints.ARMED:
                came = await self._put_one(batch[0])
                if came is None:
                    return
            else:
                puts = [(entry.write, entry.expect) for entry in batch if entry.write is not None]
                came = await self.run(flows.peek_or_put_many(self.target, puts, self.seen), in_batch=True)
        except NotConnected as error:
            came = error.meaning
            came.__cause__ = error.__cause__
        except Exception as error:
            came = error
        flows.assign_results(batch, came)

    async def _put_one(self, entry: QueueEntry) -> list[PutResult | None] | None:
        """A lone put. If it lands or finds what was seen, as nearly every one does: None. Else what its flow says."""
        write, expect, seen = entry.write, entry.expect, self.seen
        if write is None:
            raise TypeError("not a put")
        if expect is None and write.id in seen:
            shown = await self._query_for_batch(FIND, [write.id])
            found = record_of(shown[0][0], shown[0][1:]) if shown else None
            if found is None or found.version == write.version:  # Gone, or this very write: its flow knows.
                return await self._run(flows.peek_or_put_many(self.target, [(write, expect)], seen), in_batch=True)
            entry.answer = result = new_tuple(PutResult, (False, found))
            entry.done = True
            seen.note(write.id, result)
            return None
        sql, values = flows.put_query(write, expect, flows.BATCH_LOCK_TIMEOUT, self.target.may_relax and write.relaxed)
        shown = await self._query_for_batch(sql, values)
        if not shown or shown[0][2] is None:
            return await self._run(flows.conclude_one(shown, write, expect, seen), in_batch=True)
        entry.answer = result = new_tuple(PutResult, (True, landed_record(write, *shown[0][:3])))
        entry.done = True
        if expect is not None:
            seen.note(write.id, result)
        return None

    async def put_alone(self, entry: QueueEntry) -> PutResult:
        """
        A put that a batch could not answer.

        On a connection of its own, and not in the lead: whatever it has to wait for, nobody else does.
        """
        return await self.run(flows.put_alone(self.target, entry))

    async def close(self) -> None:
        """Let go of every connection. Where threads share them, one in use is closed when it comes back."""
        if AWAITS:
            self.abandon()
        else:
            self.closed = True
            self._drop(self._idle)
            self._drop(self._for_batches)

    if AWAITS:

        async def look(self, ids: list[bytes]) -> dict[bytes, PeekResult]:
            """What stands under these ids, each of them seen settled before; on a leader's connection."""
            found = await self._query_for_batch(LOOK, ids_value(ids))
            there = {row[0]: new_tuple(PeekResult, row[1:]) for row in found}
            for id in ids if len(there) < len(ids) else ():
                if id not in there:
                    self.seen.forget(id)
            return there

        def abandon(self) -> None:
            """Let go of every connection at once, also from outside a loop that is no more."""
            self.closed = True
            for pooled in list(self._pooled):
                self._discard(pooled)
            self._idle.clear()
            self._for_batches.clear()

    async def _run(self, flow: Flow[T], in_batch: bool) -> T:
        perform = self._perform_for_batch if in_batch else self._perform
        try:
            return await drive_steps_async(flow, perform)
        except NotConnected as error:
            raise error.meaning from error.__cause__

    async def _open(self) -> None:
        """Before the first statement: the schema."""
        async with self._opening:
            if not self._opened and self._schema is not None:
                await self._run(self._schema(self.target), in_batch=False)
                self._opened = True

    async def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, SleepEffect):
            if effect.lost:
                self._drop(self._idle)
            return await self.environment.asleep(effect.seconds)
        pooled = await self._take()
        try:
            if isinstance(effect, QueryEffect):
                return await _query_async(pooled, effect.sql, effect.parameters)
            if isinstance(effect, ScriptEffect):
                return await _run_script_async(pooled.connection, effect)
            return await effect.work(pooled.connection)
        except DRIVER_ERRORS as error:
            if retry_decision(error) is RetryDecision.LOST:
                self._discard(pooled)
            raise
        finally:
            self._give(pooled)

    async def _perform_for_batch(self, effect: Effect) -> Any:
        """On a leader's own connection. There are no more leaders than such connections, so none has to wait."""
        if type(effect) is not QueryEffect:
            return await self._perform(effect)
        return await self._query_for_batch(effect.sql, effect.parameters)

    async def _query_for_batch(self, sql: bytes | NumberedStatement, parameters: QueryParameters) -> list[Any]:
        try:
            pooled = self._for_batches.pop()
        except IndexError:
            pooled = await self._connect()
        try:
            return await _query_async(pooled, sql, parameters)
        except DRIVER_ERRORS as error:
            if retry_decision(error) is RetryDecision.LOST:
                self._discard(pooled)
            if isinstance(error, ServerSilent):
                self._drop(self._idle)  # Whoever asks again, asks on a new line.
            raise
        finally:
            if not self.closed and _is_at_rest_async(pooled):
                self._for_batches.append(pooled)
            else:
                self._discard(pooled)

    async def _take(self) -> AsyncPooledConnection:
        seconds = self.target.lock_seconds
        has_come = False
        if AWAITS:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    has_come = await self._free.acquire()
        else:
            has_come = self._free.acquire(timeout=seconds)
        if not has_come:
            raise NotConnected(no_free_connection(self.target.name, self._size, seconds), final=True)
        try:
            return self._idle.pop()
        except IndexError:
            pass
        try:
            return await self._connect()
        except BaseException:
            self._free.release()
            raise

    def _give(self, pooled: AsyncPooledConnection) -> None:
        if _is_at_rest_async(pooled) and not self.closed:
            self._idle.append(pooled)
        else:
            self._discard(pooled)
        self._free.release()

    def _drop(self, connections: list[AsyncPooledConnection]) -> None:
        """Close all in a list, which other threads may be using."""
        while connections:
            try:
                pooled = connections.pop()
            except IndexError:
                return
            self._discard(pooled)

    def _discard(self, pooled: AsyncPooledConnection) -> None:
        """Close it, without waiting for anything: there is nothing to wait for."""
        if AWAITS:
            self._pooled.discard(pooled)
        pooled.connection.pgconn.finish()

    async def _connect(self) -> AsyncPooledConnection:
        target = self.target
        if self.closed:
            raise NotConnected(StoreUnavailable(f"this store ({target.name}) was closed"), final=True)
        try:
            connection = await AsyncPostgresConnection.connect(**connect_arguments(target, self._reading))
        except DRIVER_ERRORS as error:
            raise connect_failure(error, target.name, ever_connected=self._ever) from error
        connection.silence_seconds = target.lock_seconds + target.answer_seconds
        pooled = AsyncPooledConnection(connection, connection.cursor(binary=True), StatementSender(connection))
        if AWAITS:
            self._pooled.add(pooled)
        try:
            if self._may_prepare() and await _query_async(pooled, IS_DIRECT, ()) == [("on",)]:
                connection.prepare_threshold = PREPARE_AFTER
        except BaseException as error:
            self._discard(pooled)
            if isinstance(error, DRIVER_ERRORS):
                raise connect_failure(error, target.name, ever_connected=self._ever) from error
            raise
        self._ever = True
        return pooled

    def _may_prepare(self) -> bool:
        """Records are asked for with a few statements again and again; tables with many, and now and then."""
        return self.target.direct and self._reading is RECORD_CONVERSION


async def _query_async(
    pooled: AsyncPooledConnection, sql: bytes | NumberedStatement, parameters: QueryParameters
) -> list[Any]:
    if type(sql) is NumberedStatement:
        connection = pooled.connection
        return await connection.ask(pooled.wire.talk(sql, parameters, connection.silence_seconds))  # type: ignore[arg-type]
    cursor = await pooled.cursor.execute(sql, parameters or None)  # type: ignore[arg-type]
    return await cursor.fetchall()


async def _run_script_async(line: AsyncPostgresConnection, script: ScriptEffect) -> None:
    """In one transaction. It may wait for somebody else's script, which is no silence of the server's."""
    line.silence_seconds += script.patience
    try:
        async with line.transaction():
            for statement in script.statements:
                await line.execute(statement)
    finally:
        line.silence_seconds -= script.patience


def _is_at_rest_async(pooled: AsyncPooledConnection) -> bool:
    """Whether a connection can be used again: open, and in the middle of nothing."""
    return pooled.connection.pgconn.transaction_status == _IDLE
