"""
The statements of the PostgreSQL store, and what becomes of their rows.

A put is one statement, which is a whole transaction by itself:

    clock     the server's time, and this transaction's lock timeout and durability
    seen      the row as it stood when the statement began
    landed    the insert or the update, if it took place
    result    the clock again, and the fence of what landed, or else the row that was seen

Each part costs the server something in every execution, and so does each parameter, so the usual puts have fewer.
`CLAIM`, for a key under which nothing stands, makes its settings in the condition of its insert, and its clock is the
time at which it came. So is that of `SETTLE` and `END`, which end what a claim began, `SETTLE` with a result that is
kept for a day or longer. They are the update alone: if it changes nothing, the row is read.

In two cases the result decides nothing: a claim neither saw a row nor could insert one, or a swap saw the version that
it expected and could not replace it. Both lost a race to a transaction that committed after the statement began. What
was seen is older than what is there now, so the statement has to be sent again.

Settings are made with `set_config(..., is_local => true)` inside the statement. They end with it, so nothing is left
behind on a connection that a pooler gives to another client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

from onceward._core.record import NOW, PutResult, Record, Write
from onceward._core.record_types import FIXED_BY_CLAIM
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

MIGRATION_LOCK = 0x6F6E6365
"""Our advisory lock: if several processes start at once, one of them creates the tables."""
DAY = 86_400_000_000
"""A record whose `due_at` is NULL is looked at by purge so long after its first time: how long a result is replayed."""
HOUR = DAY // 24
OPEN = 2**63 - 1
"""In `due_at`: it was seen unsettled, so it is listed, and purge has no business with it."""
NEVER = OPEN - 1
"""In `due_at`: settled, and kept for ever."""
LOOKS = 1_000
"""Records that one statement of a purge looks at."""

_SPANS = {"lease_until": "lease", "replay_until": "replay", "forget_at": "forget"}
US = "(date_part('epoch', {}) * 1000000)::bigint"
"""A time of the server's in microseconds since 1970. In floats, which are exact until 2106, not in numerics."""
_US = US.format("clock_timestamp()")
_BEGUN = US.format("statement_timestamp()")
"""When a statement came to the server: what `clock.now` is in statements that have no part of their own for it."""
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
_BOUNDED = "set_config('lock_timeout', %(lock_timeout)s::text, true)"
CLOCK = f"clock AS MATERIALIZED (SELECT {_US} AS now, {_BOUNDED}, {_AS_DURABLE_AS_ASKED})"
"""First in every statement that writes: it sets the lock timeout before anything can wait for a lock."""
BARRIER = f"SELECT {DURABLE}, {TRACE}".encode()
"""
A write that changes no table but waits as any other does: for the disk, and for the synchronous standby if there is
one. When it is confirmed, everything committed before it is as durable as it is.
"""
_BEFORE = "before AS MATERIALIZED (SELECT current_setting('lock_timeout') AS lock_timeout)"
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


def _due(field: Any, kept: str = "", first_at: str = "") -> str:
    """
    When purge looks at a record that is written now; `kept` is what the column has, if there is a row.

    As long as a record is young, and is settled for a day or more, it stays as it is: NULL.
    """
    state, end = field.format("state"), f"clock.now + least({field.format('replay')}, {field.format('forget')})"
    early = f"{end} < {first_at or _value('first_at', field)} + {DAY}"
    if not kept:
        return f"CASE WHEN {state} = 'in_doubt' THEN {OPEN} WHEN {early} THEN {end} END"
    return (
        f"CASE WHEN {state} = 'in_doubt' OR {state} = 'claimed' AND {kept} IS NOT NULL THEN {OPEN} "
        f"WHEN {kept} IS NOT NULL OR {early} THEN coalesce({end}, {NEVER}) END"
    )


_LEFT_OUT = ("settled_at", "replay_until", "forget_at", "codec", "result", "error")
_CLAIMED = tuple(column for column in COLUMNS if column not in _LEFT_OUT)
"""The columns of a claim of a new key. The others have nothing yet."""
_ATTEMPT, _REPLAY, _RISE = (Write._fields.index(field) for field in ("attempt", "replay", "rise"))
_FIRST_AND_NOW = (1, NOW, None)
"""The attempt, its first time, and when it was settled."""
_NOTHING_AND_RISE = (None, None, None, None, None, True)


