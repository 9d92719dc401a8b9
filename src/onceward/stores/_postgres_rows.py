"""
The statements of the PostgreSQL store, and what becomes of their rows.

A put is one statement, which is a whole transaction by itself:

    clock     the server's time, and this transaction's lock timeout and durability
    seen      the row as it stood when the statement began
    landed    the insert or the update, if it took place
    result    the clock again, and the fence of what landed, or else the row that was seen

In two cases the result decides nothing: a claim neither saw a row nor could insert one, or a swap saw the version that
it expected and could not replace it. Both lost a race to a transaction that committed after the statement began. What
was seen is older than what is there now, so the statement has to be sent again.

Settings are made with `set_config(..., is_local => true)` inside the statement. They end with it, so nothing is left
behind on a connection that a pooler gives to another client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from onceward._core.record import NOW, PutResult, Record, Write
from onceward._core.store_protocols import Selection

COLUMNS = (
    *("id", "kind", "scope", "key", "operation", "family", "state", "guarantee", "doubt", "fingerprint", "version"),
    *("token", "fence", "attempt", "first_at", "settled_at", "lease_until", "replay_until", "forget_at"),
    *("codec", "result", "error", "holder"),
)
TYPES = {
    **dict.fromkeys(COLUMNS, "bytea"),
    **dict.fromkeys(("kind", "scope", "key", "operation", "state", "guarantee", "codec"), "text"),
    **dict.fromkeys(("fence", "attempt", "first_at", "settled_at", "lease", "replay", "forget"), "bigint"),
    "doubt": "smallint",
    "rise": "boolean",
    "expect": "bytea",
}
"""The type of each field of a `Write` (lease, replay and forget are durations there), and of what comes with it."""

_SPANS = {"lease_until": "lease", "replay_until": "replay", "forget_at": "forget"}
US = "(extract(epoch FROM {}) * 1000000)::bigint"
"""A time of the server's in microseconds since 1970."""
_US = US.format("clock_timestamp()")
_FLOOR = "(SELECT value FROM onceward_meta WHERE name = 'fence_floor')"
_WAITING = (
    "WHEN current_setting('synchronous_commit') IN ('off', 'local') "
    "THEN set_config('synchronous_commit', 'on', true) END"
)
DURABLE = f"CASE {_WAITING}"
"""A commit waits for the disk, and for a synchronous standby, whatever the server's default is."""
_AS_DURABLE_AS_ASKED = f"CASE WHEN %(relaxed)s::boolean THEN set_config('synchronous_commit', 'off', true) {_WAITING}"
TRACE = "pg_logical_emit_message(true, 'onceward', '')"
"""Writes nothing to a table, but makes a commit that can be waited for."""
CLOCK = (
    f"clock AS MATERIALIZED (SELECT {_US} AS now, set_config('lock_timeout', %(lock_timeout)s::text, true), "
    f"{_AS_DURABLE_AS_ASKED})"
)
"""First in every statement that writes: it sets the lock timeout before anything can wait for a lock."""
BARRIER = f"SELECT {DURABLE}, {TRACE}".encode()
"""
A write that changes no table but waits as any other does: for the disk, and for the synchronous standby if there is
one. When it is confirmed, everything committed before it is as durable as it is.
"""
_BEFORE = "before AS MATERIALIZED (SELECT current_setting('lock_timeout') AS lock_timeout)"
_BOUNDED = "set_config('lock_timeout', %(lock_timeout)s::text, true)"
JOINED_CLOCK = f"{_BEFORE}, clock AS MATERIALIZED (SELECT {_US} AS now, {_BOUNDED} FROM before)"  # noqa: S608 - constants
"""For the caller's transaction: its durability stays as it is, and `RESTORED` gives its lock timeout back."""
RESTORED = ", set_config('lock_timeout', (SELECT lock_timeout FROM before), true)"
"""Last column of such a statement. If the statement fails, the rollback to the savepoint restores the timeout."""


