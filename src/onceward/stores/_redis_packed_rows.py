"""
Rows of schema version 2: a record is one packed text, and a shard has four keys beside its records.

    {onceward:3}:<id>      the record: 32 bytes of id, as they are
    {onceward:3}:shard     how many shards the store has, and the greatest fence of any record here that has ended:
                           every later claim gets a greater one
    {onceward:3}:names     in order: i and each id, o and each id that is claimed or in doubt, f and family and id
    {onceward:3}:forget    when each ended record is to be forgotten: id and family, by time
    {onceward:3}:replay    when each stored answer expires: id, by time

The fence is noted when a record ends. So the server may drop the record at any time after that: no fence repeats, even
if the server's clock is set back.

A row is what the caller packs, with what the server decides (the instant of the write, the fence) in the middle. The
times in it are counted from that instant.

    head    letter of the state | 1 length, version | 1 length, family
    server  8 instant | 1 length, fence in decimal (nothing: it is the instant of the first claim)
    tail    8 replay | 8 forget (-1: none) | 4 length of the payload | numbers, lengths | first, lease, settled | names
    payload 1 what is there | 1 length, codec | 4 length, error | result: it goes when the record becomes a tombstone
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Any

from onceward._core.errors import RecordRefused, SchemaMismatch
from onceward._core.record import Guarantee, PutResult, Record, State, Write, new_tuple, record_from_write
from onceward.stores._redis_packer import Arg
from onceward.stores._redis_rows import ID, TIME, RedisCommand, load_script, script_command, tag_of

CLAIM = load_script("now", "decimals", "fences", "claim")
PUT = load_script("now", "decimals", "fences", "packed", "put")
DUE = load_script("now", "due")
FORGET, SHRINK, EXTEND, ERASE = (
    load_script("now", "decimals", "fences", "packed", "traces", name)
    for name in ("forget", "shrink", "extend", "erase")
)
MOVE = load_script("now", "decimals", "fences", "packed", "traces", "move")
OLD_INDEX = load_script("old_index")
SCRIPTS = (OLD_INDEX, CLAIM, PUT, DUE, FORGET, SHRINK, EXTEND, ERASE, MOVE)

LETTERS = {
    State.CLAIMED.value: b"C",
    State.SETTLED.value: b"S",
    State.RELEASED.value: b"R",
    State.IN_DOUBT.value: b"D",
}
OTHER = b"X"
_OTHER = OTHER[0]
"""A state that has no letter is spelt out."""
KINDS = {"key": 1, "step": 2, "sequence": 3, "dead": 4, "erasure": 5, "emit": 6, "window": 7}
GUARANTEES = {
    Guarantee.ATOMIC.value: 1,
    Guarantee.REPEATABLE.value: 2,
    Guarantee.KEYED.value: 3,
    Guarantee.PROBED.value: 4,
    Guarantee.BLIND.value: 5,
}
"""Kinds and guarantees are numbers in a row; 0: spelt out. A number never gets another meaning."""
_STATE_OF = {letter[0]: state for state, letter in LETTERS.items()}
_KIND_OF = {number: kind for kind, number in KINDS.items()}
_GUARANTEE_OF = {number: guarantee for guarantee, number in GUARANTEES.items()}
_ENDED = (State.SETTLED.value, State.RELEASED.value)

_TAIL = Struct(">qqIBBBBIBBHHH")
"""replay, forget, payload, flags, kind, guarantee, doubt, attempt; sizes: fingerprint, token, scope, key, operation"""
_TAIL_SIZE = _TAIL.size
_INSTANT = Struct(">q")
_instant = _INSTANT.pack
_LENGTH_2 = Struct(">H")
_LENGTH_4 = Struct(">I")
_EXACT = 2**53
"""Lua counts in doubles."""
_LEASE, _SETTLED, _SETTLED_NOW, _FIRST, _HOLDER = 1, 2, 4, 8, 16
_CODEC, _RESULT, _ERROR = 1, 2, 4

_CLAIM_COMMAND = b"%b%b%b" + 3 * b"$%d\r\n%b\r\n"
_PUT_COMMAND = b"%b%b%b" + 4 * b"$%d\r\n%b\r\n"
"""A command as it is sent: what is the same for a shard, around the id, and so many words, each behind its length."""


def pack_row(write: Write) -> tuple[bytes, bytes]:
    """Head and tail of a row: what the server decides comes between them."""
    # fmt: off
    (
        _, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token, _, attempt,
        first_at, settled_at, lease, replay, forget, codec, result, error, _, _, holder,
    ) = write
    # fmt: on
    scope_bytes, key_bytes, operation_bytes, family = scope.encode(), key.encode(), operation.encode(), family or b""
    letter, kind_number, guarantee_number = LETTERS.get(state, OTHER), KINDS.get(kind, 0), GUARANTEES.get(guarantee, 0)
    payload = b"" if codec is None and result is None and error is None else _pack_payload(codec, result, error)
    flags, more = (_FIRST, _instant(first_at)) if first_at else (0, b"")
    if lease is not None:
        flags |= _LEASE
        more += _instant(lease)
    if settled_at is not None:
        if settled_at:
            flags |= _SETTLED
            more += _instant(settled_at)
        else:
            flags |= _SETTLED_NOW
    spelt = b""
    if not (kind_number and guarantee_number) or letter is OTHER:
        words = (kind, kind_number), (guarantee, guarantee_number), (state, letter is not OTHER)
        spelt = b"".join(_short(word.encode()) for word, has_number in words if not has_number)
    if holder is not None:
        flags |= _HOLDER
        spelt += _LENGTH_2.pack(len(holder)) + holder
    # fmt: off
    try:
        numbers = _TAIL.pack(
            -1 if replay is None else replay, -1 if forget is None else forget, len(payload), flags,
            kind_number, guarantee_number, doubt, attempt,
            len(fingerprint), len(token), len(scope_bytes), len(key_bytes), len(operation_bytes),
        )
        return (
            b"%c%c%b%c%b" % (letter, len(version), version, len(family), family),
            b"".join((
                numbers, more, fingerprint, token, scope_bytes, key_bytes, operation_bytes, spelt, payload,
            )),
        )
    except (struct.error, OverflowError) as error_of_size:
        raise RecordRefused(
            f"a part of the record is too long for Redis, or a number too great: {error_of_size}"
        ) from None
    # fmt: on


def _fence(write: Write) -> bytes:
    """The fence, as `fences.lua` takes it."""
    if write.rise:
        return (b"+%d" if write.first_at else b"*%d") % write.fence
    return (b"=%d" if write.fence == write.first_at < _EXACT else b"%d") % write.fence


def _short(word: bytes) -> bytes:
    return b"%c%b" % (len(word), word)


def _pack_payload(codec: str | None, result: bytes | None, error: bytes | None) -> bytes:
    if codec is not None and result is not None and error is None:  # As nearly every result.
        name = codec.encode()
        return b"%c%c%b\0\0\0\0%b" % (_CODEC | _RESULT, len(name), name, result)
    what = (codec is not None) * _CODEC + (result is not None) * _RESULT + (error is not None) * _ERROR
    return b"%c%b%b%b%b" % (
        *(what, _short((codec or "").encode())),
        *(_LENGTH_4.pack(len(error or b"")), error or b"", result or b""),
    )


def unpack_row(id: bytes, now: int, row: bytes) -> Record:
    """The record in a packed row, read at the server's time `now`."""
    try:
        return _unpack(id, now, row)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, struct.error):
        raise SchemaMismatch(
            f"the record {id.hex()} is incomplete: something else wrote to it, or a newer version of Onceward did"
        ) from None


