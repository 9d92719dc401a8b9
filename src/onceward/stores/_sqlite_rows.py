"""
The statements of the SQLite store, and what becomes of their rows.

`put_in` is the whole of a put, and the same function serves a lone caller (autocommit), a batch (one transaction
of the store's) and the atomic mode (the caller's own transaction): one statement writes and compares, and only if
it wrote nothing is a second one asked what stands there.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from itertools import compress
from operator import itemgetter
from typing import Any

from onceward._core.errors import StoreContended
from onceward._core.record import NOW, PeekResult, PutResult, Record, Write, new_tuple
from onceward._core.record_types import FIXED_BY_CLAIM
from onceward._core.store_protocols import Selection
from onceward.stores._sqlite_purge import FORGET, RAISE_FLOOR

_BOUND = (
    *("version", "token", "settled_at", "lease_until", "replay_until", "forget_at", "result", "error", "holder"),
    *("id", "expect", "kind", "guarantee", "state", "codec"),
    *("scope", "key", "operation", "family", "fingerprint", "fence", "attempt", "first_at"),
)
"""The values of `put_in`. The last ones are those of a claim: an ending or a renewal has none of them."""
_CHANGED = ("doubt", *(column for column in _BOUND if column not in ("id", "expect")))
"""The columns besides the id."""
_NULLABLE = ("family", "settled_at", "lease_until", "replay_until", "forget_at", "result", "error", "holder")
_PLAIN = re.compile("[A-Za-z0-9_./-]*")
"""A word that may stand in the text of a statement as it is: what is bound is copied by SQLite each time."""
_SHORT = 4_096
"""Bytes of a result that are bound as a bytearray, which is a copy."""
_READ = (
    "id, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token, fence, attempt, "
    "first_at, settled_at, ? - first_at, lease_until - ?, replay_until - ?, forget_at - ?, codec, result, error, "
    "holder"
)
_FLOOR = "(SELECT value FROM onceward_meta WHERE name = 'fence_floor')"

FIND = f"SELECT {_READ} FROM onceward_records WHERE id = ?"  # noqa: S608
_PEEKED = (
    "state, fingerprint, replay_until - ?, forget_at - ?, codec, result, error, first_at, attempt, fence "
    "FROM onceward_records WHERE id"
)
PEEK = f"SELECT {_PEEKED} = ?"
FENCE_FLOOR = f"SELECT {_FLOOR}"
MARKED = "SELECT 1 FROM onceward_records WHERE id = ? AND (forget_at IS NULL OR forget_at > ?)"
FENCE = "SELECT fence FROM onceward_records WHERE id = ?"

EXTEND = (
    "UPDATE onceward_records SET replay_until = max(replay_until, ?), forget_at = max(forget_at, ?) "
    "WHERE family = ? AND state = 'settled' AND replay_until > ?"
)
_TRIES = 4
"""A put in autocommit can lose to a purge between its statements; more than a few times in a row is no accident."""


def find(cursor: sqlite3.Cursor, id: bytes, now: int) -> Record | None:
    """Read one record at the store's time `now`."""
    row = cursor.execute(FIND, (now, now, now, now, bytearray(id))).fetchone()
    return new_tuple(Record, row) if row is not None else None


def peek(cursor: sqlite3.Cursor, id: bytes, now: int) -> PeekResult | None:
    """Read what a replay needs of one record: half the columns, and so half the time."""
    row = cursor.execute(PEEK, (now, now, bytearray(id))).fetchone()
    return new_tuple(PeekResult, row) if row is not None else None


def peek_many(cursor: sqlite3.Cursor, ids: Sequence[bytes], now: int) -> dict[bytes, PeekResult]:
    """The same of several records, by one statement: a third of the time of each, because the file is locked once."""
    places = 1 << (len(ids) - 1).bit_length()  # Few statements, so that SQLite knows them all: the last id fills up.
    given = (now, now, *map(bytearray, ids), *[bytearray(ids[-1])] * (places - len(ids)))
    found = cursor.execute(_peek_statement(places), given).fetchall()
    return {row[0]: new_tuple(PeekResult, row[1:]) for row in found}


