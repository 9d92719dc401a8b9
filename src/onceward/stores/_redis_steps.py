"""
The calls of the Redis store that take several round trips: scan, purge and extend, for both colours.

Each is a generator: it yields commands, is sent their replies, and returns the result. Between two round trips other
callers have their turn, so every step checks again whether there is still something to do.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from onceward._core.record import PutResult, Record, State, Write
from onceward._core.store_protocols import PurgeResult, Selection
from onceward.stores._redis_rows import ID, RedisCommand, RowFormat

T = TypeVar("T")
CommandSteps = Generator[Sequence[RedisCommand], list[Any], T]

PAGE = 500
"""Commands in one step: a few milliseconds of the server's time."""
PASSES_MAX = 1_000
"""Passes of one purge over the indexes. Each pass shortens them, so a purge ends long before this."""

_UNSETTLED = frozenset((State.CLAIMED.value, State.IN_DOUBT.value))


def load(rows: RowFormat, id: bytes) -> CommandSteps[Record | None]:
    """Read one record."""
    commands = rows.load(id)
    replies = yield from _guarded(rows, commands)
    return rows.load_result(id, replies)


def put_back(rows: RowFormat, write: Write, marks: Sequence[bytes]) -> CommandSteps[PutResult]:
    """Write a record unless it is there, or one of these marks is."""
    replies = yield rows.put(write, None, marks)
    return rows.put_result(write, replies)


def erase(rows: RowFormat, ids: Sequence[bytes]) -> CommandSteps[int]:
    """Delete records, whatever their state."""
    erased = 0
    for start in range(0, len(ids), PAGE):
        replies = yield from _each(rows, [rows.erase(id) for id in ids[start : start + PAGE]])
        erased += sum(reply[-1] for reply in replies)
    return erased


def scan(rows: RowFormat, after: bytes, limit: int, selection: Selection) -> CommandSteps[list[Record]]:
    """
    A page of records, from the index of ids (or that of open ones).

    Selecting by scope or kind reads every other record as well: it is meant for operators, not for each call.
    """
    page: list[Record] = []
    while len(page) < limit:
        size = PAGE if selection.scope is not None or selection.kind is not None else limit - len(page)
        ids = yield from _ids_after(rows, after, min(size, PAGE), selection)
        if not ids:
            break
        replies = yield from _each(rows, [rows.load(id) for id in ids])
        found = [rows.load_result(id, reply) for id, reply in zip(ids, replies, strict=True)]
        page += [one for one in found if one is not None and _selected(one, selection)]
        after = ids[-1]
    return page[:limit]


def _ids_after(rows: RowFormat, after: bytes, size: int, selection: Selection) -> CommandSteps[list[bytes]]:
    """The next ids. Shards are in the order of their ids, so their pages, one after the other, are in order."""
    if selection.family is not None:
        replies = yield from _each(rows, [rows.family(shard, selection.family) for shard in range(rows.shards)])
        ids = sorted({member[-ID:] for reply in replies for members in reply for member in members})
        ids = [id for id in ids if id > after]
    else:
        shards = range(rows.shard_of(after) if after else 0, rows.shards)
        unsettled = selection.unsettled
        replies = yield from _each(rows, [rows.ids_after(shard, after, size, unsettled=unsettled) for shard in shards])
        ids = [id for reply in replies for id in rows.ids(reply)]
    return [id for id in ids[:size] if not selection.before or id < selection.before]


def _selected(found: Record, selection: Selection) -> bool:
    return (
        (selection.scope is None or found.scope == selection.scope)
        and (selection.kind is None or found.kind == selection.kind)
        and (not selection.unsettled or found.state in _UNSETTLED)
    )


def purge(rows: RowFormat, limit: int, version: bytes) -> CommandSteps[PurgeResult]:
    """
    Delete forgotten records, then shrink expired ones, at most so many of each.

    A record that the server has dropped by itself leaves entries in the indexes. They are removed, and not counted.
    """
    forgotten = shrunk = 0
    stale: list[bytes] = []
    for _ in range(PASSES_MAX):
        due, stale = yield from _due(rows, min(limit - forgotten, PAGE))
        if not due:
            break
        replies = yield [rows.forget(one) for one in due]
        forgotten += sum(replies)
        if forgotten == limit:
            break
    for _ in range(PASSES_MAX):
        if not (stale := stale[: limit - shrunk]):
            break
        replies = yield [rows.shrink(id, version) for id in stale]
        shrunk += sum(replies)
        _, stale = yield from _due(rows, min(limit - shrunk, PAGE))
    return PurgeResult(forgotten, shrunk)


def _due(rows: RowFormat, size: int) -> CommandSteps[tuple[list[bytes], list[bytes]]]:
    """At most so many members of the two indexes by time whose time has come, of all shards together."""
    if size <= 0:
        return [], []
    replies = yield from _guarded(rows, [rows.due(shard, size) for shard in range(rows.shards)])
    due = [one for reply in replies for one in reply[0]]
    stale = [one for reply in replies for one in reply[1]]
    return due[:size], stale[:size]


def extend(rows: RowFormat, family: bytes, replay: int, forget: int) -> CommandSteps[int]:
    """Give the settled records of a family more time, if they still replay."""
    replies = yield from _each(rows, [rows.family(shard, family) for shard in range(rows.shards)])
    ids = sorted({member[-ID:] for reply in replies for members in reply for member in members})
    extended = 0
    for start in range(0, len(ids), PAGE):
        some = ids[start : start + PAGE]
        if old := rows.settle_old(some):
            yield old
        extended += sum((yield [rows.extend(id, family, replay, forget) for id in some]))
    return extended


def _each(rows: RowFormat, groups: Sequence[tuple[RedisCommand, ...]]) -> CommandSteps[list[list[Any]]]:
    """Send groups of commands together; the replies to each group."""
    replies = yield from _guarded(rows, [command for group in groups for command in group])
    found, start = [], 0
    for group in groups:
        found.append(replies[start : start + len(group)])
        start += len(group)
    return found


def _guarded(rows: RowFormat, commands: Sequence[RedisCommand]) -> CommandSteps[list[Any]]:
    """Send commands that cannot tell an empty shard from one whose records have another form by now."""
    guards = rows.guards(sorted({command.shard for command in commands}))
    replies = yield [*commands, *guards]
    return replies[: len(commands)]
