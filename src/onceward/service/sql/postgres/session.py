"""
A connection that runs tenants' statements: its settings, and the pipeline that everything is sent through.

The pipeline is the extended protocol, in which a text is one statement or none. Several steps go out together and their
answers are read in one go; after the first that fails, the server skips the rest. A tenant's rows come one by one and
are counted, so that a large answer is given up and never held.

Every setting of a request is local to its transaction. A session that had to be cancelled is closed: the cancel might
reach the next tenant's statement.

A commit is never cancelled. It may wait for a synchronous standby, and PostgreSQL would end such a wait by showing to
everybody what the standby does not have. Whoever waits for too long hangs up instead, and the server waits on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Self

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus, TransactionStatus

from onceward._core.errors import StoreUnavailable
from onceward.protocol.errors import SqlError, SqlKind
from onceward.service.sql.limits import Limits
from onceward.service.sql.postgres.prepared_inserts import PreparedInserts
from onceward.service.sql.postgres.sqlstates import sql_error
from onceward.service.sql.postgres.values import from_postgres
from onceward.stores._postgres_errors import ServerSilent
from onceward.stores._postgres_pool_async import AsyncPostgresConnection
from onceward.stores._postgres_url import PostgresTarget
from onceward.stores._postgres_wire import RECORD_CONVERSION, connect_arguments, load_rows

ANSWER_SECONDS: Final = 10.0
"""Beyond a statement's deadline, how long a server may be silent before its connection is given up."""
CANCEL_SECONDS: Final = 5.0
WAY_LOOKS: Final = 3
"""How often the way to the server is measured when a session is opened: the quickest counts."""
_SETTINGS: Final = (
    "SET search_path = pg_catalog",
    # A tenant's statements are planned for what they are; ours, which the store's connections plan in another way, are
    # prepared here and few.
    "SET enable_seqscan = on",
    "SET plan_cache_mode = auto",
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET IntervalStyle = 'postgres'",
    "SET bytea_output = 'hex'",
    "SET extra_float_digits = 1",
    "SET standard_conforming_strings = on",
    "SET max_parallel_workers_per_gather = 0",
    "SET idle_in_transaction_session_timeout = '15s'",
    # A client that is gone is noticed while its statement runs.
    "SET client_connection_check_interval = '2s'",
    "SET default_transaction_isolation = 'read committed'",
    # What only reads says so by itself.
    "SET default_transaction_read_only = off",
)
_WORK_MEMORY: Final = "SET work_mem = '{}kB'"

# libpq's numbers, of which a request compares dozens: to ask an enumeration for a member takes longer than to compare.
_TEXT, _BINARY = int(Format.TEXT), int(Format.BINARY)
_DONE, _FAILED, _SYNC = int(ExecStatus.COMMAND_OK), int(ExecStatus.FATAL_ERROR), int(ExecStatus.PIPELINE_SYNC)
_ROWS: Final = frozenset(map(int, (ExecStatus.SINGLE_TUPLE, ExecStatus.TUPLES_OK, ExecStatus.TUPLES_CHUNK)))
_COPIES: Final = frozenset(map(int, (ExecStatus.COPY_IN, ExecStatus.COPY_OUT, ExecStatus.COPY_BOTH)))
_IDLE, _ACTIVE = int(TransactionStatus.IDLE), int(TransactionStatus.ACTIVE)
_CONNECTED, _NO_PIPELINE = int(ConnStatus.OK), int(PipelineStatus.OFF)
_ALL_BINARY: Final = tuple([_BINARY] * count for count in range(32))
"""The forms of so many values in binary: libpq is told the form of each."""


class _SessionConnection(AsyncPostgresConnection):
    """Where psycopg itself waits for the server, the session that listens beside it has to stop."""

    stop_listening: Callable[[], None] | None = None

    async def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        """Run one of psycopg's generators on this connection."""
        if self.stop_listening is not None:
            self.stop_listening()
        return await super().wait(gen, *arguments, **options)


class Answer:
    """What came back for one step."""

    columns: Sequence[str] = ()
    kinds: Sequence[int] = ()
    rows: list[list[bytes | None]] | None = None
    """Of a step whose rows were counted, if it has any."""
    result: Any = None
    """libpq's, the last of them."""
    error: Any = None
    """The same, if the step failed."""
    counter: RowCounter | None = None
    """What counts its rows, where they are counted."""


class PipelineStep(NamedTuple):
    """One statement of a pipeline."""

    sql: bytes
    values: Sequence[bytes | None] = ()
    name: bytes = b""
    """For a statement of ours that is to be prepared under this name."""
    binary: bool = False
    """Whether values and rows are in PostgreSQL's binary form: ours are, a tenant's are not."""