@cache
def _peek_statement(places: int) -> str:
    return f"SELECT id, {_PEEKED} IN ({', '.join('?' * places)})"


def put_in(
    cursor: sqlite3.Cursor, write: Write, expect: bytes | None, now: int, *, least: int = 0, tries: int = _TRIES
) -> PutResult:
    """
    Put `write` where `expect` stands (None: nothing), in whatever transaction the cursor's connection is in.

    This runs for every write, so it is written for speed. The record is what `record_from_write` gives (a test holds
    that), in a third of its time: the fields are unpacked once. And `sqlite3` looks for an adapter whenever it binds
    bytes or None, which takes five times as long as binding anything else: so NULLs are in the statement's text, with
    the words that repeat (a state, a guarantee), and short bytes are bound as bytearrays.
    """
    # fmt: off
    (
        id, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token, fence, attempt,
        first_at, settled_at, lease, replay, forget, codec, result, error, rise, _, holder,
    ) = write
    if rise:
        fence = max(fence, now, least)
    first_at = first_at or now
    if settled_at == NOW:
        settled_at = now
    sql, bound = _statement(
        rise, expect is None, kind, guarantee, state, doubt, codec, family is None, settled_at is None, lease is None,
        replay is None, forget is None, result is None, error is None, holder is None,
    )
    values: tuple[Any, ...] = (
        bytearray(version), bytearray(token), settled_at,
        None if lease is None else now + lease,
        None if replay is None else now + replay,
        None if forget is None else now + forget,
        bytearray(result) if result is not None and len(result) < _SHORT else result, error,
        None if holder is None else bytearray(holder),
        bytearray(id), b"" if expect is None else bytearray(expect), kind, guarantee, state, codec,
    )
    if rise or expect is None:
        values += (scope, key, operation, family, bytearray(fingerprint), fence, attempt, first_at)
    if cursor.execute(sql, bound(values)).rowcount == 1:
        landed = new_tuple(Record, (
            id, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token, fence,
            attempt, first_at, settled_at, now - first_at, lease, replay, forget, codec, result, error, holder,
        ))
        return new_tuple(PutResult, (True, landed))  # type: ignore[no-any-return]
    # fmt: on
    found = find(cursor, id, now)
    if (found.version if found is not None else None) != expect:
        return PutResult(False, found)
    if tries == 1:
        raise StoreContended(retry_after_seconds=0.1)
    # Nothing but the fence was in the way: the clock is behind one that a purge deleted.
    floor: int = cursor.execute(FENCE_FLOOR).fetchone()[0]
    return put_in(cursor, write, expect, now, least=floor + 1, tries=tries - 1)


def put_back_in(cursor: sqlite3.Cursor, write: Write, marks: Sequence[bytes], now: int) -> PutResult:
    """Put where nothing stands, and none of these marks. Belongs inside a transaction that has the write lock."""
    if any(cursor.execute(MARKED, (mark, now)).fetchone() for mark in marks):
        return PutResult(False, find(cursor, write.id, now))
    return put_in(cursor, write, None, now)


def erase(cursor: sqlite3.Cursor, ids: Sequence[bytes]) -> int:
    """Delete records, and remember the greatest fence deleted. Belongs inside one transaction."""
    fences = [fence for id in ids for (fence,) in cursor.execute(FENCE, (id,)).fetchall()]
    if fences:
        cursor.executemany(FORGET, [(id,) for id in ids])
        cursor.execute(RAISE_FLOOR, (max(fences),))
    return len(fences)


def put_on(connection: sqlite3.Connection, write: Write, expect: bytes | None, now_us: int) -> PutResult:
    """
    Put on a caller's own connection, inside the caller's transaction: no BEGIN, no COMMIT.

    The first statement is a write, so that even a deferred transaction takes the write lock at once and never has
    to upgrade. Errors of `sqlite3` go through as they are: only the owner of the transaction knows what they end.
    """
    with _plain_cursor(connection) as cursor:
        return put_in(cursor, write, expect, now_us)


