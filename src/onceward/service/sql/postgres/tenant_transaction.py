"""
A tenant's request as one transaction, which `gate.atomic` joins: the record commits with the rows, or neither does.

    round trip 1   look for the key, or stop; settings, role | BEGIN | the tenant's statements | constraints | role off
    round trip 2   the settled record, or stop | COMMIT

The gate asks for the record first, and for the work after that. Here the work rides along with the question: if a
record stands there, the question fails and the server skips the rest, so that nothing was begun. Everything else is as
in any transaction that a gate joins: the core decides, and the unique constraint is the arbiter.

Where the result is certain before anything is sent (an INSERT of plain values), its record comes first and all is one:

    look, or stop; the settled record; settings, role | BEGIN | the statements | constraints | time taken | COMMIT

An insert that this session has seen before is prepared there (`prepared_inserts.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from psycopg.pq import DiagnosticField

from onceward._core.caller_transaction_async import AsyncCallerTransaction, AsyncFinishing
from onceward._core.codec import Encoded, encode
from onceward._core.errors import IllegalMove, InFlight, StoreUnavailable
from onceward._core.record import PutResult, Record, Write, new_tuple
from onceward.adapters._psycopg_pipeline import PreparableStatement, preparable
from onceward.adapters._psycopg_transaction_flow import NOT_LANDED, NOT_OURS, STOP_UNLESS_LANDED, STOP_UNLESS_OURS
from onceward.protocol.errors import SqlError
from onceward.runtime.flow_driver import BegunCoroutine
from onceward.service.sql.postgres.keyed_scope import KeyedCall
from onceward.service.sql.postgres.prepared_inserts import SECONDS, PreparedInsert
from onceward.service.sql.postgres.record_first import record_first
from onceward.service.sql.postgres.schema_room import HEAVY_ROWS, HEAVY_SECONDS, SchemaRoom, quota_full
from onceward.service.sql.postgres.session import (
    Answer,
    PipelineStep,
    RowCounter,
    TenantSession,
    document_of,
    document_of_writes,
)
from onceward.service.sql.postgres.sqlstates import sql_error
from onceward.service.sql.postgres.statement_checker import InsertTarget
from onceward.stores import _postgres_rows as rows
from onceward.stores._postgres_wire import int8, put_values
from onceward.stores._settled_ids import SettledIds

T = TypeVar("T")

_RELAXED: Final = len(Write._fields)
"""Its index among the values of a put: a tenant's transaction is as durable as PostgreSQL makes it."""
_TOOK: Final = "extract(epoch FROM clock_timestamp() - transaction_timestamp())::float8"
"""Seconds since the transaction began: where the commit is sent along, only the server can tell work from waiting."""
_SETTLE: Final = rows.insert_statement(STOP_UNLESS_OURS)
_REPLACE: Final = rows.swap_statement(rows.JOINED_CLOCK, rows.RESTORED + STOP_UNLESS_OURS + STOP_UNLESS_LANDED)
_TAKEN: Final = "23505"
"""What `_SETTLE` fails with where a record stands."""
_LOOK: Final = """
SELECT txid_current(),
    1 / CASE WHEN EXISTS (SELECT FROM {schema}.onceward_records WHERE id = $1::bytea) THEN 0 ELSE 1 END,
    sqrt(CASE WHEN pg_try_advisory_xact_lock($2::bigint) THEN 1 ELSE -1 END),
    {durable},
    {settings}
"""
"""An error stops what is sent after it: division by zero if there is a record, a root if somebody else is at it."""
_FOUND, _HELD = NOT_LANDED, NOT_OURS
_NO_SUCH_ROLE: Final = "22023"
_TENANTS_DOING: Final = frozenset(("40P01", "53200", "55P03", "57014"))
"""Of a statement of ours: it waited for what the tenant's other requests hold, or there was no room for its locks."""
_SETTINGS: Final = """
set_config('search_path', ${0}::text, true), set_config('lock_timeout', ${1}::text, true),
set_config('statement_timeout', ${2}::text, true), set_config('transaction_read_only', ${3}::text, true),
set_config('role', ${0}::text, true)
"""
_OPEN: Final = f"SELECT {rows.DURABLE}, {_SETTINGS.format(1, 2, 3, 4)}".encode()
_CONSTRAINTS: Final = PipelineStep(b"SET CONSTRAINTS ALL IMMEDIATE", name=b"onceward_constraints")
"""Before the role is left: what a constraint calls at the commit would run as the service."""
_PATH: Final = PipelineStep(b"SET LOCAL search_path = pg_catalog", name=b"onceward_path")
"""Before anything of ours is asked: under another path than the one it was prepared under, it would be parsed anew."""
_LEAVE: Final = (PipelineStep(b"SET LOCAL ROLE NONE", name=b"onceward_role"), _PATH)
"""Not by `set_config`: a tenant has no right to call it, and is still the user here."""
_CONSTRAINTS_PATH: Final = (_CONSTRAINTS, _PATH)
_BEGIN: Final = PipelineStep(b"BEGIN", name=b"onceward_begin")
_COMMIT: Final = PipelineStep(b"COMMIT", name=b"onceward_commit")
_COMMITTED: Final = b"COMMIT"
"""What the server says then; of a transaction that failed it says ROLLBACK."""
_ROLLBACK: Final = PipelineStep(b"ROLLBACK", name=b"onceward_rollback")
_TIMED: Final = PipelineStep(f"SELECT {_TOOK}".encode(), name=b"onceward_took")
_SECONDS: Final = PipelineStep(SECONDS.encode(), name=b"onceward_seconds")
"""The same, asked as the tenant."""
_BARRIER: Final = PipelineStep(rows.BARRIER, name=b"onceward_barrier")


