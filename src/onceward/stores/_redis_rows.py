"""
What every form of rows on Redis has: commands, scripts, shards, and `RowFormat`, the commands of one schema version.

Two schema versions are understood. In version 1 a record is a hash with a field for each part
(`_redis_hash_rows.py`); in version 2 it is one packed text (`_redis_packed_rows.py`). Which one a store has, and how
many shards, is noted on the server: `_redis_schema.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

from onceward._core.record import PutResult, Record, Write
from onceward.stores._redis_packer import Arg, pack_args

SHARDS = 16
"""Unless `store init --shards` chose another number; always in version 1."""
ID = 32
"""Bytes of a record's id."""
TIME = pack_args(("TIME",))
"""The server's time, as it is asked for."""


class RedisCommand(NamedTuple):
    """One command, and the shard whose server it is for."""

    shard: int
    args: tuple[Arg, ...] | bytes
    """The words, or the command as it is sent."""
    version: bytes = b""
    """The version that a put writes, which may have to be confirmed by replicas; empty: it is no put."""


class LuaScript(NamedTuple):
    """A script and the name the server knows it by."""

    text: str
    sha: str


def load_script(*names: str) -> LuaScript:
    """The text of several files, one after the other, as one script."""
    folder = files("onceward.stores") / "lua"
    text = "\n".join(folder.joinpath(*f"{one}.lua".split("/")).read_text(encoding="utf-8") for one in names)
    return LuaScript(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def script_command(
    shard: int, script: LuaScript, keys: Sequence[Arg], *args: Arg, version: bytes = b""
) -> RedisCommand:
    """A command that runs a script."""
    return RedisCommand(shard, ("EVALSHA", script.sha, len(keys), *keys, *args), version)


@cache
def tag_of(prefix: str, shard: int) -> str:
    """What the names of all keys of a shard begin with. The part in braces decides the slot in a Cluster."""
    return f"{{{prefix}:{shard:x}}}:"


class RowFormat(Protocol):
    """
    The commands of one schema version, and how their replies are read.

    A put, a load or a peek may be several commands; the replies to all of them are handed to what reads them.
    """

    version: int
    shards: int
    prefix: str

    def shard_of(self, id: bytes) -> int:
        """The shard that an id belongs to. Shards are in the order of their ids."""

    def put(self, write: Write, expect: bytes | None, marks: Sequence[bytes] = ()) -> tuple[RedisCommand, ...]:
        """A put, which does nothing if one of these marks is there."""

    def put_result(self, write: Write, replies: Sequence[Any]) -> PutResult:
        """What it did."""

    def peek(self, id: bytes) -> tuple[RedisCommand, ...]:
        """A look at a record without a script, which costs the server far less: its row, and then the time."""

    def peek_result(self, id: bytes, replies: Sequence[Any]) -> PutResult | None:
        """What it found, as the result of a claim that did not land; None if there is no record."""

    def load(self, id: bytes) -> tuple[RedisCommand, ...]:
        """Read one record."""

    def load_result(self, id: bytes, replies: Sequence[Any]) -> Record | None:
        """The record, or None."""

    def erase(self, id: bytes) -> tuple[RedisCommand, ...]:
        """Delete a record, whatever its state; the last reply is how many there were."""

    def forget(self, member: bytes) -> RedisCommand:
        """Delete the record that a member of the index of what is to be forgotten names, if its time has come."""

    def shrink(self, id: bytes, version: bytes) -> RedisCommand:
        """Make a record a tombstone, if its time has come."""

    def extend(self, id: bytes, family: bytes, replay: int, forget: int) -> RedisCommand:
        """Give a settled record of a family more time."""

    def due(self, shard: int, size: int) -> RedisCommand:
        """At most so many members of the indexes of what is to be forgotten and to be shrunk, whose time has come."""

    def ids_after(self, shard: int, after: bytes, size: int, *, unsettled: bool) -> tuple[RedisCommand, ...]:
        """The next ids of a shard."""

    def ids(self, replies: Sequence[Any]) -> list[bytes]:
        """The ids in the replies, in order."""

    def family(self, shard: int, family: bytes) -> tuple[RedisCommand, ...]:
        """The members of a family in a shard: each ends with an id."""

    def settle_old(self, ids: Sequence[bytes]) -> list[RedisCommand]:
        """What has to be sent before anything is done with these records, if rows of an older form may be left."""

    def guards(self, shards: Sequence[int]) -> list[RedisCommand]:
        """Commands that fail if these shards have left this version behind, for calls that would not notice."""