class RowCounter:
    """How much the answers of one request may still hold."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rows = limits.answer_rows
        self._bytes = limits.answer_bytes
        self.refusal: SqlError | None = None

    @property
    def used(self) -> int:
        """About how many bytes they hold."""
        return self._limits.answer_bytes - self._bytes

    def is_over(self, row: Sequence[bytes | None]) -> bool:
        """Count a row; whether that is one too many."""
        self._rows -= 1
        self._bytes -= sum(4 if one is None else len(one) + 3 for one in row) + 2
        if self._rows < 0:
            self.refusal = SqlError(
                SqlKind.TOO_LARGE, f"the result has more than {self._limits.answer_rows} rows", hint="page with LIMIT"
            )
        elif self._bytes < 0:
            self.refusal = SqlError(
                SqlKind.TOO_LARGE,
                f"the result has more than {self._limits.answer_bytes} bytes",
                hint="select fewer columns, or page with LIMIT",
            )
        return self.refusal is not None


class TenantSession:
    """One connection."""

    def __init__(self, connection: _SessionConnection, limits: Limits, opened_at: float) -> None:
        self.connection = connection
        connection.stop_listening = self._stop_listening
        self.limits = limits
        self.opened_at = opened_at
        self.uses = 0
        self.served = ""
        """The tenant that had it last."""
        self.worked = 0.0
        """Seconds that tenants' statements took since this session was lent, with the way to the server and back."""
        self.told = 0.0
        """The same of those of which the server itself has said it, without the way."""
        self.way = 0.0
        """Seconds of that way, which is nobody's work: what the quickest of our own settings took."""
        self.version: int = connection.info.server_version
        """Of the server."""
        self.inserts = PreparedInserts()
        """What of tenants' texts is prepared here."""
        self._prepared: set[bytes] = set()
        self._preparing: list[tuple[bytes, Answer, Answer]] = []
        """Names, what the server says to preparing each, and the answer to the step that is prepared."""
        self._loader = Transformer(connection)
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] | None = None
        self._socket: int | None = None
        """What the event loop listens to for us: from the first exchange on, because to begin and to end costs."""
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: tuple[float, Callable[[], None]] | None = None
        """When an exchange has taken for too long, and what is done then."""
        self._cancelling: asyncio.Task[None] | None = None
        self.spoilt = False
        """Whether it is not to be used again."""

    @classmethod
    async def open(cls, target: PostgresTarget, limits: Limits, now: float) -> Self:
        """Connect. Errors are the driver's."""
        connection = await _SessionConnection.connect(**connect_arguments(target, RECORD_CONVERSION))
        connection.silence_seconds = 2 * limits.statement_seconds + ANSWER_SECONDS
        try:
            settings = [*_SETTINGS, _WORK_MEMORY.format(8_192)]
            if connection.info.server_version >= 170_000:
                settings.append(f"SET transaction_timeout = {round(2_000 * limits.statement_seconds) + 10_000}")
            await connection.execute("; ".join(settings).encode())
            clock, way = asyncio.get_running_loop().time, float("inf")
            for setting in _SETTINGS[:WAY_LOOKS]:
                began = clock()
                await connection.execute(setting)
                way = min(way, clock() - began)
        except BaseException:
            connection.pgconn.finish()
            raise
        made = cls(connection, limits, now)
        made.way = way
        return made

    @property
    def is_at_rest(self) -> bool:
        """Whether the next request may use it."""
        pgconn = self.connection.pgconn
        return (
            not self.spoilt
            and pgconn.status == _CONNECTED
            and pgconn.transaction_status == _IDLE
            and pgconn.pipeline_status == _NO_PIPELINE
        )

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open, be it one that failed."""
        return bool(self.connection.pgconn.transaction_status != _IDLE)

    def close(self) -> None:
        """Hang up. What is open is rolled back by the server."""
        self._stop_listening()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.connection.pgconn.finish()

    async def exchange(
        self,
        steps: Sequence[PipelineStep],
        *,
        counted: range = range(0),
        counter: RowCounter | None = None,
        commits: bool = False,
    ) -> list[Answer]:
        """
        Send steps together; their answers, as many as there are steps. After one that failed, the rest are empty.

        The rows of the `counted` ones are counted; at a row too many the server is told to stop. Where one of the steps
        `commits`, nobody tells it to stop.
        """
        answers = [Answer() for _ in steps]
        for number in counted:
            answers[number].counter = counter
        self.uses += 1
        loop, seconds = self._loop, self.limits.statement_seconds
        began = loop.time()
        failed: bool | None = None
        self._watch(began + 2 * seconds if commits else began + seconds, self._hang_up if commits else self._cancel)
        try:
            failed = await self._talk(steps, answers)
            self.connection.notices.check()
        except (psycopg.Error, OSError) as error:
            self.spoilt = True
            raise StoreUnavailable("the connection to the database was lost", retry_after_seconds=1.0) from error
        except asyncio.CancelledError:  # Whoever waited has gone.
            self.spoilt = True
            if not commits:
                await self._send_cancel()
            raise
        finally:
            self._deadline = None
            # Waiting for a disk or a standby is nobody's work: of what was committed, the server says how long it took.
            if failed is None:  # It did not come to its end.
                failed = any(one.error is not None for one in answers)
            if counted and (failed or not commits):
                self.worked += loop.time() - began
            if self.connection.pgconn.transaction_status == _ACTIVE:
                self.spoilt = True  # We were interrupted: nobody reads what is still on its way.
        return answers

    def _watch(self, until: float, act: Callable[[], None]) -> None:
        """
        Have something done at a time of the event loop's, unless the exchange has ended by then.

        There is one timer for many exchanges, most of which end long before: when it fires, it is set for the next.
        """
        self._deadline = until, act
        if self._timer is not None:
            if self._timer.when() <= until:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(until, self._look_at_deadline)

    def _look_at_deadline(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        until, act = self._deadline
        if self._loop.time() < until:
            self._watch(until, act)
        else:
            act()

    def _listen(self, socket: int) -> None:
        if self._socket != socket:
            self._stop_listening()
            self._loop.add_reader(socket, self._wake)
            self._socket = socket

    def _stop_listening(self) -> None:
        """Before the socket is closed, or read by somebody else."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket = None

    def _woken(self) -> asyncio.Future[None]:
        """
        To be awaited: there is something to read (or room to write, for whoever asked the event loop for that).

        `connection.wait` would ask the event loop for a timer and a reader each time.
        """
        self._ready = ready = self._loop.create_future()
        return ready

    async def _flush(self, pgconn: Any) -> None:
        """Send what did not fit into the socket at once."""
        while pgconn.flush():
            self._loop.add_writer(pgconn.socket, self._wake)
            try:
                await self._woken()
            finally:
                self._loop.remove_writer(pgconn.socket)
            pgconn.consume_input()

    def _wake(self) -> None:
        if self._ready is None:
            self._stop_listening()  # Nobody has asked for anything: the next exchange reads it, or finds out why.
        elif not self._ready.done():
            self._ready.set_result(None)

    async def execute(self, *steps: PipelineStep) -> list[Answer]:
        """Steps of ours; the first that failed raises."""
        answers = await self.exchange(steps)
        for answer in answers:
            if answer.error is not None:
                raise sql_error(answer.error)
        return answers

    def rows_of(self, answer: Answer) -> list[tuple[Any, ...]]:
        """The rows of a step of ours, as Python has them."""
        return load_rows(answer.result, self._loader)

    def _cancel(self) -> None:
        """Have the server stop what it runs. This session is not used again, so that nothing else is stopped."""
        self.spoilt = True
        if self._cancelling is None:
            self._cancelling = asyncio.create_task(self._send_cancel())
            asyncio.get_running_loop().call_later(self.limits.statement_seconds + ANSWER_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        """Wait no longer, whatever the server does."""
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(ServerSilent("gave no answer in time"))

    async def _send_cancel(self) -> None:
        try:
            await self.connection.cancel_safe(timeout=CANCEL_SECONDS)
        except psycopg.Error:
            return  # The server's own limits are behind this one.

    async def _talk(self, steps: Sequence[PipelineStep], answers: list[Answer]) -> bool:
        """Whether one of the steps failed."""
        pgconn: Any = self.connection.pgconn
        pgconn.enter_pipeline_mode()
        self._listen(pgconn.socket)
        try:
            sent = self._queue(pgconn, steps, answers)
            pgconn.pipeline_sync()
            if pgconn.flush():
                await self._flush(pgconn)
            failed = False
            is_busy, get_result = pgconn.is_busy, pgconn.get_result
            for answer in sent:
                counter = answer.counter
                if counter is not None and not failed:  # What the server skips has no rows, and libpq no mode for it.
                    pgconn.set_single_row_mode()
                while True:
                    while is_busy():
                        await self._woken()
                        pgconn.consume_input()
                    result = get_result()
                    if result is None:
                        break
                    answer.result, status = result, result.status
                    if status != _DONE and (counter is not None or status not in _ROWS):
                        failed = failed or status == _FAILED
                        self._take(result, status, answer)
            result = None if is_busy() else get_result()
            if result is None or result.status != _SYNC:
                await self._end_pipeline(pgconn, answers[-1], result)
            if self._preparing:
                self._forget_unprepared()
            return failed or answers[-1].error is not None
        except BaseException:
            self._stop_listening()  # libpq may have closed the socket.
            raise
        finally:
            self._ready = None
            self._leave_pipeline()

    async def _end_pipeline(self, pgconn: Any, last: Answer, result: Any) -> None:
        """Read what ends it. An error here is that of a commit which no step has asked for: it is the last step's."""
        for _ in range(4):  # What was read already, an error, a None behind it, and the end.
            if result is not None:
                if result.status == _SYNC:
                    return
                last.error = last.error or result
            while pgconn.is_busy():
                await self._woken()
                pgconn.consume_input()
            result = pgconn.get_result()
        raise psycopg.OperationalError("the pipeline did not end")

    def _queue(self, pgconn: Any, steps: Sequence[PipelineStep], answers: list[Answer]) -> list[Answer]:
        """Hand the steps to libpq. Where the answers go, in their order: those of preparing are among them."""
        prepared, send_prepared = self._prepared, pgconn.send_query_prepared
        sent = answers
        for number, (sql, values, name, binary) in enumerate(steps):
            if not name:
                pgconn.send_query_params(sql, values or None, None, _forms(values) if binary else None, int(binary))
                continue
            if name not in prepared:
                pgconn.send_prepare(name, sql)
                prepared.add(name)
                made = Answer()
                self._preparing.append((name, made, answers[number]))
                if sent is answers:
                    sent = answers.copy()
                sent.insert(number + len(sent) - len(answers), made)
            if values:
                send_prepared(name, values, _forms(values) if binary else None, int(binary))
            else:
                send_prepared(name, None, None, int(binary))
        return sent

    def _forget_unprepared(self) -> None:
        """What was skipped, because something before it failed; or what failed itself, which is its step's error."""
        for name, made, answer in self._preparing:
            if made.result.status != _DONE:
                self._prepared.discard(name)
                answer.error = answer.error or made.error
        self._preparing.clear()

    def _take(self, result: Any, status: int, answer: Answer) -> None:
        if status == _FAILED:
            answer.error = result
        elif status in _ROWS:
            if answer.counter is not None:
                self._take_rows(result, answer, answer.counter)
        elif status in _COPIES:
            # The parser refuses COPY. If one comes this far, what follows on this connection is rows, not answers.
            self.spoilt = True
            self.close()
            raise psycopg.OperationalError("a COPY was begun, and the connection was closed")

    def _take_rows(self, result: Any, answer: Answer, counter: RowCounter) -> None:
        if answer.rows is None:
            answer.rows = []
        if not answer.kinds and result.nfields:
            answer.columns = [
                (result.fname(number) or b"").decode("utf-8", "replace") for number in range(result.nfields)
            ]
            answer.kinds = [result.ftype(number) for number in range(result.nfields)]
        for number in range(result.ntuples):
            row = [result.get_value(number, column) for column in range(result.nfields)]
            if counter.refusal is not None or counter.is_over(row):
                answer.rows.clear()
                self._cancel()
                break
            answer.rows.append(row)

    def _leave_pipeline(self) -> None:
        pgconn = self.connection.pgconn
        if pgconn.status != _CONNECTED:
            self.spoilt = True
            return
        try:
            if pgconn.pipeline_status != _NO_PIPELINE:
                pgconn.exit_pipeline_mode()
        except psycopg.Error:
            self.spoilt = True
            self.close()


def _forms(values: Sequence[bytes | None]) -> list[int]:
    count = len(values)
    return _ALL_BINARY[count] if count < len(_ALL_BINARY) else [_BINARY] * count


def document_of(answer: Answer) -> dict[str, Any]:
    """A tenant's statement, as its result is stored and sent."""
    raw, kinds = answer.rows or (), answer.kinds
    rows = [[from_postgres(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in raw]
    command: bytes = answer.result.command_status or b""
    writes = not command.startswith((b"SELECT", b"EXPLAIN", b"CREATE", b"ALTER", b"DROP"))
    return {
        "columns": list(answer.columns),
        "rows": rows,
        "rowsRead": len(rows),
        "rowsWritten": (answer.result.command_tuples or 0) if writes else 0,
        "lastInsertRowid": None,
    }


def document_of_writes(rows: int) -> dict[str, Any]:
    """The same for a statement that writes so many rows and returns none, before it was sent."""
    return {"columns": [], "rows": [], "rowsRead": 0, "rowsWritten": rows, "lastInsertRowid": None}