class BoundSql(NamedTuple):
    """One statement of a tenant's, checked, with its values."""

    sql: bytes
    values: Sequence[bytes | None]
    makes_relations: bool = False
    writes: int | None = None
    """How many rows it writes and that it returns none, where that is certain."""
    target: InsertTarget | None = None
    """Of an insert that may be prepared."""


class TenantRequest(NamedTuple):
    """What a transaction does, and as whom."""

    schema: str
    """The tenant's schema, and the role that owns it."""
    statements: Sequence[BoundSql]
    batch: bool
    reads: bool
    """Whether it may only read."""
    lock_milliseconds: int
    statement_milliseconds: int
    room: SchemaRoom
    """What it may add to the tenant's databases."""
    replay_only: bool = False
    """Whether nothing is to be run."""
    is_keyed: bool = False
    """Whether its result is kept."""
    is_slow: bool = False
    """Whether it took long the last time."""
    certain: tuple[int, ...] | None = None
    """How many rows each statement writes, if all of that is certain before it is sent."""

    @property
    def settings(self) -> list[bytes]:
        """The values of `_OPEN`."""
        return [*self.tenant_settings, b"on" if self.reads else b"off"]

    @property
    def tenant_settings(self) -> tuple[bytes, ...]:
        """Those of them that `record_first` takes."""
        return _tenant_settings(self.schema, self.lock_milliseconds, self.statement_milliseconds)

    @property
    def is_foretold(self) -> bool:
        """Whether the result is certain before anything is sent, and small: of what is heavy the size is looked at."""
        return self.certain is not None and not self.is_slow

    def foretold(self) -> dict[str, Any]:
        """The result, if it is certain. Nobody measures how long it takes: its commit is sent along."""
        return _foretold(self.certain or (), self.batch)

    def foretold_bytes(self) -> Encoded:
        """The same, as it is stored."""
        return _foretold_bytes(self.certain or (), self.batch)


@lru_cache(maxsize=1_000)
def _tenant_settings(schema: str, lock_milliseconds: int, statement_milliseconds: int) -> tuple[bytes, ...]:
    return schema.encode(), b"%d" % lock_milliseconds, b"%d" % statement_milliseconds


def certain_writes(statements: Sequence[BoundSql]) -> tuple[int, ...] | None:
    """How many rows each statement writes, where that is certain for all and not many; None otherwise."""
    total, each = 0, []
    for one in statements:
        if one.writes is None:
            return None
        total += one.writes
        each.append(one.writes)
    return tuple(each) if total <= HEAVY_ROWS else None


def _joined(documents: list[dict[str, Any]], batch: bool) -> dict[str, Any]:
    """The result of all statements, from those of each."""
    if not batch:
        return documents[0]
    return {
        "results": documents,
        "rowsRead": sum(one["rowsRead"] for one in documents),
        "rowsWritten": sum(one["rowsWritten"] for one in documents),
    }


