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
from onceward.stores._redis_rows import (
    DUE,
    ERASE,
    EXTEND,
    FORGET,
    SHARDS,
    SHRINK,
    RedisCommand,
    keys_of,
    load_command,
    load_result_of,
    put_command,
    put_result_of,
    script_command,
    shard_of,
)

T = TypeVar("T")
CommandSteps = Generator[Sequence[RedisCommand], list[Any], T]

PAGE = 500
"""Commands in one step: a few milliseconds of the server's time."""
PASSES_MAX = 1_000
"""Passes of one purge over the indexes. Each pass shortens them, so a purge ends long before this."""

_ID = 32
_UNSETTLED = frozenset((State.CLAIMED.value, State.IN_DOUBT.value))


def load(prefix: str, id: bytes) -> CommandSteps[Record | None]:
    """Read one record."""
    [reply] = yield [load_command(prefix, id)]
    return load_result_of(id, reply)


def put_back(prefix: str, write: Write, marks: Sequence[bytes]) -> CommandSteps[PutResult]:
    """Write a record unless it is there, or one of these marks is."""
    [reply] = yield [put_command(prefix, write, None, marks)]
    return put_result_of(write, reply)


def erase(prefix: str, ids: Sequence[bytes]) -> CommandSteps[int]:
    """Delete records, whatever their state."""
    erased = 0
    for start in range(0, len(ids), PAGE):
        erased += sum((yield [script_command(prefix, ERASE, id, id) for id in ids[start : start + PAGE]]))
    return erased


def scan(prefix: str, after: bytes, limit: int, selection: Selection) -> CommandSteps[list[Record]]:
    """
    A page of records, from the index of ids (or that of open ones).

    Selecting by scope or kind reads every other record as well: it is meant for operators, not for each call.
    """
    page: list[Record] = []
    while len(page) < limit:
        size = PAGE if selection.scope is not None or selection.kind is not None else limit - len(page)
        ids = yield from _ids_after(prefix, after, min(size, PAGE), unsettled=selection.unsettled)
        if not ids:
            break
        replies = yield [load_command(prefix, id) for id in ids]
        found = [load_result_of(id, reply) for id, reply in zip(ids, replies, strict=True)]
        page += [one for one in found if one is not None and _selected(one, selection)]
        after = ids[-1]
    return page[:limit]


def _ids_after(prefix: str, after: bytes, size: int, *, unsettled: bool) -> CommandSteps[list[bytes]]:
    """The next ids. Shards are in the order of their ids, so their pages, one after the other, are in order."""
    beginning: bytes = b"(" + after if after else b"-"
    commands = []
    for shard in range(shard_of(after), SHARDS):
        keys = keys_of(prefix, shard)
        index = keys.open if unsettled else keys.ids
        commands.append(RedisCommand(shard, ("ZRANGEBYLEX", index, beginning, b"+", "LIMIT", 0, size)))
    replies = yield commands
    return [id for reply in replies for id in reply][:size]


def _selected(found: Record, selection: Selection) -> bool:
    return (
        (selection.scope is None or found.scope == selection.scope)
        and (selection.kind is None or found.kind == selection.kind)
        and (not selection.unsettled or found.state in _UNSETTLED)
    )


def purge(prefix: str, limit: int, version: bytes) -> CommandSteps[PurgeResult]:
    """
    Delete forgotten records, then shrink expired ones, at most so many of each.

    A record that the server has dropped by itself leaves entries in the indexes. They are removed, and not counted.
    """
    forgotten = shrunk = 0
    stale: list[bytes] = []
    for _ in range(PASSES_MAX):
        due, stale = yield from _due(prefix, min(limit - forgotten, PAGE))
        if not due:
            break
        replies = yield [script_command(prefix, FORGET, one[:_ID], one[:_ID], one[_ID:]) for one in due]
        forgotten += sum(replies)
        if forgotten == limit:
            break
    for _ in range(PASSES_MAX):
        if not (stale := stale[: limit - shrunk]):
            break
        replies = yield [script_command(prefix, SHRINK, id, id, version) for id in stale]
        shrunk += sum(replies)
        _, stale = yield from _due(prefix, min(limit - shrunk, PAGE))
    return PurgeResult(forgotten, shrunk)


def _due(prefix: str, size: int) -> CommandSteps[tuple[list[bytes], list[bytes]]]:
    """At most so many members of `due` and of `stale` whose time has come, of all shards together."""
    if size <= 0:
        return [], []
    shards = ((shard, keys_of(prefix, shard)) for shard in range(SHARDS))
    replies = yield [RedisCommand(shard, ("EVALSHA", DUE.sha, 2, keys.due, keys.stale, size)) for shard, keys in shards]
    due = [one for reply in replies for one in reply[0]]
    stale = [one for reply in replies for one in reply[1]]
    return due[:size], stale[:size]


def extend(prefix: str, family: bytes, replay: int, forget: int) -> CommandSteps[int]:
    """Give the settled records of a family more time, if they still replay."""
    commands = []
    for shard in range(SHARDS):
        family_range = (b"[" + family, b"(" + _next(family))
        commands.append(RedisCommand(shard, ("ZRANGEBYLEX", keys_of(prefix, shard).families, *family_range)))
    replies = yield commands
    ids = [member[len(family) :] for reply in replies for member in reply]
    extended = 0
    for start in range(0, len(ids), PAGE):
        some = ids[start : start + PAGE]
        extended += sum((yield [script_command(prefix, EXTEND, id, id, family, replay, forget) for id in some]))
    return extended


def _next(family: bytes) -> bytes:
    """A bound after every member that begins with a family: ids are shorter than this."""
    return family + b"\xff" * (_ID + 1)