def version_of(row: bytes) -> bytes:
    """The version of a packed row; empty if it is not one."""
    return row[2 : 2 + row[1]] if len(row) > 1 else b""


def _unpack(id: bytes, now: int, row: bytes) -> Record:
    place = 2 + row[1]
    version = row[2:place]
    start, place = place + 1, place + 1 + row[place]
    family = row[start:place] or None
    [at] = _INSTANT.unpack_from(row, place)
    start, place = place + 9, place + 9 + row[place + 8]
    fence = row[start:place]
    # fmt: off
    (
        replay, forget, payload, flags, kind, guarantee, doubt, attempt,
        fingerprint_size, token_size, scope_size, key_size, operation_size,
    ) = _TAIL.unpack_from(row, place)
    # fmt: on
    place += _TAIL_SIZE
    lease = settled_at = None
    first_at = at
    if flags & _FIRST:
        [first_at] = _INSTANT.unpack_from(row, place)
        place += 8
    if flags & _LEASE:
        [lease] = _INSTANT.unpack_from(row, place)
        place += 8
    if flags & _SETTLED:
        [settled_at] = _INSTANT.unpack_from(row, place)
        place += 8
    elif flags & _SETTLED_NOW:
        settled_at = at
    token_at = place + fingerprint_size
    scope_at = token_at + token_size
    key_at = scope_at + scope_size
    operation_at = key_at + key_size
    end = operation_at + operation_size
    # fmt: off
    if kind and guarantee and row[0] != _OTHER:
        kind, guarantee, state, after = _KIND_OF[kind], _GUARANTEE_OF[guarantee], _STATE_OF[row[0]], end
    else:
        kind, guarantee, state, after = _unpack_spelt(row, end, kind, guarantee)
    holder = None
    if flags & _HOLDER:
        start = after + 2
        after = start + _LENGTH_2.unpack_from(row, after)[0]
        holder = row[start:after]
    if after + payload != len(row):
        raise ValueError("a row of another length")
    codec, result, error = _unpack_payload(row, after) if payload else (None, None, None)
    elapsed = now - at
    return new_tuple(Record, (  # type: ignore[no-any-return]
        id, kind, row[scope_at:key_at].decode(), row[key_at:operation_at].decode(), row[operation_at:end].decode(),
        family, state, guarantee, doubt, row[place:token_at], version, row[token_at:scope_at],
        int(fence) if fence else first_at, attempt, first_at, settled_at, now - first_at,
        None if lease is None else lease - elapsed,
        None if replay < 0 else replay - elapsed,
        None if forget < 0 else forget - elapsed,
        codec, result, error, holder,
    ))
    # fmt: on