def is_new_claim(write: Write) -> bool:
    """Whether it has nothing besides what a claim of a new key has: `CLAIM` is for those, `INSERT` for all others."""
    return (
        write.state == "claimed"
        and write.lease is not None
        and write[_ATTEMPT : _ATTEMPT + 3] == _FIRST_AND_NOW
        and write[_REPLAY : _RISE + 1] == _NOTHING_AND_RISE
    )


def _claiming(field: Any) -> str:
    """What a claim of a new key writes."""
    fixed = {
        "state": "'claimed'",
        "fence": f"greatest({field.format('fence')}, clock.now, {_FLOOR} + 1)",
        "attempt": "1",
        "first_at": "clock.now",
    }
    return ", ".join(fixed.get(column) or _value(column, field) for column in _CLAIMED)


def is_usual_settle(write: Write) -> bool:
    """Whether it settles with a result that is kept for a day or longer: `SETTLE` is for those, `END` for others."""
    replay, forget = write.replay, write.forget
    return (
        write.state == "settled"
        and write.settled_at == NOW
        and not write.doubt
        and (write.lease, write.error, write.holder) == (None, None, None)
        and replay is not None
        and replay >= DAY
        and (forget is None or forget >= DAY)
    )


def _values(field: Any) -> str:
    return ", ".join((*(_value(column, field) for column in COLUMNS), _due(field)))


def _changes(field: Any) -> str:
    changes = [f"{column} = {_value(column, field)}" for column in COLUMNS[1:]]
    return ", ".join((*changes, f"due_at = {_due(field, 'kept.due_at')}"))


def _ending(field: Any) -> str:
    """What a write changes that keeps its fence: all but what its claim has fixed."""
    changes = [f"{one} = {_value(one, field)}" for one in COLUMNS[1:] if one not in FIXED_BY_CLAIM]
    return ", ".join((*changes, f"due_at = {_due(field, 'kept.due_at', 'kept.first_at')}"))


def _settling(field: Any) -> str:
    """What a usual settle changes. It is not over within a day, so purge looks at it in its time, as at any other."""
    fixed = {
        "state": "'settled'",
        "doubt": "0",
        "settled_at": "clock.now",
        **dict.fromkeys(("lease_until", "error", "holder"), "NULL"),
        "due_at": f"CASE WHEN kept.due_at IS NOT NULL THEN clock.now + "
        f"least({field.format('replay')}, {field.format('forget')}) END",
    }
    changed = [one for one in (*COLUMNS[1:], "due_at") if one not in FIXED_BY_CLAIM]
    return ", ".join(f"{one} = {fixed.get(one) or _value(one, field)}" for one in changed)


def _timed(sql: str) -> bytes:
    """A statement without a part for the clock: the server prepares every part of a plan for each execution."""
    return sql.replace("clock.now", _BEGUN).encode()


_INSERT = f"INSERT INTO onceward_records ({', '.join(COLUMNS)}, due_at)"
_SEEN_COLUMNS = ", ".join(f"seen.{column}" for column in COLUMNS)
_THERE = "onceward_records AS seen WHERE id = %(id)s::bytea"
_OTHERWISE_ROW = f"CASE WHEN landed.fence IS NULL THEN (SELECT ROW({_SEEN_COLUMNS}) FROM {_THERE}) END"  # noqa: S608
"""What stands there, as one column, if the put did not land: most do, and each column costs server and client."""
_LANDED = "FROM (SELECT (SELECT fence FROM landed) AS fence OFFSET 0) AS landed"
"""OFFSET 0 keeps it apart, so that it has been waited for before the clock is read again, and settings are restored."""


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


