"""
What a call of the store does, told once for both colours: generators that ask for statements and are sent the rows.

    put      ask; a snapshot that was too old asks again; a lost answer asks on another connection
    open     look at the schema, and bring it up to date if need be

A driver runs the statement it is yielded on some connection, and throws the driver's error in if there is one. What an
error means, and whether another try is worth it, is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from onceward import failpoints
from onceward._core.errors import OncewardError, SchemaMismatch, StoreContended, StoreUnavailable
from onceward._core.record import Record, Standing, Write
from onceward._core.register import Purged, Selection
from onceward.stores import _postgres_rows as rows
from onceward.stores import _postgres_wire as wire
from onceward.stores._commit import ALONE, Entry, copy_of
from onceward.stores._postgres_errors import (
    DRIVER_ERRORS,
    NoAnswer,
    NotConnected,
    Verdict,
    exists_already,
    meaning_of,
    verdict,
)
from onceward.stores._postgres_url import Target
from onceward.stores._scripts import scripts
from onceward.stores._seen import Seen

T = TypeVar("T")

LATEST = 2
"""The schema's version that this code knows."""

TRIES = 4
"""Of a statement that met a deadlock or lost its connection: the server was restarted, not removed."""
ASKS = 50
"""Of a put whose snapshot was too old. Each time somebody else's write landed in between: one more ask is the rule."""
PAUSE_SECONDS = 0.02
"""Before the second try; it doubles."""

BATCH_LOCK_TIMEOUT = "100ms"
"""Far longer than any statement of ours holds a row, and short enough for those who wait behind it."""
FAILURES = (*DRIVER_ERRORS, NotConnected)

BEFORE_PUT = failpoints.declare("postgres.put.before", "nothing is sent | a put, or a batch of them")
AFTER_PUT = failpoints.declare("postgres.put.after", "a put is committed and answered | its caller hears of it")

MIGRATION_LOCK = 0x6F6E6365
"""An advisory lock of ours, so that of several processes that start at once one creates the tables."""
SCRIPT_LOCK_SECONDS = 30.0
"""How long a migration may wait for another one: longer than one should take, and not for ever."""
_TAKE_MIGRATION_LOCK = (
    b"SET LOCAL lock_timeout = '%ds'" % SCRIPT_LOCK_SECONDS,
    b"SET LOCAL statement_timeout = 0",  # A role's limit is meant for requests.
    b"SELECT pg_advisory_xact_lock(%d)" % MIGRATION_LOCK,
)
HAS_META = b"SELECT to_regclass('onceward_meta') IS NOT NULL"
VERSION = b"SELECT value FROM onceward_meta WHERE name = 'schema_version'"
_NOTHING: Mapping[str, Any] = {}


class Query(NamedTuple):
    """A statement to run, by itself, on any connection. The answer is its rows."""

    sql: bytes | wire.Statement
    parameters: Mapping[str, Any] | Sequence[wire.Value] = _NOTHING
    """By name; of a `Statement`, its values by number."""


class Script(NamedTuple):
    """Statements to run in one transaction."""

    statements: tuple[bytes, ...]
    patience: float = SCRIPT_LOCK_SECONDS
    """How long it may wait for another one, beyond what any statement may take."""


class Lend(NamedTuple):
    """Do something with one connection. The answer is its own, which is awaited where the connection is."""

    work: Callable[[Any], Any]


class Sleep(NamedTuple):
    """Wait a little. With `lost`, every idle connection is given up as well: what befell one has befallen all."""

    seconds: float
    lost: bool


Effect: TypeAlias = Query | Script | Lend | Sleep
Flow: TypeAlias = Generator[Effect, Any, T]


class Patience:
    """How many more tries a call has, and whether its connection was lost on the way."""

    __slots__ = ("lost", "name", "pause", "tries")

    def __init__(self, name: str, *, lost: bool = False) -> None:
        self.name = name
        self.tries = TRIES
        self.pause = PAUSE_SECONDS
        self.lost = lost
        """The statement may have been carried out without our hearing of it."""

    def borne(self, error: BaseException) -> Sleep:
        """What to do before the next try; raises what the error means if there is to be none."""
        self.tries -= 1
        judged = verdict(error)
        if isinstance(error, NoAnswer):
            self.tries = min(self.tries, 1)  # Another line may do better; a second long silence is enough.
        if isinstance(error, NotConnected) and self.lost and not error.final:
            judged = Verdict.LOST  # Whoever has sent nothing need not wait; but an answer that was lost is worth it.
        if judged is Verdict.FINAL or self.tries <= 0:
            raise error.meaning if isinstance(error, NotConnected) else meaning_of(error, self.name) from error
        self.lost = self.lost or judged is Verdict.LOST
        self.pause *= 2
        return Sleep(self.pause / 2, judged is Verdict.LOST)