def _value(column: str, field: str) -> str:
    """The SQL for a column's new value; `field` is the pattern for a field of the write."""
    if column in _SPANS:
        return f"clock.now + {field.format(_SPANS[column])}"
    here = field.format(column)
    match column:
        case "fence":
            return f"CASE WHEN {field.format('rise')} THEN greatest({here}, clock.now, {_FLOOR} + 1) ELSE {here} END"
        case "first_at":
            return f"coalesce(nullif({here}, {NOW}), clock.now)"
        case "settled_at":
            return f"CASE WHEN {here} = {NOW} THEN clock.now ELSE {here} END"
        case _:
            return here


class _Bound:
    """A field as a parameter of the statement: `%(lease)s::bigint`."""

    def format(self, name: str) -> str:
        return f"%({name})s::{TYPES[name]}"


def _values(field: Any) -> str:
    return ", ".join(_value(column, field) for column in COLUMNS)


def _changes(field: Any) -> str:
    return ", ".join(f"{column} = {_value(column, field)}" for column in COLUMNS[1:])


_INSERT = f"INSERT INTO onceward_records ({', '.join(COLUMNS)})"
_SEEN_COLUMNS = ", ".join(f"seen.{column}" for column in COLUMNS)


def claim_statement(clock: str, restored: str = "") -> bytes:
    """Insert a record if there is none."""
    return f"""
WITH {clock},
seen AS MATERIALIZED (SELECT * FROM onceward_records WHERE id = %(id)s::bytea),
landed AS (
    {_INSERT} SELECT {_values(_Bound())} FROM clock WHERE NOT EXISTS (SELECT FROM seen)
    ON CONFLICT (id) DO NOTHING RETURNING fence)
SELECT clock.now, {_US}, landed.fence, {_SEEN_COLUMNS}{restored}
FROM clock LEFT JOIN landed ON true LEFT JOIN seen ON true""".encode()  # noqa: S608 - constants


def insert_statement(checked: str) -> bytes:
    """
    Insert a record; where there is one, the error of the primary key, which ends the transaction.

    For a transaction that is undone then anyway. It costs the server half of what `claim_statement` does.
    """
    return f"""
{_INSERT} SELECT {_values(_Bound())} FROM (SELECT {_US} AS now) AS clock
RETURNING coalesce(settled_at, first_at), {_US}, fence{checked}""".encode()  # noqa: S608 - constants


def swap_statement(clock: str, restored: str = "") -> bytes:
    """Update a record if it has the expected version."""
    return f"""
WITH {clock},
seen AS MATERIALIZED (SELECT * FROM onceward_records WHERE id = %(id)s::bytea),
landed AS (
    UPDATE onceward_records AS kept SET {_changes(_Bound())} FROM clock
    WHERE kept.id = %(id)s::bytea AND kept.version = %(expect)s::bytea RETURNING kept.fence)
SELECT clock.now, {_US}, landed.fence, {_SEEN_COLUMNS}{restored}
FROM clock LEFT JOIN landed ON true LEFT JOIN seen ON landed.fence IS NULL""".encode()  # noqa: S608 - constants


CLAIM, SWAP = claim_statement(CLOCK), swap_statement(CLOCK)
JOINED_CLAIM, JOINED_SWAP = claim_statement(JOINED_CLOCK, RESTORED), swap_statement(JOINED_CLOCK, RESTORED)
"""Bytes, made once. psycopg remembers how to read statements of up to 4096 bytes, which all of ours are."""

BATCH_FIELDS = (*(field for field in Write._fields if field != "relaxed"), "expect")
_RELAXED = Write._fields.index("relaxed")
_GIVEN = ", ".join(f"%({field})b::{TYPES[field]}[]" for field in BATCH_FIELDS)