def claim_or_row_statement(clock: str, restored: str = "") -> bytes:
    """Insert a record if there is none. What stands there otherwise is one column, a row: most claims land."""
    return f"""
WITH {clock},
landed AS (
    {_INSERT} SELECT {_values(_Bound())} FROM clock WHERE NOT EXISTS (SELECT FROM {_THERE})
    ON CONFLICT (id) DO NOTHING RETURNING fence)
SELECT clock.now, {_US}, landed.fence, {_OTHERWISE_ROW}{restored}
FROM clock LEFT JOIN landed ON true""".encode()  # noqa: S608 - constants


def new_claim_statement(before: str, first: str, restored: str = "") -> bytes:
    """
    The same of a claim that nothing precedes (`is_new_claim`), which has fewer columns.

    `first` is asked before anything is inserted, and so before any lock is waited for; `before` is what it may read.
    """
    return _timed(f"""
WITH {before}landed AS (
    INSERT INTO onceward_records ({", ".join(_CLAIMED)})
    SELECT {_claiming(_Bound())}{" FROM before" if before else ""}
    WHERE NOT EXISTS (SELECT FROM {_THERE}) AND {first}
    ON CONFLICT (id) DO NOTHING RETURNING fence)
SELECT clock.now, {_US}, landed.fence, {_OTHERWISE_ROW}{restored} {_LANDED}""")  # noqa: S608 - constants


def joined_new_claim_statement(restored: str) -> bytes:
    """The same in the caller's transaction: its lock timeout is read before it is set."""
    return new_claim_statement(f"{_BEFORE}, ", f"{_BOUNDED} IS NOT NULL", restored)


def end_statement(checked: str) -> bytes:
    """Update a record that this very transaction has put: nobody can stand in the way, so no lock is waited for."""
    return _ended(_ending(_Bound()), checked)


def settle_statement(checked: str) -> bytes:
    """The same of a usual settle."""
    return _ended(_settling(_Bound()), checked)


def _ended(changes: str, checked: str) -> bytes:
    return _timed(f"""
WITH landed AS (
    UPDATE onceward_records AS kept SET {changes}
    WHERE kept.id = %(id)s::bytea AND kept.version = %(expect)s::bytea RETURNING kept.fence)
SELECT clock.now, {_US}, landed.fence{checked} {_LANDED}""")  # noqa: S608 - constants


def insert_statement(checked: str, first: str = "") -> bytes:
    """
    Insert a record; where there is one, the error of the primary key, which ends the transaction.

    For a transaction that is undone then anyway. It costs the server half of what `claim_statement` does. What `first`
    asks for is done before anything is inserted, what `checked` asks for after that.
    """
    return _timed(f"""
{_INSERT} SELECT {_values(_Bound())}{f" FROM (SELECT {first}) AS asked" if first else ""}
RETURNING coalesce(settled_at, first_at), {_US}, fence{checked}""")  # noqa: S608 - constants


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


_SETTINGS = f"{_BOUNDED} IS NOT NULL AND ({_AS_DURABLE_AS_ASKED}) IS DISTINCT FROM ''"
"""A condition that always holds: it makes the settings, when the row is found and before its lock is waited for."""
END, SETTLE = (
    _timed(f"""
UPDATE onceward_records AS kept SET {changes}
WHERE kept.id = %(id)s::bytea AND kept.version = %(expect)s::bytea AND {_SETTINGS}
RETURNING clock.now, {_US}, kept.fence""")  # noqa: S608 - constants
    for changes in (_ending(_Bound()), _settling(_Bound()))
)
"""The usual swaps, which end what a claim began: half of the parameters. One that changes nothing shows nothing."""
CLAIM, INSERT = new_claim_statement("", _SETTINGS), claim_or_row_statement(CLOCK)
SWAP = swap_statement(CLOCK)
JOINED_CLAIM, JOINED_SWAP = claim_statement(JOINED_CLOCK, RESTORED), swap_statement(JOINED_CLOCK, RESTORED)
"""Bytes, made once. psycopg remembers how to read statements of up to 4096 bytes, which all of ours are."""

BATCH_FIELDS = (*(field for field in Write._fields if field != "relaxed"), "expect")
_RELAXED = Write._fields.index("relaxed")
ENDS_FIELDS = tuple(field for field in BATCH_FIELDS if field not in (*FIXED_BY_CLAIM, "rise"))
"""What a batch binds in which everything ends, or renews, what a claim began."""


