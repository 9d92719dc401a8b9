# Made from _postgres_pool_async.py by `make halves`: change that file, not this one.
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

import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from onceward._core.errors import StoreUnavailable
from onceward._core.record import PutResult
from onceward.runtime import failpoints
from onceward.runtime.environment import Environment
from onceward.runtime.flow_driver import drive_steps
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
    RECORD_CONVERSION,
    ConversionContext,
    NumberedStatement,
    StatementSender,
    connect_arguments,
)
from onceward.stores._settled_ids import SettledIds

T = TypeVar("T")

PREPARE_AFTER = 1
"""Runs of a statement on one connection before it is prepared."""
_IDLE = TransactionStatus.IDLE
IS_DIRECT = b"SELECT current_setting('onceward.direct', true)"


class PostgresConnection(psycopg.Connection[Any]):
    """
    A connection that does not wait for ever, and does not take a commit for more than it is (see `NoticeListener`).
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.notices = NoticeListener()
        self.add_notice_handler(self.notices)

    silence_seconds = 0.0
    """0 while it is being opened, which has a limit of its own (connect_timeout)."""

    def wait(self, gen: Any, interval: float = POLL_SECONDS, *more: Any, **options: Any) -> Any:
        """Run one of psycopg's generators on this connection."""
        asked = with_silence_timeout(gen, self.silence_seconds) if self.silence_seconds else gen
        try:
            answer = super().wait(asked, interval, *more, **options)
        except ServerSilent as error:
            raise interrupt_or_silence(error) from None
        self.notices.check()
        return answer

    def ask(self, talk: Generator[Any, Any, T]) -> T:
        """Run a generator of ours, which counts the server's silence by itself."""
        try:
            answer = super().wait(talk, POLL_SECONDS)
        except ServerSilent as error:
            raise interrupt_or_silence(error) from None
        if self.notices.unconfirmed:
            self.notices.check()
        return answer


class PooledConnection(NamedTuple):
    """An open connection and the cursor that is used on it."""

    connection: PostgresConnection
    cursor: psycopg.Cursor[Any]
    wire: StatementSender


