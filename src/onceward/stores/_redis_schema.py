"""
What is noted about a Redis store: its schema version and its number of shards; and the move from version 1 to 2.

`{onceward:0}:schema` holds `1`, or `2`, the number of shards and, while rows of version 1 may be left, `moving`. A
store without it is empty, and made with sixteen shards, or was made by version 1, which did not need it.

The number is chosen once (`onceward store init --shards`) and never changes: ids are spread by it. Each shard has it
noted, too, and a put is refused where the two differ.

How a store moves, while processes of both versions run:

1. As long as it is of version 1, this version writes it as the one before did.
2. `onceward store migrate` notes `moving`, then shuts version 1 out of one shard after the other. From then on no put
   of an older process lands. One of this version that had not heard of it is refused in the same way, reads the note
   again and sends its put again, packed.
3. Rows are packed when they are touched, and by the migration, page by page. Each is one script: it is in one form or
   in the other, whenever the migration is killed. Run again, it goes on.
4. When none is left, `moving` is taken out of the note. Processes that saw it go on looking for old rows until they
   connect again.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from onceward._core.errors import ConfigurationError, SchemaMismatch
from onceward.stores._redis_hash_rows import INDEXES, HashRows
from onceward.stores._redis_packed_rows import OLD_INDEX, PackedRows
from onceward.stores._redis_rows import SHARDS, RedisCommand, RowFormat, load_script, script_command, tag_of

LATEST = 2
"""The form of records that this code writes."""
SHARDS_MAX = 1_024
"""More would only make a purge and a list of all records ask more."""
PAGE = 200
"""Rows that a migration packs in one round trip: a few milliseconds of the server's time."""

_META = load_script("meta")
_LEGACY = load_script("legacy")
_SHARD = load_script("now", "decimals", "fences", "traces", "shard")
_FINISH = load_script("finish")
SCRIPTS = (_META, _LEGACY, _SHARD, _FINISH)

T = TypeVar("T")
Steps = Generator[list[RedisCommand], list[Any], T]


def marker(prefix: str) -> str:
    """Where it is noted."""
    return f"{tag_of(prefix, 0)}schema"


def read(prefix: str) -> Steps[RowFormat | None]:
    """The form of the rows; None if there is no store yet. Nothing is changed."""
    [found] = yield [_meta(prefix)]
    if found:
        return _parse(prefix, found)
    legacy = yield [
        script_command(shard, _LEGACY, [f"{tag_of(prefix, shard)}{name}" for name in ("ids", "floor")])
        for shard in range(SHARDS)
    ]
    return HashRows(prefix) if any(legacy) else None


def learn(prefix: str, *, repair: bool = False) -> Steps[RowFormat]:
    """The form of the rows; a store that is not there is made. `repair`: a shard was not ready."""
    rows = yield from read(prefix)
    if rows is None:
        rows = yield from create(prefix, SHARDS)
    elif repair and isinstance(rows, PackedRows):
        yield from _make_shards(rows)
    return rows


def create(prefix: str, shards: int) -> Steps[RowFormat]:
    """Make a store with so many shards; what is there, if somebody else was quicker."""
    if not 1 <= shards <= SHARDS_MAX:
        raise ConfigurationError(f"a store has 1 to {SHARDS_MAX} shards, not {shards}")
    [found] = yield [_meta(prefix, b"", _note(shards))]
    rows = _parse(prefix, found)
    if isinstance(rows, PackedRows):
        has_old = yield from _make_shards(rows)
        if has_old and not rows.moving:
            # A process of version 1 was at work at the same moment: its rows are packed when they are touched.
            if rows.shards != SHARDS:
                raise SchemaMismatch(
                    f"a process of an older version writes to this store, in {SHARDS} shards; stop it, delete the keys "
                    f"that begin with {{{prefix}: and run `onceward store init` again"
                )
            [found] = yield [_meta(prefix, _note(SHARDS), _note(SHARDS, moving=True))]
            rows = _parse(prefix, found)
    return rows


def migrate(prefix: str) -> Steps[None]:
    """Bring every row into the form of version 2. It may be killed at any step and run again."""
    rows = yield from learn(prefix)
    if isinstance(rows, HashRows):
        [before] = yield [_meta(prefix)]
        [found] = yield [_meta(prefix, before, _note(SHARDS, moving=True))]
        rows = _parse(prefix, found)
    if not isinstance(rows, PackedRows) or not rows.moving:
        return
    yield from _make_shards(rows)
    old = HashRows(prefix)
    for shard in range(SHARDS):
        while True:
            [ids] = yield [script_command(shard, OLD_INDEX, [old.key(shard, "ids")], b"-", b"+", PAGE)]
            if not ids:
                [done] = yield [script_command(shard, _FINISH, [old.key(shard, name) for name in INDEXES[:-1]])]
                if done:
                    break
                continue
            yield [rows.move(id) for id in ids]
    yield [_meta(prefix, _note(SHARDS, moving=True), _note(SHARDS))]


def left_to_move(prefix: str) -> Steps[int]:
    """How many rows of version 1 there are."""
    old = HashRows(prefix)
    counts = yield [script_command(shard, OLD_INDEX, [old.key(shard, "ids")]) for shard in range(SHARDS)]
    return sum(counts)


def _make_shards(rows: PackedRows) -> Steps[bool]:
    """Make every shard ready and shut version 1 out of it; whether it has left rows there."""
    count = str(rows.shards)
    commands = [
        script_command(
            shard,
            _SHARD,
            [f"{tag_of(rows.prefix, shard)}{name}" for name in ("shard", "floor", "ids")],
            count if shard < rows.shards else "",
        )
        for shard in range(max(SHARDS, rows.shards))
    ]
    # The first alone: if it says another number, nothing is to be changed.
    [first] = yield commands[:1]
    replies = [first]
    if first[0].decode() == count:
        replies += yield commands[1:]
    for shard, (noted, _) in enumerate(replies[: rows.shards]):
        if noted.decode() != count:
            raise SchemaMismatch(
                f"the store's note says {count} shards, and shard {shard:x} says {noted.decode()}: someone "
                f"has changed {marker(rows.prefix)}. The number never changes: write back the one that the shards have"
            )
    return any(old for _, old in replies)


def _meta(prefix: str, *change: bytes) -> RedisCommand:
    return script_command(0, _META, [marker(prefix)], *change)


def _note(shards: int, *, moving: bool = False) -> bytes:
    return b"%d %d%b" % (LATEST, shards, b" moving" if moving else b"")


def _parse(prefix: str, found: bytes) -> RowFormat:
    """The form that is noted; refused if it is not one that this code knows."""
    match found.split():
        case [b"1"]:
            return HashRows(prefix)
        case [b"2", shards] if _is_count(shards):
            return PackedRows(prefix, int(shards))
        case [b"2", shards, b"moving"] if shards == b"%d" % SHARDS:
            return PackedRows(prefix, SHARDS, moving=True)
        case [b"2", *_]:
            raise SchemaMismatch(
                f"{marker(prefix)} does not say how many shards the store has ({_shown(found)}): someone has "
                f"changed it. It is 2 and the number, from 1 to {SHARDS_MAX}, that `onceward store init` was given"
            )
    raise SchemaMismatch(
        f"the records have schema version {_shown(found)}, this Onceward knows version {LATEST}: upgrade it (pip "
        f"install -U)"
    )


def _is_count(word: bytes) -> bool:
    return word.isdigit() and 1 <= int(word) <= SHARDS_MAX


def _shown(found: bytes) -> str:
    return repr(found.decode(errors="replace")[:20])
