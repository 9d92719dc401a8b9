"""
Records as Redis holds them: the keys of a shard, the scripts, and the conversion in both directions.

A record is a hash with the fields of the record. Sixteen shards, by the first half-byte of the id, have a hash tag
each: on a Cluster they spread over its nodes, and all that one script touches lies in one slot.

    {onceward:3}:3fa9…     the record: a hash
    {onceward:3}:ids       every id of the shard, in order
    {onceward:3}:open      those that are claimed or in doubt
    {onceward:3}:due       when each ended record is to be forgotten: id and family, by time
    {onceward:3}:stale     when each stored answer expires: id, by time
    {onceward:3}:families  family and id
    {onceward:3}:floor     the greatest fence of any record here that has ended: every later claim gets a greater one

The floor is raised when a record ends. So the server may drop the record at any time after that: no fence repeats, even
if the server's clock is set back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, NamedTuple

from onceward._core.errors import SchemaMismatch
from onceward._core.record import PutResult, Record, Write, record_from_write
from onceward.stores._redis_packer import Arg

SHARDS = 16


class RedisCommand(NamedTuple):
    """One command, and the shard whose server it is for."""

    shard: int
    args: tuple[Arg, ...]


class LuaScript(NamedTuple):
    """A script and the name the server knows it by."""

    text: str
    sha: str


def load_script(name: str) -> LuaScript:
    """The script in a file, with the prelude of every script in front of it."""
    folder = files("onceward.stores") / "lua"
    text = "\n".join((folder / f"{one}.lua").read_text(encoding="utf-8") for one in ("prelude", name))
    return LuaScript(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


PUT, LOAD, DUE, FORGET, SHRINK, EXTEND, ERASE = SCRIPTS = tuple(
    load_script(name) for name in ("put", "load", "due", "forget", "shrink", "extend", "erase")
)


class Keys(NamedTuple):
    """The keys of one shard, but for those of its records."""

    tag: str
    indexes: tuple[str, ...]
    """ids, open, due, stale, families, floor: in the order in which every script is given them."""
    ids: str
    open: str
    due: str
    stale: str
    families: str


@cache
def keys_of(prefix: str, shard: int) -> Keys:
    """The keys of a shard."""
    tag = f"{{{prefix}:{shard:x}}}:"
    indexes = tuple(f"{tag}{name}" for name in ("ids", "open", "due", "stale", "families", "floor"))
    return Keys(tag, indexes, *indexes[:5])


def shard_of(id: bytes) -> int:
    """The shard that an id belongs to. Shards are in the order of their ids."""
    return id[0] >> 4 if id else 0


def script_command(prefix: str, script: LuaScript, id: bytes, *args: Arg, beside: Sequence[bytes] = ()) -> RedisCommand:
    """A command that runs a script on one record, the indexes of its shard, and other records of the same shard."""
    shard = shard_of(id)
    keys = keys_of(prefix, shard)
    named = (keys.tag + id.hex(), *keys.indexes, *(keys.tag + other.hex() for other in beside))
    return RedisCommand(shard, ("EVALSHA", script.sha, len(named), *named, *args))


def put_command(prefix: str, write: Write, expect: bytes | None, marks: Sequence[bytes] = ()) -> RedisCommand:
    """The command for a put; it does nothing if one of these marks is there."""
    args: list[Arg] = [
        b"-" if expect is None else b"=" + expect,
        write.id,
        write.family or b"",
        write.state,
        1 if write.rise else 0,
        write.fence,
        write.first_at,
        "" if write.settled_at is None else write.settled_at,
        "" if write.lease is None else write.lease,
        "" if write.replay is None else write.replay,
        "" if write.forget is None else write.forget,
        1 if write.codec is not None or write.error is not None else 0,
        *(b"kind", write.kind, b"scope", write.scope, b"key", write.key, b"operation", write.operation),
        *(b"guarantee", write.guarantee, b"doubt", write.doubt, b"fingerprint", write.fingerprint),
        *(b"version", write.version, b"token", write.token, b"attempt", write.attempt),
    ]
    if write.family is not None:
        args += (b"family", write.family)
    if write.codec is not None:
        args += (b"codec", write.codec)
    if write.result is not None:
        args += (b"result", write.result)
    if write.error is not None:
        args += (b"error", write.error)
    if write.holder is not None:
        args += (b"holder", write.holder)
    return script_command(prefix, PUT, write.id, *args, beside=marks)


def load_command(prefix: str, id: bytes) -> RedisCommand:
    """The command for a load."""
    shard = shard_of(id)
    return RedisCommand(shard, ("EVALSHA", LOAD.sha, 1, keys_of(prefix, shard).tag + id.hex()))


FIELDS = (
    *("kind", "scope", "key", "operation", "family", "state", "guarantee", "doubt", "fingerprint", "version", "token"),
    *("fence", "attempt", "first_at", "settled_at", "lease_until", "replay_until", "forget_at", "codec", "result"),
    *("error", "holder"),
)
"""In the order of the scripts, which is the order in which a row is read."""
_VERSION = FIELDS.index("version")


def peek_commands(prefix: str, id: bytes) -> tuple[RedisCommand, RedisCommand]:
    """
    The commands for a peek, which cost the server a fifth of a script.

    The row is read before the time, so that it is never newer than the time it is judged by.
    """
    shard = shard_of(id)
    return RedisCommand(shard, ("HMGET", keys_of(prefix, shard).tag + id.hex(), *FIELDS)), RedisCommand(
        shard, ("TIME",)
    )


def peek_result_of(id: bytes, replies: Sequence[Any]) -> PutResult | None:
    """What a peek found, as the result of a claim that did not land; None if there is no record."""
    row, (seconds, micros) = replies
    if row[_VERSION] is None:
        return None
    return PutResult(False, record_of(id, int(seconds) * 1_000_000 + int(micros), row))


def put_result_of(write: Write, reply: Sequence[Any]) -> PutResult:
    """The result of a put, from the script's reply."""
    landed, now, rest = reply
    if landed:
        return PutResult(True, record_from_write(write, now=now, fence=int(rest)))
    return PutResult(False, None if rest is None else record_of(write.id, now, rest))


def load_result_of(id: bytes, reply: Sequence[Any]) -> Record | None:
    """The record that a load found, from the script's reply; None if there is none."""
    now, row = reply
    return None if row is None else record_of(id, now, row)


def record_of(id: bytes, now: int, row: Sequence[Any]) -> Record:
    """A record from the fields of its hash, in the order of the scripts."""
    kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token, *rest = row
    fence, attempt, first_at, settled_at, lease_until, replay_until, forget_at, codec, result, error, holder = rest
    try:
        began = int(first_at)
        return Record(
            id,
            kind.decode(),
            scope.decode(),
            key.decode(),
            operation.decode(),
            family,
            state.decode(),
            guarantee.decode(),
            int(doubt),
            fingerprint,
            version,
            token,
            int(fence),
            int(attempt),
            began,
            None if settled_at is None else int(settled_at),
            now - began,
            None if lease_until is None else int(lease_until) - now,
            None if replay_until is None else int(replay_until) - now,
            None if forget_at is None else int(forget_at) - now,
            None if codec is None else codec.decode(),
            result,
            error,
            holder,
        )
    except (AttributeError, TypeError, ValueError):
        raise SchemaMismatch(
            f"the record {id.hex()} is not whole: something else wrote to it, or a newer version of Onceward did"
        ) from None