BATCH = f"""
WITH {CLOCK},
given AS MATERIALIZED (SELECT * FROM unnest({_GIVEN}) AS one({", ".join(BATCH_FIELDS)})),
seen AS MATERIALIZED (SELECT * FROM onceward_records WHERE id = ANY (%(id)b::bytea[])),
inserted AS (
{_INSERT} SELECT {_values("given.{}")} FROM clock, given
WHERE given.expect IS NULL AND NOT EXISTS (SELECT FROM seen WHERE seen.id = given.id) ORDER BY given.id
ON CONFLICT (id) DO NOTHING RETURNING id, fence),
held AS MATERIALIZED (
SELECT kept.id FROM clock, given JOIN onceward_records AS kept ON kept.id = given.id AND kept.version = given.expect
WHERE (SELECT count(*) FROM inserted) >= 0 AND clock.now > 0 ORDER BY kept.id FOR UPDATE OF kept),
updated AS (
UPDATE onceward_records AS kept SET {_changes("given.{}")} FROM clock, held, given
WHERE kept.id = held.id AND given.id = held.id AND kept.version = given.expect RETURNING kept.id, kept.fence),
landed AS MATERIALIZED (SELECT id, fence FROM inserted UNION ALL SELECT id, fence FROM updated)
SELECT clock.now, {_US}, landed.fence, {_SEEN_COLUMNS}, given.id
FROM clock, given LEFT JOIN landed ON landed.id = given.id
LEFT JOIN seen ON seen.id = given.id AND landed.id IS NULL""".encode()  # noqa: S608 - constants
"""
Many puts in one statement, all or nothing.

Every batch takes its locks in the same order: first the inserts, sorted by id (`held` asks for the count of `inserted`,
so it cannot begin earlier), then the rows to be changed, sorted by id. In any other order two batches would deadlock
again and again.
"""

_READ = f"SELECT {_US} AS now, {', '.join(COLUMNS)} FROM onceward_records"  # noqa: S608 - constants
FIND = f"{_READ} WHERE id = %(id)s::bytea".encode()
FIND_MANY = f"{_READ} WHERE id = ANY (%(ids)b::bytea[])".encode()


@cache
def peek_statement(bytes_max: int) -> bytes:
    """What a quick look shows of records (`PeekResult`), behind their ids; of those with results of so many bytes."""
    left = "{} - clock.now"
    shown = ("state", "fingerprint", left.format("replay_until"), left.format("forget_at"), "codec", "result", "error")
    return f"""
SELECT id, {", ".join(shown)}, first_at, attempt, fence FROM onceward_records, (SELECT {_US} AS now) AS clock
WHERE id = ANY (%(ids)b::bytea[]) AND coalesce(length(result), length(error), 0) <= {bytes_max}""".encode()  # noqa: S608


_PLACEHOLDER = {
    **dict.fromkeys(("kind", "scope", "key"), "'erasure'"),
    **dict.fromkeys(("fence", "attempt"), "1"),
    **dict.fromkeys(("first_at", "forget_at"), "clock.now"),
    **{name: f"%({name})s::bytea" for name in ("fingerprint", "version", "token")},
    "id": "mark",
    "operation": "''",
    "state": "'released'",
    "guarantee": "'repeatable'",
    "doubt": "0",
}
PUT_BACK = f"""
WITH {CLOCK},
seen AS MATERIALIZED (SELECT * FROM onceward_records WHERE id = %(id)s::bytea),
free AS MATERIALIZED (
    INSERT INTO onceward_records AS kept ({", ".join(_PLACEHOLDER)})
    SELECT {", ".join(_PLACEHOLDER.values())} FROM clock, unnest(%(marks)s::bytea[]) AS mark ORDER BY mark
    ON CONFLICT (id) DO UPDATE SET version = excluded.version WHERE kept.forget_at <= excluded.forget_at
    RETURNING 1),
landed AS (
    {_INSERT} SELECT {_values(_Bound())} FROM clock
    WHERE NOT EXISTS (SELECT FROM seen) AND (SELECT count(*) FROM free) = cardinality(%(marks)s::bytea[])
    ON CONFLICT (id) DO NOTHING RETURNING fence)
SELECT clock.now, {_US}, landed.fence, {_SEEN_COLUMNS}, (SELECT count(*) FROM free) = cardinality(%(marks)s::bytea[])
FROM clock LEFT JOIN landed ON true LEFT JOIN seen ON true""".encode()  # noqa: S608 - constants
"""
A claim's insert, unless there is a mark of an erasure. Reading the marks is not enough: a mark that is just being
committed is not visible. So an expired row is inserted in each mark's place, and the primary key decides: a transaction
that writes a mark meanwhile waits for us, or we wait for it. To every reader an expired row is absent, and the next
purge deletes it.
"""