def _unpack_spelt(row: bytes, place: int, kind: int, guarantee: int) -> tuple[str, str, str, int]:
    """Kind, guarantee and state, of which some are spelt out, and where that ends."""
    words = [_KIND_OF[kind] if kind else None, _GUARANTEE_OF[guarantee] if guarantee else None]
    words.append(None if row[0] == _OTHER else _STATE_OF[row[0]])
    found = []
    for word in words:
        if word is None:
            word = row[place + 1 : place + 1 + row[place]].decode()
            place += 1 + row[place]
        found.append(word)
    return found[0], found[1], found[2], place


def _unpack_payload(row: bytes, place: int) -> tuple[str | None, bytes | None, bytes | None]:
    what, start = row[place], place + 2
    place = start + row[place + 1]
    codec = row[start:place].decode()
    [size] = _LENGTH_4.unpack_from(row, place)
    place += 4
    if what == _CODEC | _RESULT and not size:  # As nearly every result.
        return codec, row[place:], None
    error, result = row[place : place + size], row[place + size :]
    if len(error) != size:
        raise ValueError("a row that was cut")
    return codec if what & _CODEC else None, result if what & _RESULT else None, error if what & _ERROR else None


class _Shard:
    """The names of one shard's keys, and the parts of commands that are the same for all of its records."""

    __slots__ = ("claim_end", "claim_start", "keys", "old", "peek_start", "put_end", "put_start", "tag")

    def __init__(self, prefix: str, number: int, shards: int) -> None:
        tag = tag_of(prefix, number)
        self.tag = tag.encode()
        self.keys = tuple(f"{tag}{name}".encode() for name in ("shard", "names", "forget", "replay"))
        self.old = tuple(f"{tag}{name}".encode() for name in ("ids", "open", "due", "stale", "families"))
        words = b"$%d\r\n%b\r\n"
        noted = b"%d " % shards
        count = words % (len(noted), noted)
        name = b"$%d\r\n%b" % (len(self.tag) + ID, self.tag)
        call = b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n%d\r\n"
        # EVALSHA, script, number of keys; the keys; four arguments of a claim, five of a put.
        self.claim_start = call % (3 + 3 + 4, CLAIM.sha.encode(), 3) + name
        self.put_start = call % (3 + 5 + 5, PUT.sha.encode(), 5) + name
        self.claim_end = b"\r\n" + b"".join(words % (len(key), key) for key in self.keys[:2]) + count
        self.put_end = b"\r\n" + b"".join(words % (len(key), key) for key in self.keys) + count
        self.peek_start = b"*2\r\n$3\r\nGET\r\n" + name


