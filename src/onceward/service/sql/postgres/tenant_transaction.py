"""
A tenant's request as one transaction, which `gate.atomic` joins: the record commits with the rows, or neither does.

    round trip 1   BEGIN | look for the key, or stop; settings, role | the tenant's statements | constraints | role off
    round trip 2   the settled record, or stop | COMMIT

The gate asks for the record first, and for the work after that. Here the work rides along with the question: if a
record stands there, the question fails and the server skips the work. Everything else is as in any transaction that a
gate joins: the core decides, and the unique constraint is the arbiter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from psycopg.pq import DiagnosticField

from onceward._core.caller_transaction_async import AsyncCallerTransaction, AsyncFinishing
from onceward._core.errors import IllegalMove, InFlight, StoreUnavailable
from onceward._core.record import PutResult, Record, Write
from onceward.adapters._psycopg_pipeline import PreparableStatement, preparable
from onceward.adapters._psycopg_transaction_flow import END, END_FRESH, NOT_LANDED, NOT_OURS
from onceward.protocol.errors import SqlError
from onceward.service.sql.postgres.schema_room import HEAVY_ROWS, HEAVY_SECONDS, SchemaRoom, quota_full
from onceward.service.sql.postgres.session import Answer, PipelineStep, RowCounter, TenantSession, document_of
from onceward.service.sql.postgres.sqlstates import sql_error
from onceward.stores import _postgres_rows as rows
from onceward.stores._postgres_wire import int8, put_values
from onceward.stores._settled_ids import SettledIds

_RELAXED: Final = len(Write._fields)
"""Its index among the values of a put: a tenant's transaction is as durable as PostgreSQL makes it."""
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
_CONSTRAINTS: Final = PipelineStep(b"SET CONSTRAINTS ALL IMMEDIATE")
"""Before the role is left: what a constraint calls at the commit would run as the service."""
_LEAVE: Final = (PipelineStep(b"SET LOCAL ROLE NONE"), PipelineStep(b"SET LOCAL search_path = pg_catalog"))
"""Not by `set_config`: a tenant has no right to call it, and is still the user here."""
_BEGIN, _COMMIT, _ROLLBACK = PipelineStep(b"BEGIN"), PipelineStep(b"COMMIT"), PipelineStep(b"ROLLBACK")


class BoundSql(NamedTuple):
    """One statement of a tenant's, checked, with its values."""

    sql: bytes
    values: Sequence[bytes | None]
    makes_relations: bool = False


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

    @property
    def settings(self) -> list[bytes]:
        """The values of `_OPEN`."""
        numbers = (self.lock_milliseconds, self.statement_milliseconds)
        return [self.schema.encode(), *(str(one).encode() for one in numbers), b"on" if self.reads else b"off"]


class SchemaGone(Exception):
    """The schema is not there any more: another replica has dropped the database."""


class _Sent(NamedTuple):
    """The answers to the work."""

    opening: Answer
    statements: Sequence[Answer]
    after: Sequence[Answer]