ERASE = f"""
WITH {CLOCK},
due AS MATERIALIZED (
    SELECT kept.id FROM clock, onceward_records AS kept WHERE kept.id = ANY (%(ids)s::bytea[]) AND clock.now > 0
    ORDER BY kept.id FOR UPDATE OF kept),
gone AS (DELETE FROM onceward_records AS kept USING due WHERE kept.id = due.id RETURNING kept.fence),
floor AS (
    UPDATE onceward_meta SET value = greatest(value, (SELECT max(fence) FROM gone))
    WHERE name = 'fence_floor' AND EXISTS (SELECT FROM gone))
SELECT count(*) FROM gone""".encode()  # noqa: S608 - constants
"""Delete records of any state, locked in order of id, and remember the greatest fence deleted."""


def extend_statement(clock: str, restored: str = "") -> bytes:
    """Lengthen the lives of a family's settled records that still replay, locking them in order of id; how many."""
    return f"""
WITH {clock},
due AS MATERIALIZED (
    SELECT kept.id FROM clock, onceward_records AS kept
    WHERE family = %(family)s::bytea AND state = 'settled' AND replay_until > clock.now
    ORDER BY kept.id FOR UPDATE OF kept),
touched AS (
    UPDATE onceward_records AS kept SET
        replay_until = greatest(replay_until, clock.now + %(replay)s::bigint),
        forget_at = CASE WHEN forget_at IS NOT NULL THEN greatest(forget_at, clock.now + %(forget)s::bigint) END
    FROM clock, due WHERE kept.id = due.id AND kept.state = 'settled' AND kept.replay_until > clock.now
    RETURNING 1)
SELECT done.many{restored} FROM (SELECT count(*) AS many FROM touched) AS done""".encode()  # noqa: S608 - constants


EXTEND, JOINED_EXTEND = extend_statement(CLOCK), extend_statement(JOINED_CLOCK, RESTORED)

IDENTITY = (
    b"SELECT (SELECT system_identifier FROM pg_control_system()), "
    b"(SELECT oid FROM pg_database WHERE datname = current_database()), to_regclass('onceward_records')::oid, "
    b"(SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('onceward_records'))"
)
"""
Which cluster, which database and which table this is: the same for two connections only if they share records.

Last the table's schema, quoted where that is needed: see `qualified`.
"""


@cache
def qualified(schema: str, sql: bytes) -> bytes:
    """The statement with our tables' schema spelled out, because the caller's connection may change its search path."""
    return sql.replace(b" onceward_", b" %b.onceward_" % schema.encode())


FORGET = f"""
WITH {CLOCK},
due AS MATERIALIZED (
    SELECT id FROM onceward_records WHERE forget_at <= (SELECT now FROM clock) AND state IN ('settled', 'released')
    ORDER BY forget_at LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM onceward_records AS kept USING due WHERE kept.id = due.id RETURNING kept.fence),
floor AS (
    UPDATE onceward_meta SET value = greatest(value, (SELECT max(fence) FROM gone))
    WHERE name = 'fence_floor' AND EXISTS (SELECT FROM gone))
SELECT count(*) FROM gone""".encode()  # noqa: S608 - constants
"""Delete and remember the greatest fence deleted, in one transaction. Locked rows are left for the next purge."""

SHRINK = f"""
WITH {CLOCK},
due AS MATERIALIZED (
    SELECT id FROM onceward_records WHERE replay_until <= (SELECT now FROM clock) AND state = 'settled'
    AND (codec IS NOT NULL OR error IS NOT NULL)
    ORDER BY replay_until LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED),
shrunk AS (
    UPDATE onceward_records AS kept SET codec = NULL, result = NULL, error = NULL, version = %(version)s::bytea
    FROM due WHERE kept.id = due.id RETURNING 1)
SELECT count(*) FROM shrunk""".encode()  # noqa: S608 - constants

