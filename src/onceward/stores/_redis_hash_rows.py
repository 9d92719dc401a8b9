"""
Rows of schema version 1: a record is a hash with the fields of the record. Kept for stores that were not migrated yet.

Sixteen shards, by the first half-byte of the id.

    {onceward:3}:3fa9…     the record: a hash
    {onceward:3}:ids       every id of the shard, in order
    {onceward:3}:open      those that are claimed or in doubt
    {onceward:3}:due       when each ended record is to be forgotten: id and family, by time
    {onceward:3}:stale     when each stored answer expires: id, by time
    {onceward:3}:families  family and id
    {onceward:3}:floor     the greatest fence of any record here that has ended: every later claim gets a greater one

As long as a store is of version 1, this version of Onceward reads and writes it as the one before did: both may run
side by side. A migration makes `floor` something else than a text, so no put of version 1 lands from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward._core.errors import SchemaMismatch
from onceward._core.record import PutResult, Record, Write, record_from_write
from onceward.stores._redis_packer import Arg
from onceward.stores._redis_rows import ID, SHARDS, TIME, LuaScript, RedisCommand, load_script, script_command, tag_of

PUT, LOAD, DUE, FORGET, SHRINK, EXTEND, ERASE = SCRIPTS = tuple(
    load_script("decimals", "hashes/prelude", f"hashes/{name}")
    for name in ("put", "load", "due", "forget", "shrink", "extend", "erase")
)

INDEXES = ("ids", "open", "due", "stale", "families", "floor")
"""In the order in which every script is given them."""
FIELDS = (
    *("kind", "scope", "key", "operation", "family", "state", "guarantee", "doubt", "fingerprint", "version", "token"),
    *("fence", "attempt", "first_at", "settled_at", "lease_until", "replay_until", "forget_at", "codec", "result"),
    *("error", "holder"),
)
"""In the order of the scripts, which is the order in which a row is read."""
_VERSION = FIELDS.index("version")


class HashRows:
    """The commands of schema version 1."""

    version = 1
    shards = SHARDS

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def shard_of(self, id: bytes) -> int:
        """The shard that an id belongs to."""
        return id[0] >> 4 if id else 0

    def put(self, write: Write, expect: bytes | None, marks: Sequence[bytes] = ()) -> tuple[RedisCommand, ...]:
        """A put; it does nothing if one of these marks is there."""
        return (self._on(PUT, write.id, *_put_args(write, expect), beside=marks, version=write.version),)

    def put_result(self, write: Write, replies: Sequence[Any]) -> PutResult:
        """What a put did, from the script's reply."""
        landed, now, rest = replies[-1]
        if landed:
            return PutResult(True, record_from_write(write, now=now, fence=int(rest)))
        return PutResult(False, None if rest is None else record_of(write.id, now, rest))

    def peek(self, id: bytes) -> tuple[RedisCommand, ...]:
        """The row, then the time: so it is never newer than the time it is judged by."""
        shard = self.shard_of(id)
        row = RedisCommand(shard, ("HMGET", tag_of(self.prefix, shard) + id.hex(), *FIELDS))
        return row, RedisCommand(shard, TIME)

    def peek_result(self, id: bytes, replies: Sequence[Any]) -> PutResult | None:
        """What a peek found, as the result of a claim that did not land; None if there is no record."""
        row, (seconds, micros) = replies
        if row[_VERSION] is None:
            return None
        return PutResult(False, record_of(id, int(seconds) * 1_000_000 + int(micros), row))

    def load(self, id: bytes) -> tuple[RedisCommand, ...]:
        """Read one record."""
        shard = self.shard_of(id)
        return (script_command(shard, LOAD, [tag_of(self.prefix, shard) + id.hex()]),)

    def load_result(self, id: bytes, replies: Sequence[Any]) -> Record | None:
        """The record that a load found; None if there is none."""
        now, row = replies[-1]
        return None if row is None else record_of(id, now, row)

    def erase(self, id: bytes) -> tuple[RedisCommand, ...]:
        """Delete a record, whatever its state."""
        return (self._on(ERASE, id, id),)

    def forget(self, member: bytes) -> RedisCommand:
        """Delete the record that a member of `due` names, if its time has come."""
        return self._on(FORGET, member[:ID], member[:ID], member[ID:])

    def shrink(self, id: bytes, version: bytes) -> RedisCommand:
        """Make a record a tombstone, if its time has come."""
        return self._on(SHRINK, id, id, version)

    def extend(self, id: bytes, family: bytes, replay: int, forget: int) -> RedisCommand:
        """Give a settled record of a family more time."""
        return self._on(EXTEND, id, id, family, replay, forget)

    def due(self, shard: int, size: int) -> RedisCommand:
        """Members of `due` and `stale` whose time has come."""
        return script_command(shard, DUE, [self.key(shard, "due"), self.key(shard, "stale")], size)

    def ids_after(self, shard: int, after: bytes, size: int, *, unsettled: bool) -> tuple[RedisCommand, ...]:
        """The next ids of a shard."""
        beginning = b"(" + after if after else b"-"
        index = self.key(shard, "open" if unsettled else "ids")
        return (RedisCommand(shard, ("ZRANGEBYLEX", index, beginning, b"+", "LIMIT", 0, size)),)

    def ids(self, replies: Sequence[Any]) -> list[bytes]:
        """The ids in the replies, in order."""
        return [id for reply in replies for id in reply]

    def family(self, shard: int, family: bytes) -> tuple[RedisCommand, ...]:
        """The members of a family in a shard."""
        bounds = (b"[" + family, b"(" + family + b"\xff" * (ID + 1))
        return (RedisCommand(shard, ("ZRANGEBYLEX", self.key(shard, "families"), *bounds)),)

    def settle_old(self, ids: Sequence[bytes]) -> list[RedisCommand]:
        """There is no older form."""
        return []

    def guards(self, shards: Sequence[int]) -> list[RedisCommand]:
        """A migration has made `floor` something else: reading it as a text fails then."""
        return [RedisCommand(shard, ("GET", self.key(shard, "floor"))) for shard in shards]

    def key(self, shard: int, index: str) -> str:
        """The key of one of a shard's indexes."""
        return tag_of(self.prefix, shard) + index

    def _on(
        self, script: LuaScript, id: bytes, *args: Arg, beside: Sequence[bytes] = (), version: bytes = b""
    ) -> RedisCommand:
        """A script on one record, the indexes of its shard, and other records of the same shard."""
        shard = self.shard_of(id)
        tag = tag_of(self.prefix, shard)
        keys = (tag + id.hex(), *(tag + name for name in INDEXES), *(tag + other.hex() for other in beside))
        return script_command(shard, script, keys, *args, version=version)


def _put_args(write: Write, expect: bytes | None) -> list[Arg]:
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
    return args


def version_of(row: Sequence[Any]) -> Any:
    """The version in the fields of a hash."""
    return row[_VERSION]


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
            f"the record {id.hex()} is incomplete: something else wrote to it, or a newer version of Onceward did"
        ) from None
