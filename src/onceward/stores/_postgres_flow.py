"""
What each call of the PostgreSQL store does, for both colours: generators that yield statements and get the rows.

    put      send the statement; again if its snapshot was too old; on another connection if its response was lost
    open     look at the schema, and bring it up to date if need be

A runner takes each statement that is yielded, runs it on a connection, and sends the rows back or throws the driver's
error in. What an error means, and whether to retry, is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from onceward._core.errors import OncewardError, SchemaMismatch, StoreContended, StoreUnavailable
from onceward._core.record import PutResult, Record, Write
from onceward._core.store_protocols import PurgeResult, Selection
from onceward.runtime import failpoints
from onceward.stores import _postgres_functions as functions
from onceward.stores import _postgres_rows as rows
from onceward.stores import _postgres_wire as wire
from onceward.stores._group_commit import PUT_ALONE, QueueEntry, copy_error
from onceward.stores._migration_scripts import migration_scripts
from onceward.stores._postgres_errors import (
    DRIVER_ERRORS,
    NotConnected,
    RetryDecision,
    ServerSilent,
    is_locked,
    retry_decision,
    table_exists,
    translate_error,
)
from onceward.stores._postgres_url import PostgresTarget
from onceward.stores._settled_ids import SettledIds

T = TypeVar("T")

LATEST = 3
"""The schema's version that this code knows."""

STATEMENT_TRIES = 4
"""Tries of a statement that met a deadlock or lost its connection: the server may only be restarting."""
PUT_TRIES = 50
"""Tries of a put whose snapshot was too old, because another write landed meanwhile. Two are usually enough."""
PAUSE_SECONDS = 0.02
"""Before the second try; it doubles."""

PURGE_STEPS = 100
"""Statements of one purge at most: it is done in passing, and goes on with the next one."""

BATCH_LOCK_TIMEOUT = "100ms"
"""Much longer than our statements hold a row, and short enough for the callers that wait behind the batch."""
FAILURES = (*DRIVER_ERRORS, NotConnected)

BEFORE_PUT = failpoints.declare("postgres.put.before", "nothing is sent | a put, or a batch of them")
AFTER_PUT = failpoints.declare("postgres.put.after", "a put is committed and answered | its caller hears of it")

MIGRATION_TRIES = 10
"""Tries of a migration that met others on the table: it waits for a moment only, because all wait behind it."""
SCRIPT_LOCK_SECONDS = 30.0
"""How long a migration may wait for another one: longer than one should take, and not for ever."""
_TAKE_MIGRATION_LOCK = (
    b"SET LOCAL lock_timeout = '%ds'" % SCRIPT_LOCK_SECONDS,
    b"SET LOCAL statement_timeout = 0",  # A role's limit is meant for requests.
    b"SELECT pg_advisory_xact_lock(%d)" % rows.MIGRATION_LOCK,
)
MIGRATION_PAUSE_SECONDS = 0.5
HAS_META = b"SELECT to_regclass('onceward_meta') IS NOT NULL"
VERSION = b"SELECT value FROM onceward_meta WHERE name = 'schema_version'"
_NOTHING: Mapping[str, Any] = {}


QueryParameters: TypeAlias = Mapping[str, Any] | Sequence[wire.Value]


class QueryEffect(NamedTuple):
    """A statement to run by itself on any connection. The result is its rows."""

    sql: bytes | wire.NumberedStatement
    parameters: QueryParameters = _NOTHING
    """By name; of a `Statement`, its values by number."""


class ScriptEffect(NamedTuple):
    """Statements to run in one transaction."""

    statements: tuple[bytes, ...]
    patience: float = SCRIPT_LOCK_SECONDS
    """How long it may wait for another one, beyond what any statement may take."""


class ConnectionEffect(NamedTuple):
    """Do something with one connection. The result is what `work` returns, awaited if the connection is async."""

    work: Callable[[Any], Any]


class SleepEffect(NamedTuple):
    """Wait a little. With `lost`, close every idle connection as well: if one was lost, the others probably were."""

    seconds: float
    lost: bool