def asked(
    target: Target, effect: Query | Script | Lend, may_have_landed: Callable[[], bool] | None = None
) -> Flow[Any]:
    """
    The answer, after as many tries as are worth it; or an error of ours.

    What may have landed before its connection was lost, and must not land twice, is not tried again.
    """
    patience = Patience(target.name)
    while True:
        try:
            return (yield effect)
        except FAILURES as error:
            if may_have_landed is not None and may_have_landed() and verdict(error) is Verdict.LOST:
                raise meaning_of(error, target.name) from error
            pause = patience.borne(error)
        yield pause


def put(target: Target, write: Write, expect: bytes | None, *, again: bool = False) -> Flow[Standing]:
    """
    See `onceward.stores.Store.put`.

    With `again`, or after a connection was lost, the write may have landed without our hearing of it: then what stands
    there has its version.
    """
    relaxed = target.may_relax and write.relaxed
    try:
        query = _put_query(write, expect, target.lock_timeout, relaxed)
    except DRIVER_ERRORS as error:
        raise meaning_of(error, target.name) from error
    patience = Patience(target.name, lost=again)
    for _ in range(ASKS):
        failpoints.hit(BEFORE_PUT)
        try:
            [row] = yield query
        except FAILURES as error:
            pause = patience.borne(error)
            yield pause
            continue
        failpoints.hit(AFTER_PUT)
        standing = rows.standing_of(row, write, expect)
        if standing is not None and _finds_itself(standing, write) and not relaxed:
            try:
                yield Query(rows.BARRIER)
            except FAILURES as error:
                pause = patience.borne(error)
                yield pause
                continue
        if standing is not None:
            return recognised(standing, write) if patience.lost else standing
    raise StoreContended(retry_after_seconds=0.1)


def put_back(target: Target, write: Write, marks: Sequence[bytes]) -> Flow[Standing]:
    """See `onceward.stores.Store.put_back`."""
    parameters = {**rows.put_parameters(write, None, target.lock_timeout, False), "marks": sorted(marks)}
    patience = Patience(target.name)
    for _ in range(ASKS):
        try:
            [row] = yield Query(rows.PUT_BACK, parameters)
            *row, free = row
            standing = rows.standing_of(row, write, None) if free else _kept_away(row)
            if standing is not None and _finds_itself(standing, write):
                yield Query(rows.BARRIER)
                return recognised(standing, write)
        except FAILURES as error:
            pause = patience.borne(error)
            yield pause
            continue
        if standing is not None:
            return standing
    raise StoreContended(retry_after_seconds=0.1)


def _kept_away(row: Sequence[Any]) -> Standing:
    """A mark stands: what stands beside it, if anything."""
    return Standing(False, None if row[3] is None else rows.record_of(row[1], row[3:25]))


def erase(target: Target, ids: Sequence[bytes]) -> Flow[int]:
    """See `onceward.stores.Store.erase`."""
    [(erased,)] = yield from asked(target, Query(rows.ERASE, {**_writing(target), "ids": list(ids)}))
    return int(erased)


def put_many(target: Target, puts: Sequence[tuple[Write, bytes | None]]) -> Flow[list[Standing | None]]:
    """
    Several puts with ids that differ, in one statement, tried once; None for what has to be asked again.

    It waits for locks only for a moment: one caller's open transaction must not stall the rest. Whatever goes wrong,
    nothing has landed or all of it, and each is put again by itself.
    """
    failpoints.hit(BEFORE_PUT)
    relaxed = target.may_relax and all(write.relaxed for write, _ in puts)
    if len(puts) == 1:
        [(write, expect)] = puts
        [row] = yield _put_query(write, expect, BATCH_LOCK_TIMEOUT, relaxed)
        standings = [rows.standing_of(row, write, expect)]
    else:
        found = yield Query(wire.BATCH, wire.batch_values(puts, BATCH_LOCK_TIMEOUT, relaxed))
        by_id = {row[-1]: row for row in found}
        standings = [rows.standing_of(by_id[write.id], write, expect) for write, expect in puts]
    failpoints.hit(AFTER_PUT)
    return standings


def answer_many(target: Target, puts: Sequence[tuple[Write, bytes | None]], seen: Seen) -> Flow[list[Standing | None]]:
    """Same as `put_many`; but where each of them claims what was seen settled, it is enough to look."""
    if all(expect is None and write.id in seen for write, expect in puts):
        standings = yield from _look_many(puts)
    else:
        standings = yield from put_many(target, puts)
    if any(one is not None and _finds_itself(one, write) for (write, _), one in zip(puts, standings, strict=True)):
        yield Query(rows.BARRIER)
    for (write, _), standing in zip(puts, standings, strict=True):
        if standing is not None:
            seen.note(write.id, standing)
        else:
            seen.forget(write.id)
    return standings


def _look_many(puts: Sequence[tuple[Write, bytes | None]]) -> Flow[list[Standing | None]]:
    """What stands there; None for what has to be claimed after all."""
    failpoints.hit(BEFORE_PUT)
    if len(puts) == 1:
        found = yield Query(wire.FIND, [puts[0][0].id])
    else:
        found = yield Query(wire.FIND_MANY, wire.ids_value([write.id for write, _ in puts]))
    failpoints.hit(AFTER_PUT)
    by_id = {row[1]: row for row in found}
    return [
        None if (row := by_id.get(write.id)) is None else Standing(False, rows.record_of(row[0], row[1:]))
        for write, _ in puts
    ]