def _foretold(writes: tuple[int, ...], batch: bool) -> dict[str, Any]:
    document = _joined([document_of_writes(one) for one in writes], batch)
    document["meta"] = {"durationMs": None}
    return document


@lru_cache(maxsize=1_000)
def _foretold_bytes(writes: tuple[int, ...], batch: bool) -> Encoded:
    return encode(_foretold(writes, batch))


class _NotPrepared(Exception):
    """What was sent as a prepared statement failed, and nothing was done: its text says why, or does it."""


class SchemaGone(Exception):
    """The schema is not there any more: another replica has dropped the database."""


class _Sent(NamedTuple):
    """The answers to the work."""

    opening: Answer
    statements: Sequence[Answer]
    after: Sequence[Answer]
    ending: Sequence[Answer]


class TenantTransaction(AsyncFinishing, AsyncCallerTransaction):
    """One request on one session. What needs no server is a future that is done: the gate makes no task of it."""

    _begun = False
    _xid: int | None = None
    _touch: tuple[bytes, int, int] | None = None
    _document: dict[str, Any] | None = None
    _result_bytes = 0
    grown = 0
    """How many bytes more the database has, if that was measured."""
    committing = False
    """Whether a commit was sent: without an answer to it, nobody knows."""
    settled = False
    """Whether this request ran, and its record landed. Otherwise its result is an earlier one's."""

    def __init__(
        self,
        session: TenantSession,
        request: TenantRequest,
        records: str,
        lock_timeout: str,
        seen: SettledIds,
        *,
        is_repeated: bool = False,
    ) -> None:
        self._session = session
        self._request = request
        self._records = records
        """The schema of the records, quoted where that is needed."""
        self._lock_timeout = lock_timeout
        self._seen = seen
        """Ids that were found settled: a retry looks before it works."""
        self._repeated = is_repeated
        """Whether it was sent before, and may have been committed without waiting for a standby."""

    # What the gate asks for.

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return not self._begun

    def begin(self) -> Awaitable[bool]:  # type: ignore[override]
        """Nothing is sent before it is known what for."""
        return _done(True)

    def extend(self, family: bytes, replay: int, forget: int) -> Awaitable[int]:  # type: ignore[override]
        """Let the records of a plan replay for longer; sent with the work."""
        self._touch = (family, replay, forget)
        return _done(0)

    def load(self, id: bytes) -> Awaitable[Record | None]:  # type: ignore[override]
        """The record of the key; None if there is none, and the work is done then."""
        if self._begun or self._request.replay_only:
            return BegunCoroutine(self._find(id))
        return BegunCoroutine(self._load(id, looks_first=id in self._seen or self._repeated))

    async def _load(self, id: bytes, *, looks_first: bool) -> Record | None:
        if looks_first:
            record = await self._find(id)
            if record is not None:
                return record
            await self.rollback()
        sent = await self._send(self._look(id))
        if sent.opening.error is None:
            self._xid = int(sent.opening.result.get_value(0, 0))
            self._document = self._document_of(sent)
            return None
        await self._not_looked(sent.opening.error)
        return await self._find(id)

    async def _not_looked(self, error: Any) -> None:
        """The look failed: on purpose, because there is a record; or else raise what it is."""
        await self.rollback()
        code = _code_of(error)
        if code == _HELD:
            raise InFlight("another request with this key is under way", retry_after_seconds=1.0)
        if code not in (_FOUND, _TAKEN):
            raise _ours(error)

    async def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Records are put as the transaction ends, and not before."""
        raise IllegalMove("a tenant's transaction puts its record when it ends")

    def finish(self, write: Write, expect: bytes | None) -> Awaitable[PutResult]:  # type: ignore[override]
        """Put the settled record and commit; if it does not land, roll back."""
        return BegunCoroutine(self._finish(write, expect))

    async def _finish(self, write: Write, expect: bytes | None) -> PutResult:
        put, commit = await self._exchange((self._settling(write, expect), _COMMIT), commits=True)
        if not await self._landed(put, commit):
            return PutResult(False, None)
        landed = rows.put_result_of(self._session.rows_of(put)[0], write, expect)
        result = PutResult(True, None if landed is None else landed.record)
        self._seen.note(write.id, result)
        return result

    async def settle_at_once(self, call: KeyedCall, chance: bytes) -> bool:
        """
        Put the record, work and commit, all in one round trip: for a result that is certain (`is_foretold`).

        False if a record stands under the key: then nothing was done, and nothing is known of that record.
        """
        request = self._request
        if len(request.statements) == 1 and not request.room.measured:
            inserts, only = self._session.inserts, request.statements[0]
            insert = inserts.find(request.schema, only.sql, only.target)
            if insert is not None:
                try:
                    return await self._settle_at_once(call, chance, insert)
                except _NotPrepared:
                    await self.rollback()
                finally:
                    if not insert.is_established:
                        inserts.forget(request.schema, only.sql)
        return await self._settle_at_once(call, chance, None)

    async def _settle_at_once(self, call: KeyedCall, chance: bytes, insert: PreparedInsert | None) -> bool:
        request, session = self._request, self._session
        room, schema = request.room, request.schema
        record = call.scope.certain(call, request.foretold_bytes(), chance)
        before = room.before(schema) if room.measured else ()
        opening = record_first(self._records, record, call.id, request.tenant_settings)
        first = len(before) + 2
        last = first + len(request.statements)
        self._begun = self.committing = True
        answers = await session.exchange(
            [*before, opening, _BEGIN, *self._foretold_steps(insert), _COMMIT],
            commits=True,
            counted=range(first, last),
            counter=RowCounter(session.limits),
        )
        self.committing = False
        took, commit = answers[-2:]
        if commit.result.command_status == _COMMITTED:
            self._begun = False
            session.told += float(took.result.get_value(0, 0))
            if room.measured:
                self._note_growth(answers[last:-2])
            self.settled = True
            self._seen.add(call.id)
            if insert is not None:
                insert.is_established = True
            return True
        self._begun = session.is_in_transaction
        for answer in (*answers[: len(before)], answers[first - 1]):
            if answer.error is not None:
                await self.rollback()
                raise _ours(answer.error)
        if answers[first - 2].error is not None:
            await self._not_looked(answers[first - 2].error)
            return False
        if insert is not None and _may_be_outdated(answers[first:-1]):
            insert.is_established = False
            raise _NotPrepared
        self._check(_Sent(answers[first - 2], answers[first:last], answers[last:-2], ()))
        if took.error is not None:
            raise _ours(took.error)
        self._committed(commit)
        raise IllegalMove("the transaction of this request ended by itself")

    def _foretold_steps(self, insert: PreparedInsert | None) -> list[PipelineStep]:
        """The statements, what is to be asked after them as the tenant, and the time that all of it took."""
        request = self._request
        if insert is not None:
            only = request.statements[0]
            work = new_tuple(PipelineStep, (only.sql, only.values, insert.name, False))
            return [work, _CONSTRAINTS, new_tuple(PipelineStep, (insert.check_sql, (), insert.check_name, False))]
        statements = [new_tuple(PipelineStep, (one.sql, one.values, b"", False)) for one in request.statements]
        if request.room.measured:
            return [*statements, _CONSTRAINTS, *_LEAVE, request.room.measuring(request.schema), _SECONDS]
        return [*statements, *_CONSTRAINTS_PATH, _SECONDS]

    async def _landed(self, put: Answer, commit: Answer) -> bool:
        """Whether the record is put and committed; False if another one stands there, and everything is undone."""
        if put.error is None:
            self._committed(commit)
            self.settled = True
            return True
        await self.rollback()
        code = _code_of(put.error)
        if code in (_TAKEN, NOT_LANDED):
            return False
        raise IllegalMove("the transaction of this request ended by itself") if code == NOT_OURS else _ours(put.error)

    def commit(self) -> Awaitable[None]:  # type: ignore[override]
        """End a look; or commit what has no key."""
        return self._commit() if self._begun else _done(None)

    async def _commit(self) -> None:
        [commit] = await self._exchange((_COMMIT,), commits=not self._request.reads)
        self._committed(commit)

    def _committed(self, commit: Answer) -> None:
        if commit.error is not None:
            error = sql_error(commit.error)
            self.committing = isinstance(error, StoreUnavailable)  # It may be committed all the same.
            raise error
        self._begun = False

    def rollback(self) -> Awaitable[bool]:  # type: ignore[override]
        """Undo everything. A session that is gone has been undone by the server."""
        self._document = self._xid = None
        begun, self._begun = self._begun, False
        return self._roll_back() if begun and not self._session.spoilt else _done(True)

    async def _roll_back(self) -> bool:
        await self._session.execute(_ROLLBACK)
        return True

    # The work.

    async def run(self) -> dict[str, Any]:
        """Do everything that has no key: in one round trip if nothing could be refused after it is committed."""
        if self._request.reads:
            sent = await self._send(self._open(), _COMMIT)
        elif self._request.is_foretold:
            sent = await self._send(self._open(), _TIMED, _COMMIT)
        else:
            document = await self.work()
            await self.commit()
            return document
        document = self._document_of(sent)
        self._committed(sent.ending[-1])
        if not self._request.reads:
            self._session.told += float(sent.ending[0].result.get_value(0, 0))
        return document

    async def work(self) -> dict[str, Any]:
        """What the statements came to: already known, or done now (no key, or a record that makes room)."""
        if self._document is None:
            self._document = self._document_of(await self._send(self._open()))
        return self._document

    async def _send(self, opening: PipelineStep, *ending: PipelineStep) -> _Sent:
        """Send the work between its opening and its ending, and what is still missing in front of that."""
        before = [] if self._begun else self._before()
        begin = [] if self._begun else [_BEGIN]
        statements = [PipelineStep(one.sql, one.values) for one in self._request.statements]
        after = [*_LEAVE] if self._request.reads else [_CONSTRAINTS, *_LEAVE]
        adds = any(one.makes_relations for one in self._request.statements)
        after += self._request.room.after(self._request.schema, self._records, adds_things=adds)
        first = len(before) + 1 + len(begin)
        last = first + len(statements)
        counter = RowCounter(self._session.limits)
        answers = await self._exchange(
            (*before, opening, *begin, *statements, *after, *ending),
            counted=range(first, last),
            counter=counter,
            commits=bool(ending) and not self._request.reads,
        )
        if counter.refusal is not None:
            await self.rollback()
            raise counter.refusal
        for answer in (*answers[: len(before)], *answers[first - len(begin) : first]):
            if answer.error is not None:
                await self.rollback()
                raise _ours(answer.error)
        self._result_bytes = counter.used
        if not ending and not any(one.error is not None for one in answers):
            await self._measure_late(answers[first:last])
        end = len(answers) - len(ending)
        return _Sent(answers[len(before)], answers[first:last], answers[last:end], answers[end:])

    async def _measure_late(self, statements: Sequence[Answer]) -> None:
        """Look at the size before the commit after all, if more was done than small writes do."""
        room = self._request.room
        written = sum(one.result.command_tuples or 0 for one in statements)
        if room.measured or not room.watched or (self._session.worked <= HEAVY_SECONDS and written <= HEAVY_ROWS):
            return
        [answer] = await self._session.exchange((room.measuring(self._request.schema),))
        if answer.error is not None:
            await self.rollback()
            raise room.refusal(_code_of(answer.error)) or _ours(answer.error)

    async def _exchange(self, steps: Sequence[PipelineStep], *, commits: bool, **counting: Any) -> list[Answer]:
        """Send steps, of which the last may commit. If no answer comes, it is known what that leaves open."""
        self._begun, self.committing = True, commits
        answers = await self._session.exchange(steps, commits=commits, **counting)
        self._begun, self.committing = self._session.is_in_transaction, False
        return answers

    def _before(self) -> list[PipelineStep]:
        """What the service asks first: how much there is; for a step of a plan, that the plan's records live on."""
        room = self._request.room.before(self._request.schema)
        if self._touch is None:
            return room
        family, replay, forget = self._touch
        values = [family, int8(replay), int8(forget), self._lock_timeout.encode()]
        touch = _extending(self._records)
        return [PipelineStep(touch.sql, values, touch.name, binary=True), *room]

    def _document_of(self, sent: _Sent) -> dict[str, Any]:
        """The result as it is stored and sent; the first step that failed raises."""
        self._check(sent)
        return _joined([document_of(answer) for answer in sent.statements], self._request.batch)

    def _check(self, sent: _Sent) -> None:
        """Raise what the first step that failed means."""
        if sent.opening.error is not None:
            raise _ours(sent.opening.error)
        for number, answer in enumerate(sent.statements):
            if answer.error is not None:
                error = sql_error(answer.error)
                if isinstance(error, SqlError) and self._request.batch:
                    error.statement = number
                raise error
        for number, answer in enumerate(sent.after):
            if answer.error is None:
                continue
            if number == 0 and not self._request.reads:
                raise sql_error(answer.error)  # A deferred constraint of the tenant's.
            raise self._request.room.refusal(_code_of(answer.error)) or _ours(answer.error)
        self._note_growth(sent.after)

    def _note_growth(self, after: Sequence[Answer]) -> None:
        """
        How much was added; the record's own bytes, which are in another table, count as well.

        Where everything is sent at once there are no rows in the result: then the server itself has refused what is
        too much, before the commit.
        """
        room = self._request.room
        if not room.measured:
            return
        self.grown = int(self._session.rows_of(after[-1])[0][0])
        if self._request.is_keyed:
            self.grown = max(self.grown, 0) + self._result_bytes
        if room.growth is not None and self.grown > room.growth:
            raise quota_full(room.growth)

    def _open(self) -> PipelineStep:
        return PipelineStep(_OPEN, self._request.settings, b"onceward_open")

    def _settling(self, write: Write, expect: bytes | None) -> PipelineStep:
        """The record, as it is put at the end."""
        values = put_values(write, expect, self._lock_timeout, relaxed=False)
        if expect is None:
            del values[-2:]  # The limit for locks is that of the whole transaction.
        else:
            del values[_RELAXED]
        values.append(None if self._xid is None else int8(self._xid))
        statement = _ending(self._records, fresh=expect is None)
        return PipelineStep(statement.sql, values, statement.name, binary=True)

    def _look(self, id: bytes) -> PipelineStep:
        lock = b"%d" % int.from_bytes(id[:8], "big", signed=True)
        values = [b"\\x" + id.hex().encode(), lock, *self._request.settings]
        return PipelineStep(_looking(self._records), values, b"onceward_look")

    async def _find(self, id: bytes) -> Record | None:
        """
        Look for the record; for a step of a plan in a transaction, in which the others' lives are lengthened.

        A read shows what a standby may not have. So what this request itself may have written is believed only together
        with a commit that does wait (decision 037).
        """
        find = _finding(self._records)
        begins = self._touch is not None and not self._begun
        before = [_BEGIN, *self._before()] if begins else []
        after = [_BARRIER] if self._repeated and not self._begun and not begins else []
        steps = (*before, PipelineStep(find.sql, [id], find.name, binary=True), *after)
        answers = await self._exchange(steps, commits=bool(after))
        for answer in answers:
            if answer.error is not None:
                raise sql_error(answer.error)
        found = self._session.rows_of(answers[len(before)])
        record = rows.record_of(found[0][0], found[0][1:]) if found else None
        self._seen.note(id, PutResult(False, record))
        return record


