"""Rows of the Redis store, changed behind its back: a server's clock cannot be moved, so stored times are."""

from __future__ import annotations

import struct
from typing import Any

from onceward._core.record import Write
from onceward.stores import _redis_packed_rows as packed


def changed(id: bytes, row: bytes, *, aged: int = 0, settled_too: bool = True, **columns: Any) -> bytes:
    """A packed row with other values in some columns, and all its times so many microseconds earlier."""
    place = 3 + row[1] + row[2 + row[1]]
    [at] = struct.unpack_from(">q", row, place)
    found = packed.unpack_row(id, at, row)
    spans = {"lease": found.lease_left, "replay": found.replay_left, "forget": found.forget_left}
    kept = {name: value for name, value in found._asdict().items() if name in Write._fields}
    write = Write(**{**kept, **spans, "rise": False, **columns})
    settled_at = write.settled_at
    if settled_at is not None and settled_too:
        settled_at -= aged
    head, tail = packed.pack_row(write._replace(first_at=write.first_at - aged, settled_at=settled_at))
    fence = str(write.fence).encode()
    return head + struct.pack(">qB", at - aged, len(fence)) + fence + tail