Effect: TypeAlias = QueryEffect | ScriptEffect | ConnectionEffect | SleepEffect
Flow: TypeAlias = Generator[Effect, Any, T]


class StatementRetries:
    """How many more tries a call has, and whether its connection was lost on the way."""

    __slots__ = ("lost", "name", "pause", "tries")

    def __init__(self, name: str, *, lost: bool = False) -> None:
        self.name = name
        self.tries = STATEMENT_TRIES
        self.pause = PAUSE_SECONDS
        self.lost = lost
        """Whether the statement may have been carried out although its response was lost."""

    def pause_before_retry(self, error: BaseException) -> SleepEffect:
        """The pause before the next try; raises our error if there is to be none."""
        self.tries -= 1
        judged = retry_decision(error)
        if isinstance(error, ServerSilent):
            self.tries = min(self.tries, 1)  # Another line may do better; a second long silence is enough.
        if isinstance(error, NotConnected) and self.lost and not error.final:
            judged = RetryDecision.LOST  # Something was sent before, and its response was lost: that is worth a wait.
        if judged is RetryDecision.FINAL or self.tries <= 0:
            raise error.meaning if isinstance(error, NotConnected) else translate_error(error, self.name) from error
        self.lost = self.lost or judged is RetryDecision.LOST
        self.pause *= 2
        return SleepEffect(self.pause / 2, judged is RetryDecision.LOST)


def with_retries(
    target: PostgresTarget,
    effect: QueryEffect | ScriptEffect | ConnectionEffect,
    may_have_landed: Callable[[], bool] | None = None,
) -> Flow[Any]:
    """
    The result of an effect, retried as long as that is worth it; raises our error if it fails.

    If `may_have_landed` says so, a lost connection is not retried: the effect must not land twice.
    """
    patience = StatementRetries(target.name)
    while True:
        try:
            return (yield effect)
        except FAILURES as error:
            if may_have_landed is not None and may_have_landed() and retry_decision(error) is RetryDecision.LOST:
                raise translate_error(error, target.name) from error
            pause = patience.pause_before_retry(error)
        yield pause


def put(target: PostgresTarget, write: Write, expect: bytes | None, *, again: bool = False) -> Flow[PutResult]:
    """
    Write a record if its current version is `expect`; whether it landed, and what is there now.

    With `again`, or after a connection was lost, the write may have landed already: then the record that is there has
    this write's version.
    """
    relaxed = target.may_relax and write.relaxed
    try:
        query = put_query(write, expect, target.lock_timeout, relaxed)
    except DRIVER_ERRORS as error:
        raise translate_error(error, target.name) from error
    patience = StatementRetries(target.name, lost=again)
    for _ in range(PUT_TRIES):
        failpoints.hit(BEFORE_PUT)
        try:
            result = yield from put_result((yield query), write, expect)
        except FAILURES as error:
            pause = patience.pause_before_retry(error)
            yield pause
            continue
        failpoints.hit(AFTER_PUT)
        if result is not None and _is_own_write(result, write) and not relaxed:
            try:
                yield QueryEffect(rows.BARRIER)
            except FAILURES as error:
                pause = patience.pause_before_retry(error)
                yield pause
                continue
        if result is not None:
            return landed_if_own(result, write) if patience.lost else result
    raise StoreContended(retry_after_seconds=0.1)


def put_back(target: PostgresTarget, write: Write, marks: Sequence[bytes]) -> Flow[PutResult]:
    """Write a record that the store has lost, unless it is back or one of `marks` is there."""
    parameters = {**rows.put_parameters(write, None, target.lock_timeout, False), "marks": sorted(marks)}
    patience = StatementRetries(target.name)
    for _ in range(PUT_TRIES):
        try:
            [row] = yield QueryEffect(rows.PUT_BACK, parameters)
            *row, free = row
            result = rows.put_result_of(row, write, None) if free else _refused_by_mark(row)
            if result is not None and _is_own_write(result, write):
                yield QueryEffect(rows.BARRIER)
                return landed_if_own(result, write)
        except FAILURES as error:
            pause = patience.pause_before_retry(error)
            yield pause
            continue
        if result is not None:
            return result
    raise StoreContended(retry_after_seconds=0.1)