def find_on(connection: sqlite3.Connection, id: bytes, now_us: int) -> Record | None:
    """Read one record on a caller's own connection, as its transaction sees it."""
    with _plain_cursor(connection) as cursor:
        return find(cursor, id, now_us)


@contextmanager
def _plain_cursor(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    """Rows as they are, whatever the caller has theirs made into."""
    cursor = connection.cursor()
    cursor.row_factory = None
    text_factory = connection.text_factory
    connection.text_factory = str
    try:
        yield cursor
    finally:
        connection.text_factory = text_factory
        cursor.close()


@lru_cache(maxsize=256)
def _statement(
    rises: bool, fresh: bool, kind: str, guarantee: str, state: str, doubt: int, codec: str | None, *absent: bool
) -> tuple[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]]:
    """
    The statement for a write of this shape, and what it binds of the values of `put_in`.

    The fence is chosen before the statement runs; the statement itself refuses one that a purge has used up. A write
    that keeps its fence follows one that it names by its version: what a claim fixes stands there already.
    """
    columns = _CHANGED if fresh or rises else tuple(one for one in _CHANGED if one not in FIXED_BY_CLAIM)
    null = set(compress(_NULLABLE, absent)) | ({"codec"} if codec is None else set())
    words = {"kind": kind, "guarantee": guarantee, "state": state, "codec": codec or ""}
    literals = {column: f"'{word}'" for column, word in words.items() if _PLAIN.fullmatch(word)}
    literals |= {"doubt": str(doubt)} | dict.fromkeys(null, "NULL")
    places = {column: literals.get(column, "?") for column in columns}
    bound = [_BOUND.index(column) for column in columns if column not in literals]
    above_floor = f" AND ? > {_FLOOR}" if rises else ""
    least = [_BOUND.index("fence")] if rises else []
    id, version = _BOUND.index("id"), _BOUND.index("expect")
    if fresh:
        where = above_floor.removeprefix(" AND") or " true"
        sql = (
            f"INSERT INTO onceward_records (id, {', '.join(places)}) SELECT ?, {', '.join(places.values())} "
            f"WHERE{where} ON CONFLICT (id) DO NOTHING"
        )
        return sql, itemgetter(*[id, *bound, *least])
    changes = ", ".join(f"{column} = {place}" for column, place in places.items())
    sql = f"UPDATE onceward_records SET {changes} WHERE id = ? AND version = ?{above_floor}"  # noqa: S608
    return sql, itemgetter(*[*bound, id, version, *least])


def scan(cursor: sqlite3.Cursor, after: bytes, limit: int, selection: Selection, now: int) -> list[Record]:
    """A page of records in order of id."""
    return _page(cursor, "id > ?", [after], "id", limit, selection, now)


def scan_by_age(
    cursor: sqlite3.Cursor, after: tuple[int, bytes], until: int, limit: int, selection: Selection, now: int
) -> list[Record]:
    """A page of records in order of their first claim, after an instant and an id and up to an instant."""
    wanted = "(first_at, id) > (?, ?) AND first_at <= ?"
    return _page(cursor, wanted, [*after, until], "first_at, id", limit, selection, now)


def _page(
    cursor: sqlite3.Cursor, where: str, given: list[object], order: str, limit: int, selection: Selection, now: int
) -> list[Record]:
    wanted, values = [where], [now, now, now, now, *given]
    if selection.unsettled:
        wanted.append("state IN ('claimed', 'in_doubt')")
    if selection.before:
        wanted.append("id < ?")
        values.append(selection.before)
    for column, value in (("family", selection.family), ("scope", selection.scope), ("kind", selection.kind)):
        if value is not None:
            wanted.append(f"{column} = ?")
            values.append(value)
    sql = f"SELECT {_READ} FROM onceward_records WHERE {' AND '.join(wanted)} ORDER BY {order} LIMIT ?"  # noqa: S608
    return [Record._make(row) for row in cursor.execute(sql, (*values, limit))]


def extend(cursor: sqlite3.Cursor, family: bytes, replay: int, forget: int, now: int) -> int:
    """Lengthen the lives of a family's settled records that still replay."""
    return cursor.execute(EXTEND, (now + replay, now + forget, family, now)).rowcount