def _put_query(write: Write, expect: bytes | None, lock_timeout: str, relaxed: bool) -> Query:
    values = wire.put_values(write, expect, lock_timeout, relaxed)
    return Query(wire.CLAIM if expect is None else wire.SWAP, values)


def _finds_itself(standing: Standing, write: Write) -> bool:
    """
    Whether a write was seen standing that had been sent before, and whose answer was lost.

    Seeing waits for no standby. So before it is believed, a write that does wait must have been answered: everything
    that was committed before that one is where it is by then.
    """
    return not standing.landed and standing.record is not None and standing.record.version == write.version


def recognised(standing: Standing, write: Write) -> Standing:
    """A write that was sent again may find itself: then it had landed."""
    if standing.record is not None and standing.record.version == write.version:
        return Standing(True, standing.record)
    return standing


def hand_out(batch: Sequence[Entry], came: Sequence[Standing | None] | Exception) -> None:
    """Give each entry of a batch its answer, its error, or `ALONE`: what came of `answer_many`."""
    if isinstance(came, OncewardError):
        # No connection, or tables that are not ours: so for each of them.
        for entry in batch:
            entry.fail(copy_of(came))
        return
    # A lock, a deadlock, a bad row, a lost connection: nothing landed, or nobody knows. Each for itself.
    standings = [None] * len(batch) if isinstance(came, Exception) else came
    for entry, standing in zip(batch, standings, strict=True):
        if standing is not None and entry.again and entry.write is not None:
            standing = recognised(standing, entry.write)
        entry.answer = ALONE if standing is None else standing
        entry.done = True


def put_alone(target: Target, entry: Entry) -> Flow[Standing]:
    """A put that a batch could not answer: as patiently as it takes."""
    if entry.write is None:
        raise TypeError("not a put")
    return put(target, entry.write, entry.expect, again=True)


def load(target: Target, id: bytes) -> Flow[Record | None]:
    """See `onceward.stores.Store.load`."""
    found = yield from asked(target, Query(wire.FIND, [id]))
    return rows.record_of(found[0][0], found[0][1:]) if found else None


def scan(target: Target, after: bytes, limit: int, selection: Selection) -> Flow[list[Record]]:
    """See `onceward.stores.Store.scan`."""
    found = yield from asked(target, Query(*rows.scan_statement(after, limit, selection)))
    return [rows.record_of(row[0], row[1:]) for row in found]


def extend(target: Target, family: bytes, replay: int, forget: int) -> Flow[int]:
    """See `onceward.stores.Store.extend`."""
    lives = {"family": family, "replay": replay, "forget": forget}
    [(many,)] = yield from asked(target, Query(rows.EXTEND, {**_writing(target), **lives}))
    return int(many)


def purge(target: Target, limit: int, version: bytes) -> Flow[Purged]:
    """See `onceward.stores.Store.purge`. One new version serves every row: it is only compared with that of its id."""
    bounds = {**_writing(target), "limit": limit, "version": version}
    [(forgotten,)] = yield from asked(target, Query(rows.FORGET, bounds))
    [(shrunk,)] = yield from asked(target, Query(rows.SHRINK, bounds))
    return Purged(forgotten, shrunk)


def _writing(target: Target) -> dict[str, Any]:
    return {"lock_timeout": target.lock_timeout, "relaxed": False}


def identity(target: Target) -> Flow[tuple[Any, ...]]:
    """Which cluster, database and table the records are in."""
    [found] = yield from asked(target, Query(rows.IDENTITY))
    return tuple(found)


# The schema.


def open_schema(target: Target) -> Flow[tuple[int, int]]:
    """Make sure that the tables are there and are understood; the versions before and after."""
    before = yield from _version(target)
    if before < LATEST:
        statements = tuple(text for number, text in migrations() if number > before)
        try:
            yield from asked(target, Script((*_TAKE_MIGRATION_LOCK, *statements)))
        except StoreUnavailable as error:
            if not exists_already(error.__cause__):
                raise
            # Somebody else held the lock before us, and has made them.
        yield from _version(target)
    return before, LATEST


def _version(target: Target) -> Flow[int]:
    [(there,)] = yield from asked(target, Query(HAS_META))
    return understood(target.name, (yield from asked(target, Query(VERSION)))) if there else 0


def understood(name: str, found: Sequence[Any]) -> int:
    """The version in the rows that `VERSION` found; refused if it is not one that this code knows."""
    if not found:
        raise SchemaMismatch(f"{name}: onceward_meta has no schema_version: it was not written by Onceward")
    version: int = found[0][0]
    if version > LATEST:
        raise SchemaMismatch(
            f"{name} has schema version {version}, this Onceward knows {LATEST}: upgrade it (pip install -U)"
        )
    return version


def migrations() -> Iterator[tuple[int, bytes]]:
    """The numbered scripts, in order."""
    for number, script in scripts("onceward.stores", "postgres"):
        yield number, script.encode()