def _refused_by_mark(row: Sequence[Any]) -> PutResult:
    """The result if a mark is there: not landed, and the record that is there, if any."""
    return PutResult(False, None if row[3] is None else rows.record_of(row[1], row[3:26]))


def erase(target: PostgresTarget, ids: Sequence[bytes]) -> Flow[int]:
    """Delete these records, whatever their state; how many there were."""
    [(erased,)] = yield from with_retries(target, QueryEffect(rows.ERASE, {**_writing(target), "ids": list(ids)}))
    return int(erased)


def put_many(target: PostgresTarget, puts: Sequence[tuple[Write, bytes | None]]) -> Flow[list[PutResult | None]]:
    """
    Several puts of different ids in one statement, tried once; None for each put that has to be tried again.

    It waits only a moment for locks, so that one caller's open transaction does not stall the others. If the statement
    fails, all of it landed or nothing, and each put is tried again by itself.
    """
    if failpoints.ARMED:
        failpoints.hit(BEFORE_PUT)
    relaxed = target.may_relax and all(write.relaxed for write, _ in puts)
    if len(puts) == 1:
        [(write, expect)] = puts
        shown = yield put_query(write, expect, BATCH_LOCK_TIMEOUT, relaxed)
        results = [(yield from put_result(shown, write, expect))]
    else:
        found = yield _batch_query(puts, relaxed)
        by_id = {row[-1]: row for row in found}
        results = []
        for write, expect in puts:
            row = by_id[write.id]
            fence = row[2]
            if fence is None:
                results.append(rows.put_result_of(row, write, expect))
            else:
                landed = rows.landed_record(write, row[0], row[1], fence)
                results.append(rows.new_tuple(PutResult, (True, landed)))
    if failpoints.ARMED:
        failpoints.hit(AFTER_PUT)
    return results


def peek_or_put_many(
    target: PostgresTarget, puts: Sequence[tuple[Write, bytes | None]], seen: SettledIds
) -> Flow[list[PutResult | None]]:
    """Put several records. If all are claims of ids that were seen settled, only read them: that is cheaper."""
    settled = True
    for write, expect in puts:
        settled = settled and expect is None and write.id in seen
    results = yield from (_peek_many(puts) if settled else put_many(target, puts))
    return (yield from conclude(puts, results, seen))


def conclude(
    puts: Sequence[tuple[Write, bytes | None]], results: list[PutResult | None], seen: SettledIds
) -> Flow[list[PutResult | None]]:
    """What follows puts that were answered: a barrier, if one found itself; and what is settled now is noted."""
    own = False
    for (write, _), result in zip(puts, results, strict=True):
        if result is None:
            seen.forget(write.id)
            continue
        seen.note(write.id, result)
        own = own or (not result.landed and _is_own_write(result, write))
    if own:
        yield QueryEffect(rows.BARRIER)
    return results


def conclude_one(
    shown: Sequence[Any], write: Write, expect: bytes | None, seen: SettledIds
) -> Flow[list[PutResult | None]]:
    """The same of one put, by what its statement has shown."""
    result = yield from put_result(shown, write, expect)
    return (yield from conclude([(write, expect)], [result], seen))


def _peek_many(puts: Sequence[tuple[Write, bytes | None]]) -> Flow[list[PutResult | None]]:
    """The records that are there; None for each id that has none and has to be claimed."""
    failpoints.hit(BEFORE_PUT)
    found = yield from _find_many([write.id for write, _ in puts])
    failpoints.hit(AFTER_PUT)
    return [None if one is None else PutResult(False, one) for one in found]


def _find_many(ids: Sequence[bytes]) -> Flow[list[Record | None]]:
    """The records with these ids, those that are there."""
    if len(ids) == 1:
        found = yield QueryEffect(wire.FIND, [ids[0]])
    else:
        found = yield QueryEffect(wire.FIND_MANY, wire.ids_value(ids))
    by_id = {row[1]: rows.record_of(row[0], row[1:]) for row in found}
    return [by_id.get(id) for id in ids]