def _given(fields: Sequence[str]) -> str:
    """The writes of a batch as rows: an array for each field."""
    arrays = ", ".join(f"%({field})b::{TYPES[field]}[]" for field in fields)
    return f"given AS MATERIALIZED (SELECT * FROM unnest({arrays}) AS one({', '.join(fields)}))"  # noqa: S608 - constants


_HELD = """SELECT kept.id FROM clock, given
JOIN onceward_records AS kept ON kept.id = given.id AND kept.version = given.expect"""
_IN_ORDER = "clock.now > 0 ORDER BY kept.id FOR UPDATE OF kept"
_OF_HELD = "FROM clock, held, given WHERE kept.id = held.id AND given.id = held.id AND kept.version = given.expect"
_RESULTS = f"""SELECT clock.now, {_US}, landed.fence,
CASE WHEN seen.id IS NOT NULL THEN ROW({_SEEN_COLUMNS}) END, given.id
FROM clock, given LEFT JOIN landed ON landed.id = given.id
LEFT JOIN seen ON seen.id = given.id AND landed.id IS NULL"""  # noqa: S608 - constants

BATCH = f"""
WITH {CLOCK},
{_given(BATCH_FIELDS)},
seen AS MATERIALIZED (SELECT * FROM onceward_records WHERE id = ANY (%(id)b::bytea[])),
inserted AS (
{_INSERT} SELECT {_values("given.{}")} FROM clock, given
WHERE given.expect IS NULL AND NOT EXISTS (SELECT FROM seen WHERE seen.id = given.id) ORDER BY given.id
ON CONFLICT (id) DO NOTHING RETURNING id, fence),
held AS MATERIALIZED ({_HELD} WHERE (SELECT count(*) FROM inserted) >= 0 AND {_IN_ORDER}),
updated AS (
UPDATE onceward_records AS kept SET {_changes("given.{}")} {_OF_HELD} RETURNING kept.id, kept.fence),
landed AS MATERIALIZED (SELECT id, fence FROM inserted UNION ALL SELECT id, fence FROM updated)
{_RESULTS}""".encode()  # noqa: S608 - constants
"""
Many puts in one statement, all or nothing.

Every batch takes its locks in the same order: first the inserts, sorted by id (`held` asks for the count of `inserted`,
so it cannot begin earlier), then the rows to be changed, sorted by id. In any other order two batches would deadlock
again and again.
"""

ENDS = f"""
WITH {CLOCK},
{_given(ENDS_FIELDS)},
held AS MATERIALIZED ({_HELD} WHERE {_IN_ORDER}),
landed AS MATERIALIZED (
UPDATE onceward_records AS kept SET {_ending("given.{}")} {_OF_HELD} RETURNING kept.id, kept.fence),
seen AS MATERIALIZED (
SELECT * FROM onceward_records
WHERE id = ANY (%(id)b::bytea[]) AND (SELECT count(*) FROM landed) < cardinality(%(id)b::bytea[]))
{_RESULTS}""".encode()  # noqa: S608 - constants
"""Many of what `END` does, in the same order of locks: half of the columns, nothing is looked up if all of it lands."""

_READ = f"SELECT {_US} AS now, {', '.join(COLUMNS)} FROM onceward_records"  # noqa: S608 - constants
FIND = f"{_READ} WHERE id = %(id)s::bytea".encode()
FIND_MANY = f"{_READ} WHERE id = ANY (%(ids)b::bytea[])".encode()


@cache
def peek_statement(bytes_max: int | None = None) -> bytes:
    """What a quick look shows of records (`PeekResult`), behind their ids; of those with results of so many bytes."""
    short = "" if bytes_max is None else f" AND coalesce(length(result), length(error), 0) <= {bytes_max}"
    left = "{} - clock.now"
    shown = ("state", "fingerprint", left.format("replay_until"), left.format("forget_at"), "codec", "result", "error")
    return f"""
SELECT id, {", ".join(shown)}, first_at, attempt, fence FROM onceward_records, (SELECT {_US} AS now) AS clock
WHERE id = ANY (%(ids)b::bytea[]){short}""".encode()  # noqa: S608


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