class PostgresPool:
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
        self._idle: list[PooledConnection] = []
        self._for_batches: list[PooledConnection] = []
        self.seen = SettledIds()
        """Ids whose results were seen lately."""
        lent = lends or max(1, target.pool_size - target.batches)
        self._opening = threading.Lock()
        self._free = threading.Semaphore(lent)

    def run(self, flow: Flow[T], *, in_batch: bool = False) -> T:
        """Do what a flow asks for; its answer."""
        if not self._opened:
            self._open()
        return self._run(flow, in_batch)

    def answer(self, batch: Sequence[QueueEntry]) -> None:
        """Give each put of a batch its answer or its error. A lead is ours, and with it a connection."""
        came: list[PutResult | None] | Exception | None
        try:
            if len(batch) == 1 and self._opened and not failpoints.ARMED:
                came = self._put_one(batch[0])
                if came is None:
                    return
            else:
                puts = [(entry.write, entry.expect) for entry in batch if entry.write is not None]
                came = self.run(flows.peek_or_put_many(self.target, puts, self.seen), in_batch=True)
        except NotConnected as error:
            came = error.meaning
            came.__cause__ = error.__cause__
        except Exception as error:
            came = error
        flows.assign_results(batch, came)

    def _put_one(self, entry: QueueEntry) -> list[PutResult | None] | None:
        """A lone put. If it lands or finds what was seen, as nearly every one does: None. Else what its flow says."""
        write, expect, seen = entry.write, entry.expect, self.seen
        if write is None:
            raise TypeError("not a put")
        if expect is None and write.id in seen:
            shown = self._query_for_batch(FIND, [write.id])
            found = record_of(shown[0][0], shown[0][1:]) if shown else None
            if found is None or found.version == write.version:  # Gone, or this very write: its flow knows.
                return self._run(flows.peek_or_put_many(self.target, [(write, expect)], seen), in_batch=True)
            entry.answer = result = new_tuple(PutResult, (False, found))
            entry.done = True
            seen.note(write.id, result)
            return None
        sql, values = flows.put_query(write, expect, flows.BATCH_LOCK_TIMEOUT, self.target.may_relax and write.relaxed)
        shown = self._query_for_batch(sql, values)
        if not shown or shown[0][2] is None:
            return self._run(flows.conclude_one(shown, write, expect, seen), in_batch=True)
        entry.answer = result = new_tuple(PutResult, (True, landed_record(write, *shown[0][:3])))
        entry.done = True
        if expect is not None:
            seen.note(write.id, result)
        return None

    def put_alone(self, entry: QueueEntry) -> PutResult:
        """
        A put that a batch could not answer.

        On a connection of its own, and not in the lead: whatever it has to wait for, nobody else does.
        """
        return self.run(flows.put_alone(self.target, entry))

    def close(self) -> None:
        """Let go of every connection. Where threads share them, one in use is closed when it comes back."""
        self.closed = True
        self._drop(self._idle)
        self._drop(self._for_batches)

    def _run(self, flow: Flow[T], in_batch: bool) -> T:
        perform = self._perform_for_batch if in_batch else self._perform
        try:
            return drive_steps(flow, perform)
        except NotConnected as error:
            raise error.meaning from error.__cause__

    def _open(self) -> None:
        """Before the first statement: the schema."""
        with self._opening:
            if not self._opened and self._schema is not None:
                self._run(self._schema(self.target), in_batch=False)
                self._opened = True

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, SleepEffect):
            if effect.lost:
                self._drop(self._idle)
            return self.environment.sleep(effect.seconds)
        pooled = self._take()
        try:
            if isinstance(effect, QueryEffect):
                return _query(pooled, effect.sql, effect.parameters)
            if isinstance(effect, ScriptEffect):
                return _run_script(pooled.connection, effect)
            return effect.work(pooled.connection)
        except DRIVER_ERRORS as error:
            if retry_decision(error) is RetryDecision.LOST:
                self._discard(pooled)
            raise
        finally:
            self._give(pooled)

    def _perform_for_batch(self, effect: Effect) -> Any:
        """On a leader's own connection. There are no more leaders than such connections, so none has to wait."""
        if type(effect) is not QueryEffect:
            return self._perform(effect)
        return self._query_for_batch(effect.sql, effect.parameters)

    def _query_for_batch(self, sql: bytes | NumberedStatement, parameters: QueryParameters) -> list[Any]:
        try:
            pooled = self._for_batches.pop()
        except IndexError:
            pooled = self._connect()
        try:
            return _query(pooled, sql, parameters)
        except DRIVER_ERRORS as error:
            if retry_decision(error) is RetryDecision.LOST:
                self._discard(pooled)
            if isinstance(error, ServerSilent):
                self._drop(self._idle)  # Whoever asks again, asks on a new line.
            raise
        finally:
            if not self.closed and _is_at_rest(pooled):
                self._for_batches.append(pooled)
            else:
                self._discard(pooled)

    def _take(self) -> PooledConnection:
        seconds = self.target.lock_seconds
        has_come = False
        has_come = self._free.acquire(timeout=seconds)
        if not has_come:
            raise NotConnected(no_free_connection(self.target.name, self._size, seconds), final=True)
        try:
            return self._idle.pop()
        except IndexError:
            pass
        try:
            return self._connect()
        except BaseException:
            self._free.release()
            raise

    def _give(self, pooled: PooledConnection) -> None:
        if _is_at_rest(pooled) and not self.closed:
            self._idle.append(pooled)
        else:
            self._discard(pooled)
        self._free.release()

    def _drop(self, connections: list[PooledConnection]) -> None:
        """Close all in a list, which other threads may be using."""
        while connections:
            try:
                pooled = connections.pop()
            except IndexError:
                return
            self._discard(pooled)

    def _discard(self, pooled: PooledConnection) -> None:
        """Close it, without waiting for anything: there is nothing to wait for."""
        pooled.connection.pgconn.finish()

    def _connect(self) -> PooledConnection:
        target = self.target
        if self.closed:
            raise NotConnected(StoreUnavailable(f"this store ({target.name}) was closed"), final=True)
        try:
            connection = PostgresConnection.connect(**connect_arguments(target, self._reading))
        except DRIVER_ERRORS as error:
            raise connect_failure(error, target.name, ever_connected=self._ever) from error
        connection.silence_seconds = target.lock_seconds + target.answer_seconds
        pooled = PooledConnection(connection, connection.cursor(binary=True), StatementSender(connection))
        try:
            if self._may_prepare() and _query(pooled, IS_DIRECT, ()) == [("on",)]:
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


def _query(pooled: PooledConnection, sql: bytes | NumberedStatement, parameters: QueryParameters) -> list[Any]:
    if type(sql) is NumberedStatement:
        connection = pooled.connection
        return connection.ask(pooled.wire.talk(sql, parameters, connection.silence_seconds))  # type: ignore[arg-type]
    cursor = pooled.cursor.execute(sql, parameters or None)  # type: ignore[arg-type]
    return cursor.fetchall()


def _run_script(line: PostgresConnection, script: ScriptEffect) -> None:
    """In one transaction. It may wait for somebody else's script, which is no silence of the server's."""
    line.silence_seconds += script.patience
    try:
        with line.transaction():
            for statement in script.statements:
                line.execute(statement)
    finally:
        line.silence_seconds -= script.patience


def _is_at_rest(pooled: PooledConnection) -> bool:
    """Whether a connection can be used again: open, and in the middle of nothing."""
    return pooled.connection.pgconn.transaction_status == _IDLE