def put_query(write: Write, expect: bytes | None, lock_timeout: str, relaxed: bool) -> QueryEffect:
    """The statement of one put."""
    if expect is not None and not write.rise:
        if rows.is_usual_settle(write):
            return QueryEffect(wire.SETTLE, wire.settle_values(write, expect, lock_timeout, relaxed))
        return QueryEffect(wire.END, wire.end_values(write, expect, lock_timeout, relaxed))
    if expect is None and rows.is_new_claim(write):
        return QueryEffect(wire.CLAIM, wire.claim_values(write, lock_timeout, relaxed))
    values = wire.put_values(write, expect, lock_timeout, relaxed)
    return QueryEffect(wire.INSERT if expect is None else wire.SWAP, values)


def put_result(shown: Sequence[Any], write: Write, expect: bytes | None) -> Flow[PutResult | None]:
    """What came of one put, by what its statement has shown; None if it has to be sent again."""
    if shown:
        return rows.put_result_of(shown[0], write, expect)
    # An ending that has changed nothing.
    [result] = yield from _find_many([write.id])
    return None if result is not None and result.version == expect else PutResult(False, result)


def _batch_query(puts: Sequence[tuple[Write, bytes | None]], relaxed: bool) -> QueryEffect:
    if all(expect is not None and not write.rise for write, expect in puts):
        return QueryEffect(wire.ENDS, wire.ends_values(puts, BATCH_LOCK_TIMEOUT, relaxed))
    return QueryEffect(wire.BATCH, wire.batch_values(puts, BATCH_LOCK_TIMEOUT, relaxed))


def _is_own_write(result: PutResult, write: Write) -> bool:
    """
    Whether the record that was found is this very write, sent before, whose response was lost.

    A read does not wait for a standby. So before the record is relied on, a barrier is written that does wait: when it
    is confirmed, everything committed before it has reached the standby, too.
    """
    return not result.landed and result.record is not None and result.record.version == write.version


def landed_if_own(result: PutResult, write: Write) -> PutResult:
    """The result as landed, if the record that a repeated write found is that write itself."""
    if result.record is not None and result.record.version == write.version:
        return PutResult(True, result.record)
    return result


def assign_results(batch: Sequence[QueueEntry], came: Sequence[PutResult | None] | Exception) -> None:
    """Give each entry of a batch its result, its error, or `PUT_ALONE`, from what `peek_or_put_many` came to."""
    if isinstance(came, OncewardError):
        # No connection, or tables that are not ours: every entry gets this error.
        for entry in batch:
            entry.fail(copy_error(came))
        return
    # A lock, a deadlock, a bad row, a lost connection: nothing landed, or nobody knows. Each is put alone.
    results = [None] * len(batch) if isinstance(came, Exception) else came
    for entry, result in zip(batch, results, strict=True):
        if result is not None and entry.again and entry.write is not None:
            result = landed_if_own(result, entry.write)
        entry.answer = PUT_ALONE if result is None else result
        entry.done = True


def put_alone(target: PostgresTarget, entry: QueueEntry) -> Flow[PutResult]:
    """Put an entry by itself, with retries, after its batch could not decide it."""
    if entry.write is None:
        raise TypeError("not a put")
    return put(target, entry.write, entry.expect, again=True)


def load(target: PostgresTarget, id: bytes) -> Flow[Record | None]:
    """Read one record; None if there is none."""
    found = yield from with_retries(target, QueryEffect(wire.FIND, [id]))
    return rows.record_of(found[0][0], found[0][1:]) if found else None


def scan(target: PostgresTarget, after: bytes, limit: int, selection: Selection) -> Flow[list[Record]]:
    """One page of records in order of id, beginning after an id."""
    found = yield from with_retries(target, QueryEffect(*rows.scan_statement(after, limit, selection)))
    return [rows.record_of(row[0], row[1:]) for row in found]


def extend(target: PostgresTarget, family: bytes, replay: int, forget: int) -> Flow[int]:
    """Let the settled records of a family replay for longer; how many there were."""
    lives = {"family": family, "replay": replay, "forget": forget}
    [(many,)] = yield from with_retries(target, QueryEffect(rows.EXTEND, {**_writing(target), **lives}))
    return int(many)