_HAS_MORE = "(kept.codec IS NOT NULL OR kept.error IS NOT NULL)"
_ENDED = "kept.state IN ('settled', 'released')"
_NEXT = f"CASE WHEN {_HAS_MORE} THEN least(kept.replay_until, kept.forget_at) ELSE kept.forget_at END"
_LOOKED_AT = "FROM clock, onceward_records AS kept WHERE kept.id = ANY (ARRAY(SELECT id FROM looked)) AND"
"""An array, not a join: a plan that is made while the table is empty would read all of it for the join, for ever."""
_LOCKED = "FOR UPDATE OF kept SKIP LOCKED"
PURGE = f"""
WITH {CLOCK},
young AS MATERIALIZED (
    SELECT id FROM onceward_records WHERE due_at IS NULL AND first_at <= (SELECT now FROM clock) - {DAY}
    ORDER BY due_at, first_at LIMIT {LOOKS}),
due AS MATERIALIZED (
    SELECT id FROM onceward_records WHERE due_at <= (SELECT now FROM clock) AND due_at < {OPEN}
    ORDER BY due_at LIMIT {LOOKS}),
ended AS MATERIALIZED (
    SELECT id FROM onceward_records AS kept WHERE due_at = {OPEN} AND {_ENDED} LIMIT {LOOKS}),
looked AS MATERIALIZED (SELECT id FROM young UNION SELECT id FROM due UNION SELECT id FROM ended),
over AS MATERIALIZED (
    SELECT kept.id {_LOOKED_AT} {_ENDED} AND kept.forget_at <= clock.now
    ORDER BY kept.forget_at LIMIT %(limit)s::bigint {_LOCKED}),
expired AS MATERIALIZED (
    SELECT kept.id {_LOOKED_AT} kept.state = 'settled' AND kept.replay_until <= clock.now AND {_HAS_MORE}
    AND (kept.forget_at > clock.now) IS NOT FALSE ORDER BY kept.replay_until LIMIT %(shrink)s::bigint {_LOCKED}),
later AS MATERIALIZED (
    SELECT kept.id, CASE WHEN {_ENDED} THEN coalesce({_NEXT}, {NEVER}) ELSE {OPEN} END AS due_at {_LOOKED_AT}
    (NOT ({_ENDED}) OR coalesce({_NEXT}, {NEVER}) > clock.now + {HOUR}) {_LOCKED}),
gone AS (DELETE FROM onceward_records AS kept USING over WHERE kept.id = over.id RETURNING kept.fence),
floor AS (
    UPDATE onceward_meta SET value = greatest(value, (SELECT max(fence) FROM gone))
    WHERE name = 'fence_floor' AND EXISTS (SELECT FROM gone)),
shrunk AS (
    UPDATE onceward_records AS kept SET codec = NULL, result = NULL, error = NULL, version = %(version)s::bytea,
        due_at = coalesce(kept.forget_at, {NEVER})
    FROM expired WHERE kept.id = expired.id RETURNING 1),
moved AS (
    UPDATE onceward_records AS kept SET due_at = later.due_at FROM later
    WHERE kept.id = later.id AND kept.id = ANY (ARRAY(SELECT id FROM later)))
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM shrunk), (SELECT count(*) FROM looked)""".encode()  # noqa: S608
"""
One step of a purge: look at the records whose time has come, in the order in which it came, and act on each.

What is forgotten is deleted, and the greatest fence deleted is remembered; what has expired shrinks to a tombstone; the
others get the time at which to look again. Rows that are locked are left for the next purge, and what is left is not
locked.
"""

new_tuple = tuple.__new__