new_tuple = tuple.__new__


class ScanStatement(NamedTuple):
    """A statement to run, and its parameters."""

    sql: bytes
    parameters: Mapping[str, Any]


def scan_statement(after: bytes, limit: int, selection: Selection) -> ScanStatement:
    """A page of records in order of id."""
    wanted = ["id > %(after)s::bytea"]
    if selection.unsettled:
        wanted.append("state IN ('claimed', 'in_doubt')")
    if selection.scope is not None:
        wanted.append("scope = %(scope)s::text")
    if selection.kind is not None:
        wanted.append("kind = %(kind)s::text")
    sql = f"{_READ} WHERE {' AND '.join(wanted)} ORDER BY id LIMIT %(limit)s::bigint"
    return ScanStatement(
        sql.encode(), {"after": after, "limit": limit, "scope": selection.scope, "kind": selection.kind}
    )


def without_relaxed(write: Write) -> tuple[Any, ...]:
    """The values of a write that a batch binds: `BATCH_FIELDS` without the last."""
    return (*write[:_RELAXED], *write[_RELAXED + 1 :])


def put_parameters(write: Write, expect: bytes | None, lock_timeout: str, relaxed: bool) -> dict[str, Any]:
    """The parameters of a put."""
    parameters: dict[str, Any] = dict(zip(Write._fields, write, strict=True))
    parameters["expect"] = expect
    parameters["lock_timeout"] = lock_timeout
    parameters["relaxed"] = relaxed
    return parameters


def batch_parameters(puts: Sequence[tuple[Write, bytes | None]], lock_timeout: str, relaxed: bool) -> dict[str, Any]:
    """The parameters of a batch: a list for each column."""
    columns = zip(*(without_relaxed(write) for write, _ in puts), strict=True)
    parameters: dict[str, Any] = {field: list(column) for field, column in zip(BATCH_FIELDS, columns, strict=False)}
    parameters["expect"] = [expect for _, expect in puts]
    parameters["lock_timeout"] = lock_timeout
    parameters["relaxed"] = relaxed
    return parameters


def record_of(then: int, row: Sequence[Any]) -> Record:
    """The record in a row's columns, read when the server's clock said `then`."""
    (lease_until, replay_until, forget_at) = row[16:19]
    return new_tuple(
        Record,
        (
            *row[:16],
            then - row[14],
            None if lease_until is None else lease_until - then,
            None if replay_until is None else replay_until - then,
            None if forget_at is None else forget_at - then,
            *row[19:23],
        ),
    )


def put_result_of(row: Sequence[Any], write: Write, expect: bytes | None) -> PutResult | None:
    """The result of a put; None if the statement's snapshot was too old, so that it has to be sent again."""
    now, then, fence = row[:3]
    if fence is not None:
        return PutResult(True, _landed(write, now, then, fence))
    if row[3] is None:
        return None if expect is None else PutResult(False, None)
    if expect is not None and row[13] == expect:
        return None
    return PutResult(False, record_of(then, row[3:26]))


def _landed(write: Write, now: int, then: int, fence: int) -> Record:
    """
    The record that a put has left, as of the end of its statement.

    The clock was read before the statement had to wait for locks, so part of the lease may be over by now. The record
    shows how much is left, and the caller renews if that is too little.
    """
    passed = then - now
    first_at = write.first_at or now
    return new_tuple(
        Record,
        (
            *write[:12],
            fence,
            write.attempt,
            first_at,
            now if write.settled_at == NOW else write.settled_at,
            then - first_at,
            None if write.lease is None else write.lease - passed,
            None if write.replay is None else write.replay - passed,
            None if write.forget is None else write.forget - passed,
            *write[19:22],
            write.holder,
        ),
    )
