"""
Purging a SQLite store: how rows that are due are found, deleted and shrunk.

Since schema 4 no index says when a row is due, because every settle would write a page of it. SQLite numbers rows in
the order in which they came (`rowid`), and for each block of 128 numbers a row of `onceward_blocks` has the time at
which the first of its rows is due. So a purge reads the blocks that are due, and the youngest rows, which are in no
block yet: it notes their blocks once there are enough of them, or when it writes anyway.

What is in flight or in doubt has no such time yet. A block with such a row is looked through again after a minute, and
then after as long as that row has been there: so its end is noticed late by a minute, or by the time that it took. What
is claimed once more raises its fence, and a trigger on that has its block looked through when the lease is over.
Another trigger sees to it that a number that is given again is in no block. What ends a claim runs no trigger.

Files of an older schema have an index (`onceward_due`), until `store migrate` brings them up to date.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple, TypeAlias

from onceward._core.store_protocols import PurgeResult

BLOCK = 128
"""Rows of a block. The schema has the same number."""
BLOCKS_WAITING_MAX = 8
"""Full blocks that may wait until a purge writes anyway. Until then, each purge looks through their rows."""
BLOCKS_NOTED_MAX = 16
"""Blocks that one transaction notes: about a millisecond, for which others wait."""

LOOK_AGAIN = 60_000_000
"""Microseconds, at least, until a block with a row that has not ended is looked through again."""

_NEVER = 2**63 - 1
_BLOCKS = "SELECT value >= 4 FROM onceward_meta WHERE name = 'schema_version'"
# Spelled as in the index of older files, or SQLite would not use it.
_DUE = (
    "min(coalesce(CASE WHEN codec IS NOT NULL OR error IS NOT NULL THEN replay_until END, forget_at), "
    "coalesce(forget_at, 9223372036854775807))"
)
_ENDED = "state IN ('settled', 'released')"
_LOOK = f"min(CASE WHEN {_ENDED} THEN {_DUE} ELSE ?1 + max({LOOK_AGAIN}, ?1 - first_at) END)"
"""When a block is due, by its rows, at a time: the first parameter of its statement."""
DUE_BY_INDEX = f"""
SELECT id, coalesce(forget_at <= ?, 0), fence FROM onceward_records
WHERE (replay_until IS NOT NULL OR forget_at IS NOT NULL) AND {_DUE} <= ? AND {_ENDED}
ORDER BY {_DUE} LIMIT ?"""  # noqa: S608 - constants

_WITHIN = f"rowid >= {BLOCK} * ? AND rowid < {BLOCK} * ?"
_LAST = f"SELECT (ifnull(max(rowid), 0) + 1) / {BLOCK} FROM onceward_records"  # noqa: S608 - a number
_LAST_NOTED = "SELECT ifnull(max(block), -1) FROM onceward_blocks"
_FIRST_SINCE = f"SELECT rowid / {BLOCK} FROM onceward_records WHERE rowid >= {BLOCK} * ? ORDER BY rowid LIMIT 1"  # noqa: S608
_NOTE = f"""
INSERT INTO onceward_blocks (block, due)
SELECT rowid / {BLOCK}, ifnull({_LOOK}, {_NEVER}) FROM onceward_records
WHERE {_WITHIN} GROUP BY rowid / {BLOCK}"""  # noqa: S608 - constants
DUE_BLOCK = "SELECT block FROM onceward_blocks WHERE due <= ? ORDER BY due LIMIT 1"
DUE_WITHIN = f"""
SELECT id, coalesce(forget_at <= ?, 0), fence FROM onceward_records
WHERE {_WITHIN} AND {_DUE} <= ? AND {_ENDED} ORDER BY rowid LIMIT ?"""  # noqa: S608 - constants
_LEFT = f"SELECT count(*), ifnull({_LOOK}, {_NEVER}) FROM onceward_records WHERE {_WITHIN}"  # noqa: S608
_SET_BLOCK = "UPDATE onceward_blocks SET due = ? WHERE block = ?"
_DROP_BLOCK = "DELETE FROM onceward_blocks WHERE block = ?"
_DROP_BLOCKS = "DELETE FROM onceward_blocks"

FORGET = "DELETE FROM onceward_records WHERE id = ?"
RAISE_FLOOR = "UPDATE onceward_meta SET value = max(value, ?) WHERE name = 'fence_floor'"
_SHRINK = "UPDATE onceward_records SET codec = NULL, result = NULL, error = NULL, version = ? WHERE id = ?"

_Due: TypeAlias = tuple[bytes, int, int]
"""A row that is due: its id, whether it is forgotten (1) or shrunk (0), its fence."""


class Purged(NamedTuple):
    """What one transaction of a purge has done."""

    forgotten: int = 0
    shrunk: int = 0
    is_last: bool = True
    """Whether nothing that is due is left, and every full block is noted."""


class PurgeLoop:
    """A purge: transactions one after the other, between which others write, up to a limit of rows."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._forgotten = self._shrunk = 0
        self.is_done = False

    @property
    def left(self) -> int:
        """How many rows the next transaction may delete and shrink in all."""
        return self._limit - self._forgotten - self._shrunk

    def add(self, some: Purged) -> None:
        """A transaction is done."""
        self._forgotten += some.forgotten
        self._shrunk += some.shrunk
        self.is_done = some.is_last or self.left <= 0

    def result(self) -> PurgeResult:
        """What the whole purge has done."""
        return PurgeResult(self._forgotten, self._shrunk)