_IN_FLIGHT = "SELECT * FROM onceward_records WHERE state IN ('claimed', 'in_doubt') AND due_at"
_EITHER = "unsettled AS (SELECT * FROM young UNION ALL SELECT * FROM known)"
_UNSETTLED = f"young AS MATERIALIZED ({_IN_FLIGHT} IS NULL), known AS MATERIALIZED ({_IN_FLIGHT} = {OPEN}), {_EITHER}"
"""
Unsettled records by their index: what was claimed within the last day or so, and what was seen unsettled since.
Materialized, because ids in order would otherwise be looked up by the primary key, which is the whole table.
"""


class ScanStatement(NamedTuple):
    """A statement to run, and its parameters."""

    sql: bytes
    parameters: Mapping[str, Any]


def scan_statement(after: bytes, limit: int, selection: Selection) -> ScanStatement:
    """A page of records in order of id."""
    wanted = ["id > %(after)s::bytea"]
    if selection.scope is not None:
        wanted.append("scope = %(scope)s::text")
    if selection.kind is not None:
        wanted.append("kind = %(kind)s::text")
    if selection.before:
        wanted.append("id < %(before)s::bytea")
    if selection.family is None:
        read = f"WITH {_UNSETTLED} {_READ.replace('onceward_records', 'unsettled')}" if selection.unsettled else _READ
        sql = f"{read} WHERE {' AND '.join(wanted)} ORDER BY id LIMIT %(limit)s::bigint"
    else:
        # By the family's index and not by that of ids, which the order would have the planner walk from end to end.
        wanted.append("family = %(family)s::bytea")
        sql = (
            f"WITH these AS MATERIALIZED (SELECT id FROM onceward_records WHERE {' AND '.join(wanted)}) {_READ} "  # noqa: S608
            "WHERE id IN (SELECT id FROM these ORDER BY id LIMIT %(limit)s::bigint) ORDER BY id"
        )
    return ScanStatement(sql.encode(), {"after": after, "limit": limit, **selection._asdict()})


def without_relaxed(write: Write) -> tuple[Any, ...]:
    """The values of a write that a batch binds: `BATCH_FIELDS` without the last."""
    return (*write[:_RELAXED], *write[_RELAXED + 1 :])


ending_of = itemgetter(*(Write._fields.index(field) for field in ENDS_FIELDS[:-1]))
"""The values of a write that a batch of endings binds: `ENDS_FIELDS` without the last."""


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


_VERSION = COLUMNS.index("version")
_NARROW = 5
"""At most so many columns has a put that shows what stands there as one."""


def put_result_of(row: Sequence[Any], write: Write, expect: bytes | None) -> PutResult | None:
    """The result of a put; None if the statement's snapshot was too old, so that it has to be sent again."""
    now, then, fence = row[:3]
    if fence is not None:
        return PutResult(True, landed_record(write, now, then, fence))
    if len(row) <= _NARROW:
        return landed_or_row(row, write, expect)
    if row[3] is None:
        return None if expect is None else PutResult(False, None)
    if expect is not None and row[13] == expect:
        return None
    return PutResult(False, record_of(then, row[3:26]))


def landed_or_row(row: Sequence[Any], write: Write, expect: bytes | None = None) -> PutResult | None:
    """The same, of a statement that shows what stands there as one column."""
    now, then, fence, found = row[:4]
    if fence is not None:
        return new_tuple(PutResult, (True, landed_record(write, now, then, fence)))
    if found is None:
        return None if expect is None else PutResult(False, None)
    return None if expect is not None and found[_VERSION] == expect else PutResult(False, record_of(then, found))


def landed_record(write: Write, now: int, then: int, fence: int) -> Record:
    """
    The record that a put has left, as of the end of its statement.

    The clock was read before the statement had to wait for locks, so part of the lease may be over by now. The record
    shows how much is left, and the caller renews if that is too little.
    """
    # fmt: off
    (
        id, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token, _, attempt,
        first_at, settled_at, lease, replay, forget, codec, result, error, _, _, holder,
    ) = write
    passed, first_at = then - now, first_at or now
    return new_tuple(Record, (
        id, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token, fence, attempt,
        first_at, now if settled_at == NOW else settled_at, then - first_at,
        None if lease is None else lease - passed,
        None if replay is None else replay - passed,
        None if forget is None else forget - passed,
        codec, result, error, holder,
    ))
    # fmt: on