def _done(value: T) -> asyncio.Future[T]:
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    done.set_result(value)
    return done


def _code_of(failed: Any) -> str:
    return (failed.error_field(DiagnosticField.SQLSTATE) or b"").decode()


def _may_be_outdated(answers: Sequence[Answer]) -> bool:
    """Whether an insert has failed because of what it was prepared for; not if it waited, or there was no room."""
    return all(one.error is None or _code_of(one.error) not in _TENANTS_DOING for one in answers)


def _ours(failed: Any) -> Exception:
    """The error of a statement of the service's own, which is not the tenant's doing."""
    if _code_of(failed) == _NO_SUCH_ROLE:
        return SchemaGone()
    if _code_of(failed) in _TENANTS_DOING:
        return sql_error(failed)
    text = (failed.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"").decode("utf-8", "replace")
    return StoreUnavailable(f"the database refused what the service asked: {text[:200]}", retry_after_seconds=1.0)


@cache
def _looking(schema: str) -> bytes:
    return _LOOK.format(schema=schema, durable=rows.DURABLE, settings=_SETTINGS.format(3, 4, 5, 6)).encode()


@cache
def _finding(schema: str) -> PreparableStatement:
    return preparable(rows.qualified(schema, rows.FIND), prepares=True)


@cache
def _ending(schema: str, *, fresh: bool) -> PreparableStatement:
    return preparable(rows.qualified(schema, _SETTLE if fresh else _REPLACE), prepares=True)


@cache
def _extending(schema: str) -> PreparableStatement:
    return preparable(rows.qualified(schema, rows.JOINED_EXTEND), prepares=True)