class TenantTransaction(AsyncFinishing, AsyncCallerTransaction):
    """One request on one session."""

    def __init__(
        self, session: TenantSession, request: TenantRequest, records: str, lock_timeout: str, seen: SettledIds
    ) -> None:
        self._session = session
        self._request = request
        self._records = records
        """The schema of the records, quoted where that is needed."""
        self._lock_timeout = lock_timeout
        self._seen = seen
        """Ids that were found settled: a retry looks before it works."""
        self._begun = False
        self._xid: int | None = None
        self._touch: tuple[bytes, int, int] | None = None
        self._document: dict[str, Any] | None = None
        self._result_bytes = 0
        self.grown = 0
        """How many bytes more the database has, if that was measured."""
        self.committing = False
        """Whether a commit was sent: without an answer to it, nobody knows."""
        self.settled = False
        """Whether this request ran, and its record landed. Otherwise its result is an earlier one's."""

    # What the gate asks for.

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return not self._begun

    async def begin(self) -> bool:
        """Nothing is sent before it is known what for."""
        return True

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Let the records of a plan replay for longer; sent with the work."""
        self._touch = (family, replay, forget)
        return 0

    async def load(self, id: bytes) -> Record | None:
        """The record of the key; None if there is none, and the work is done then."""
        if self._begun or self._request.replay_only:
            return await self._find(id)
        if id in self._seen:
            record = await self._find(id)
            if record is not None:
                return record
            await self.rollback()
        sent = await self._send(self._look(id))
        if sent.opening.error is None:
            self._xid = int(sent.opening.rows[0][0] or 0)
            self._document = self._document_of(sent)
            return None
        code = _code_of(sent.opening.error)
        await self.rollback()
        if code == _HELD:
            raise InFlight("another request with this key is under way", retry_after_seconds=1.0)
        if code != _FOUND:
            raise _ours(sent.opening.error)
        return await self._find(id)

    async def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Records are put as the transaction ends, and not before."""
        raise IllegalMove("a tenant's transaction puts its record when it ends")

    async def finish(self, write: Write, expect: bytes | None) -> PutResult:
        """Put the settled record and commit; if it does not land, roll back."""
        statement = _ending(self._records, fresh=expect is None)
        values = put_values(write, expect, self._lock_timeout, relaxed=False)
        del values[_RELAXED]
        values.append(None if self._xid is None else int8(self._xid))
        step = PipelineStep(statement.sql, values, statement.name, binary=True)
        self.committing = True
        put, commit = await self._session.exchange((step, _COMMIT))
        if put.error is not None:
            self.committing = False
            await self.rollback()
            code = _code_of(put.error)
            if code == NOT_LANDED:
                return PutResult(False, None)
            raise (
                IllegalMove("the transaction of this request ended by itself") if code == NOT_OURS else _ours(put.error)
            )
        if commit.error is not None:
            raise sql_error(commit.error)
        self._begun, self.committing, self.settled = False, False, True
        landed = rows.put_result_of(self._session.rows_of(put)[0], write, expect)
        result = PutResult(True, None if landed is None else landed.record)
        self._seen.note(write.id, result)
        return result

    async def commit(self) -> None:
        """Commit what has no key, or end a look."""
        if not self._begun:
            return
        self.committing = not self._request.reads
        [commit] = await self._session.exchange((_COMMIT,))
        if commit.error is not None:
            raise sql_error(commit.error)
        self._begun = self.committing = False

    async def rollback(self) -> bool:
        """Undo everything. A session that is gone has been undone by the server."""
        if self._begun and not self._session.spoilt:
            self._begun = False
            await self._session.execute(_ROLLBACK)
        self._begun = False
        return True

    # The work.

    async def work(self) -> dict[str, Any]:
        """What the statements came to: already known, or done now (no key, or a record that makes room)."""
        if self._document is None:
            self._document = self._document_of(
                await self._send(PipelineStep(_OPEN, self._request.settings, b"onceward_open"))
            )
        return self._document

    async def _send(self, opening: PipelineStep) -> _Sent:
        """Send the work behind its opening, and behind what is still missing in front of that."""
        before = [] if self._begun else self._beginning()
        statements = [PipelineStep(one.sql, one.values) for one in self._request.statements]
        after = [*_LEAVE] if self._request.reads else [_CONSTRAINTS, *_LEAVE]
        adds = any(one.makes_relations for one in self._request.statements)
        after += self._request.room.after(self._request.schema, self._records, adds_things=adds)
        first = len(before) + 1
        counted = range(first - 1, first + len(statements))
        counter = RowCounter(self._session.limits)
        self._begun = True
        answers = await self._session.exchange(
            (*before, opening, *statements, *after), counted=counted, counter=counter
        )
        if counter.refusal is not None:
            await self.rollback()
            raise counter.refusal
        for answer in answers[: len(before)]:
            if answer.error is not None:
                await self.rollback()
                raise _ours(answer.error)
        last = first + len(statements)
        self._result_bytes = counter.used
        if not any(one.error is not None for one in answers):
            await self._measure_late(answers[first:last])
        return _Sent(answers[first - 1], answers[first:last], answers[last:])

    async def _measure_late(self, statements: Sequence[Answer]) -> None:
        """Look at the size before the commit after all, if more was done than small writes do."""
        room = self._request.room
        heavy = self._session.worked > HEAVY_SECONDS or sum(one.written for one in statements) > HEAVY_ROWS
        if room.measured or not room.watched or not heavy:
            return
        [answer] = await self._session.exchange((room.measuring(self._request.schema),))
        if answer.error is not None:
            await self.rollback()
            raise room.refusal(_code_of(answer.error)) or _ours(answer.error)

    def _beginning(self) -> list[PipelineStep]:
        """What comes first in a transaction: BEGIN and, for a step of a plan, that its records live on."""
        before = self._request.room.before(self._request.schema)
        if self._touch is None:
            return [_BEGIN, *before]
        family, replay, forget = self._touch
        values = [family, int8(replay), int8(forget), self._lock_timeout.encode()]
        touch = _extending(self._records)
        return [_BEGIN, PipelineStep(touch.sql, values, touch.name, binary=True), *before]

    def _document_of(self, sent: _Sent) -> dict[str, Any]:
        """The result as it is stored and sent; the first step that failed raises."""
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
        documents = [document_of(answer) for answer in sent.statements]
        if not self._request.batch:
            return documents[0]
        return {
            "results": documents,
            "rowsRead": sum(one["rowsRead"] for one in documents),
            "rowsWritten": sum(one["rowsWritten"] for one in documents),
        }

    def _note_growth(self, after: Sequence[Answer]) -> None:
        """How much was added; the record's own bytes, which are in another table, count as well."""
        room = self._request.room
        if not room.measured:
            return
        self.grown = int(self._session.rows_of(after[-1])[0][0])
        if self._request.is_keyed:
            self.grown = max(self.grown, 0) + self._result_bytes
        if room.growth is not None and self.grown > room.growth:
            raise quota_full(room.growth)

    def _look(self, id: bytes) -> PipelineStep:
        lock = str(int.from_bytes(id[:8], "big", signed=True)).encode()
        values = [b"\\x" + id.hex().encode(), lock, *self._request.settings]
        return PipelineStep(_looking(self._records), values, b"onceward_look")

    async def _find(self, id: bytes) -> Record | None:
        """Look for the record; for a step of a plan in a transaction, in which the others' lives are lengthened."""
        find = _finding(self._records)
        before = self._beginning() if self._touch is not None and not self._begun else []
        self._begun = self._begun or bool(before)
        answers = await self._session.execute(*before, PipelineStep(find.sql, [id], find.name, binary=True))
        found = self._session.rows_of(answers[-1])
        record = rows.record_of(found[0][0], found[0][1:]) if found else None
        self._seen.note(id, PutResult(False, record))
        return record


def _code_of(failed: Any) -> str:
    return (failed.error_field(DiagnosticField.SQLSTATE) or b"").decode()


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
    return preparable(rows.qualified(schema, END_FRESH if fresh else END), prepares=True)


@cache
def _extending(schema: str) -> PreparableStatement:
    return preparable(rows.qualified(schema, rows.JOINED_EXTEND), prepares=True)