def purge(target: PostgresTarget, limit: int, version: bytes) -> Flow[PurgeResult]:
    """
    Delete forgotten records and shrink expired ones to tombstones, at most `limit` of either.

    One new version serves every row: it is only compared with that of the same id.
    """
    forgotten = shrunk = 0
    for _ in range(PURGE_STEPS):
        bounds = {"limit": limit - forgotten, "shrink": limit - shrunk, "version": version}
        effect = QueryEffect(rows.PURGE, {**_writing(target), **bounds})
        [(gone, less, looked)] = yield from with_retries(target, effect)
        forgotten, shrunk = forgotten + gone, shrunk + less
        if looked < rows.LOOKS or forgotten >= limit or shrunk >= limit:
            break
    return PurgeResult(forgotten, shrunk)


def _writing(target: PostgresTarget) -> dict[str, Any]:
    return {"lock_timeout": target.lock_timeout, "relaxed": False}


def identity(target: PostgresTarget) -> Flow[tuple[Any, ...]]:
    """Which cluster, database and table the records are in."""
    [found] = yield from with_retries(target, QueryEffect(rows.IDENTITY))
    return tuple(found)


# The schema.


def open_schema(target: PostgresTarget) -> Flow[tuple[int, int]]:
    """Make sure that the tables are there and are understood; the versions before and after."""
    before = yield from _version(target)
    if before < LATEST:
        yield from _migrate(target, before)
        yield from _version(target)
    return before, LATEST


def _migrate(target: PostgresTarget, before: int) -> Flow[None]:
    """Run what is missing, in one transaction. Functions that are installed come along: they know one version."""
    statements = [text for number, text in migrations(target.partitions) if number > before]
    if before and (yield from with_retries(target, QueryEffect(functions.HAS_FUNCTIONS.encode()))) == [(True,)]:
        [place] = yield from with_retries(target, QueryEffect(functions.PLACE.encode()))
        statements += functions.migration_statements(functions.TablesPlace(*place))
    for left in reversed(range(MIGRATION_TRIES)):
        try:
            yield from with_retries(target, ScriptEffect((*_TAKE_MIGRATION_LOCK, *statements)))
            return
        except StoreUnavailable as error:
            if table_exists(error.__cause__):
                return  # Somebody else held the lock before us, and has made them.
            if not left or not is_locked(error.__cause__):
                raise
        yield SleepEffect(MIGRATION_PAUSE_SECONDS, False)


def _version(target: PostgresTarget) -> Flow[int]:
    [(there,)] = yield from with_retries(target, QueryEffect(HAS_META))
    return checked_version(target.name, (yield from with_retries(target, QueryEffect(VERSION)))) if there else 0


def checked_version(name: str, found: Sequence[Any]) -> int:
    """The schema version in the rows of `VERSION`; raises if this code does not know it."""
    if not found:
        raise SchemaMismatch(f"{name}: onceward_meta has no schema_version: it was not written by Onceward")
    version: int = found[0][0]
    if version > LATEST:
        raise SchemaMismatch(
            f"{name} has schema version {version}, this Onceward knows version {LATEST}: upgrade it (pip install -U)"
        )
    return version


def migrations(partitions: int = 0) -> Iterator[tuple[int, bytes]]:
    """The numbered scripts, in order; the records in so many partitions, if they are to be divided."""
    for number, script in migration_scripts("onceward.stores", "postgres"):
        yield number, (_divided(script, partitions) if number == 1 and partitions else script).encode()


def _divided(script: str, partitions: int) -> str:
    whole, _, rest = script.partition("\n);\n")
    parts = "".join(
        f"CREATE TABLE onceward_records_{part} PARTITION OF onceward_records "
        f"FOR VALUES WITH (MODULUS {partitions}, REMAINDER {part});\n"
        for part in range(partitions)
    )
    return f"{whole}\n) PARTITION BY HASH (id);\n\n{parts}{rest}"