class PackedRows:
    """The commands of schema version 2."""

    version = 2

    def __init__(self, prefix: str, shards: int, *, moving: bool = False) -> None:
        self.prefix = prefix
        self.shards = shards
        self.moving = moving
        """Whether rows of version 1 may be left: each is packed before anything is done with it."""
        self._shards = [_Shard(prefix, number, shards) for number in range(shards)]
        self._words = tuple(
            "".join(f"\n{word}={number}" for word, number in table.items()) for table in (KINDS, GUARANTEES)
        )

    def shard_of(self, id: bytes) -> int:
        """The shard that an id belongs to: in the order of the ids, by their first two bytes."""
        return ((id[0] << 8 | id[1]) * self.shards) >> 16

    def put(self, write: Write, expect: bytes | None, marks: Sequence[bytes] = ()) -> tuple[RedisCommand, ...]:
        """A put; it does nothing if one of these marks is there."""
        id = write.id
        number = ((id[0] << 8 | id[1]) * self.shards) >> 16
        shard = self._shards[number]
        head, tail = pack_row(write)
        fence = _fence(write)
        if marks or self.moving or len(id) != ID:
            keys = (shard.tag + id, *shard.keys, *(shard.tag + mark for mark in marks))
            expected = b"" if expect is None else b"%c%b" % (len(expect), expect)
            args = (f"{self.shards} ", fence, head, tail, expected)
            put = script_command(number, PUT, keys, *args, version=write.version)
            return (*self.settle_old([id, *marks]), put)
        # fmt: off
        if expect is None and write.state not in _ENDED:
            packed = _CLAIM_COMMAND % (
                shard.claim_start, id, shard.claim_end, len(fence), fence, len(head), head, len(tail), tail,
            )
        else:
            expect = b"" if expect is None else b"%c%b" % (len(expect), expect)
            packed = _PUT_COMMAND % (
                shard.put_start, id, shard.put_end, len(fence), fence, len(head), head, len(tail), tail,
                len(expect), expect,
            )
        # fmt: on
        return (new_tuple(RedisCommand, (number, packed, write.version)),)

    def put_result(self, write: Write, replies: Sequence[Any]) -> PutResult:
        """What a put did, from the script's reply."""
        landed, now, rest = replies[-1]
        if landed:
            return new_tuple(PutResult, (True, record_from_write(write, now=now, fence=int(rest))))  # type: ignore[no-any-return]
        return PutResult(False, None if rest is None else unpack_row(write.id, now, rest))

    def peek(self, id: bytes) -> tuple[RedisCommand, ...]:
        """
        The row and the time, without a script.

        The row is read before the time, so that it is never newer than the time it is judged by.
        """
        number = ((id[0] << 8 | id[1]) * self.shards) >> 16
        shard = self._shards[number]
        args = b"%b%b\r\n" % (shard.peek_start, id) if len(id) == ID else ("GET", shard.tag + id)
        return new_tuple(RedisCommand, (number, args, b"")), RedisCommand(number, TIME)

    def peek_result(self, id: bytes, replies: Sequence[Any]) -> PutResult | None:
        """What a peek found, as the result of a claim that did not land; None if there is no record."""
        row, (seconds, micros) = replies
        if row is None:
            return None
        found = unpack_row(id, int(seconds) * 1_000_000 + int(micros), row)
        return new_tuple(PutResult, (False, found))  # type: ignore[no-any-return]

    def load(self, id: bytes) -> tuple[RedisCommand, ...]:
        """Read one record."""
        return (*self.settle_old([id]), *self.peek(id))

    def load_result(self, id: bytes, replies: Sequence[Any]) -> Record | None:
        """The record that a load found; None if there is none."""
        row, (seconds, micros) = replies[-2:]
        return None if row is None else unpack_row(id, int(seconds) * 1_000_000 + int(micros), row)

    def erase(self, id: bytes) -> tuple[RedisCommand, ...]:
        """Delete a record, whatever its state."""
        return (*self.settle_old([id]), self._on(ERASE, id, id))

    def forget(self, member: bytes) -> RedisCommand:
        """Delete the record that a member of `forget` names, if its time has come."""
        return self._on(FORGET, member[:ID], member[:ID], member[ID:])

    def shrink(self, id: bytes, version: bytes) -> RedisCommand:
        """Make a record a tombstone, if its time has come."""
        return self._on(SHRINK, id, id, version)

    def extend(self, id: bytes, family: bytes, replay: int, forget: int) -> RedisCommand:
        """Give a settled record of a family more time."""
        return self._on(EXTEND, id, id, family, replay, forget)

    def due(self, shard: int, size: int) -> RedisCommand:
        """Members of `forget` and `replay` whose time has come."""
        return script_command(shard, DUE, self._shards[shard].keys[2:], size)

    def ids_after(self, shard: int, after: bytes, size: int, *, unsettled: bool) -> tuple[RedisCommand, ...]:
        """The next ids of a shard."""
        letter, names = b"o" if unsettled else b"i", self._shards[shard].keys[1]
        bounds = (b"(" + letter + after if after else b"[" + letter, b"(" + bytes((letter[0] + 1,)))
        packed = RedisCommand(shard, ("ZRANGEBYLEX", names, *bounds, "LIMIT", 0, size))
        if not self.moving:
            return (packed,)
        old = self._shards[shard].old[1 if unsettled else 0]
        beginning = b"(" + after if after else b"-"
        return packed, script_command(shard, OLD_INDEX, [old], beginning, b"+", size)

    def ids(self, replies: Sequence[Any]) -> list[bytes]:
        """The ids in the replies, in order. Those of version 1 have no letter before them."""
        return sorted({name[-ID:] for reply in replies for name in reply})

    def family(self, shard: int, family: bytes) -> tuple[RedisCommand, ...]:
        """The members of a family in a shard."""
        names, old = self._shards[shard].keys[1], self._shards[shard].old[4]
        bounds = (b"[f" + family, b"(f" + _after(family))
        packed = RedisCommand(shard, ("ZRANGEBYLEX", names, *bounds))
        if not self.moving:
            return (packed,)
        return packed, script_command(shard, OLD_INDEX, [old], b"[" + family, b"(" + _after(family), -1)

    def settle_old(self, ids: Sequence[bytes]) -> list[RedisCommand]:
        """Pack what is left of these records in the form of version 1."""
        return [self.move(id) for id in ids] if self.moving else []

    def move(self, id: bytes) -> RedisCommand:
        """Pack a row of version 1, if there is one."""
        shard = self._shards[self.shard_of(id)]
        old = (shard.tag + id.hex().encode(), *shard.old)
        return script_command(self.shard_of(id), MOVE, (shard.tag + id, *shard.keys, *old), id, *self._words)

    def guards(self, shards: Sequence[int]) -> list[RedisCommand]:
        """There is no later version to leave this one for."""
        return []

    def _on(self, script: Any, id: bytes, *args: Arg) -> RedisCommand:
        """A script on one record and the indexes of its shard."""
        number = self.shard_of(id)
        shard = self._shards[number]
        return script_command(number, script, (shard.tag + id, *shard.keys), *args)


def _after(family: bytes) -> bytes:
    """A bound after every member that begins with a family: ids are shorter than this."""
    return family + b"\xff" * (ID + 1)