def is_wanted(cursor: sqlite3.Cursor, now: int) -> bool:
    """Whether there is anything to purge, or to note. A look, which keeps no writer waiting."""
    if not _has_blocks(cursor):
        return cursor.execute(DUE_BY_INDEX, (now, now, 1)).fetchone() is not None
    if cursor.execute(DUE_BLOCK, (now,)).fetchone() is not None:
        return True
    first, last = _unnoted(cursor)
    waiting = last - first
    return not 0 <= waiting < BLOCKS_WAITING_MAX or bool(_due_within(cursor, first, 1, now, blocks=waiting + 1))


def purge(cursor: sqlite3.Cursor, limit: int, version: bytes, now: int) -> Purged:
    """
    Delete and shrink what is due, `limit` rows in all, and remember the greatest fence deleted.

    Belongs inside one transaction.
    """
    if not _has_blocks(cursor):
        due = cursor.execute(DUE_BY_INDEX, (now, now, limit)).fetchall()
        return Purged(*_carry_out(cursor, due, version), len(due) < limit)
    tail, is_all = _note_blocks(cursor, now)
    forgotten = shrunk = 0
    # At most `limit` blocks: in some, nothing is due after all, because their rows are kept for longer now.
    for _ in range(limit):
        found = cursor.execute(DUE_BLOCK, (now,)).fetchone()
        if found is None:
            break
        gone, less = _carry_out(cursor, _due_within(cursor, found[0], limit - forgotten - shrunk, now), version)
        forgotten, shrunk = forgotten + gone, shrunk + less
        _see_to_block(cursor, found[0], now)
        if forgotten + shrunk == limit:
            return Purged(forgotten, shrunk, False)
    else:
        return Purged(forgotten, shrunk, False)
    gone, less = _carry_out(cursor, _due_within(cursor, tail, limit - forgotten - shrunk, now), version)
    return Purged(forgotten + gone, shrunk + less, is_all and forgotten + gone + shrunk + less < limit)


def _has_blocks(cursor: sqlite3.Cursor) -> bool:
    """Asked each time: somebody may have migrated the file meanwhile."""
    return bool(cursor.execute(_BLOCKS).fetchone()[0])


def _unnoted(cursor: sqlite3.Cursor) -> tuple[int, int]:
    """
    The first block with rows that is not noted, and the one that the next row comes to.

    The first is never after the other, unless rows have been numbered anew.
    """
    last: int = cursor.execute(_LAST).fetchone()[0]
    since: int = cursor.execute(_LAST_NOTED).fetchone()[0] + 1
    found = cursor.execute(_FIRST_SINCE, (since,)).fetchone()
    return (found[0] if found is not None else max(since, last)), last


def _note_blocks(cursor: sqlite3.Cursor, now: int) -> tuple[int, bool]:
    """Note blocks that are full, but not too many at once; the block after them, and whether it is the last."""
    first, last = _unnoted(cursor)
    if first > last:
        # SQLite's documentation allows VACUUM to do that. It does not where a table has an index, as ours has.
        cursor.execute(_DROP_BLOCKS)
        first, last = _unnoted(cursor)
    noted = min(last, first + BLOCKS_NOTED_MAX)
    if first < noted:
        cursor.execute(_NOTE, (now, first, noted))
    return noted, noted == last


def _due_within(cursor: sqlite3.Cursor, block: int, limit: int, now: int, *, blocks: int = 1) -> list[_Due]:
    """Rows of a block, or of some, that are due."""
    return cursor.execute(DUE_WITHIN, (now, block, block + blocks, now, limit)).fetchall()


def _see_to_block(cursor: sqlite3.Cursor, block: int, now: int) -> None:
    """After a look through a block: when it is due next."""
    count, due = cursor.execute(_LEFT, (now, block, block + 1)).fetchone()
    if count:
        cursor.execute(_SET_BLOCK, (due, block))
    else:
        cursor.execute(_DROP_BLOCK, (block,))


def _carry_out(cursor: sqlite3.Cursor, due: list[_Due], version: bytes) -> tuple[int, int]:
    """Delete and shrink: how many of each."""
    gone = [(id, fence) for id, forgotten, fence in due if forgotten]
    if gone:
        cursor.executemany(FORGET, [(id,) for id, _ in gone])
        cursor.execute(RAISE_FLOOR, (max(fence for _, fence in gone),))
    # One new version serves every row: a version is only ever compared with that of the same id.
    cursor.executemany(_SHRINK, [(version, id) for id, forgotten, _ in due if not forgotten])
    return len(gone), len(due) - len(gone)
