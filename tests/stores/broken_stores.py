"""
Stores that are wrong in one way each, so that the conformance suite can be shown to notice.

Each is a memory store with one method spoiled, and has a factory of the same name in small letters.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

from onceward.stores import Purged, Record, Standing, Write
from onceward.stores.memory import AsyncMemoryStore, MemoryStore, _Row, _Rows


class Sound(MemoryStore):
    """Nothing is wrong with this one."""


class Upserting(MemoryStore):
    """Overwrites what stands there when nothing was expected."""

    def put(self, write: Write, expect: bytes | None) -> Standing:
        if expect is None:
            self._rows.rows.pop(write.id, None)
        return super().put(write, expect)


class TokenComparing(MemoryStore):
    """Lets whoever owns the record replace it, whichever version of it they read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._tokens: dict[bytes | None, bytes] = {}

    def put(self, write: Write, expect: bytes | None) -> Standing:
        self._tokens[write.version] = write.token
        stands = self.load(write.id)
        if stands is not None and self._tokens.get(expect) == stands.token:
            expect = stands.version
        return super().put(write, expect)


class FingerprintDropping(MemoryStore):
    """Forgets what the key stood for as soon as it is settled or released."""

    def put(self, write: Write, expect: bytes | None) -> Standing:
        return super().put(write if expect is None else write._replace(fingerprint=b"\x01" + bytes(32)), expect)


class Unfenced(MemoryStore):
    """Takes the fence as it comes."""

    def put(self, write: Write, expect: bytes | None) -> Standing:
        return super().put(write._replace(rise=False), expect)


class FenceForgetting(MemoryStore):
    """Does not remember the fences of the rows that it purges."""

    def purge(self, limit: int) -> Purged:
        purged = super().purge(limit)
        self._rows.fence_floor = 0
        return purged


class OverPurging(MemoryStore):
    """Purges whatever is past its time, whatever became of it."""

    def purge(self, limit: int) -> Purged:
        now = self._environment.wall_us()
        for id, row in list(self._rows.rows.items()):
            if row.forget_at is not None and row.forget_at <= now:
                del self._rows.rows[id]
        return super().purge(limit)


class Resurrecting(MemoryStore):
    """Puts back whatever is gone, erased or not."""

    def put_back(self, write: Write, marks: Sequence[bytes]) -> Standing:
        return super().put_back(write, ())


class LookingForMarksFirst(MemoryStore):
    """Looks for the marks, and puts back in another step; where two race, an erasure slips in between."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._looked, self._erased = threading.Event(), threading.Event()

    def put(self, write: Write, expect: bytes | None) -> Standing:
        if write.kind == "erasure":
            self._meet(self._looked)
        return super().put(write, expect)

    def erase(self, ids: Sequence[bytes]) -> int:
        erased = super().erase(ids)
        self._erased.set()
        return erased

    def put_back(self, write: Write, marks: Sequence[bytes]) -> Standing:
        now = self._environment.wall_us()
        found = [row for mark in marks if (row := self._rows.rows.get(mark)) is not None]
        self._looked.set()
        if any(row.forget_at is None or row.forget_at > now for row in found):
            return Standing(False, self.load(write.id))
        self._meet(self._erased)
        return super().put_back(write, ())

    def _meet(self, event: threading.Event) -> None:
        if threading.current_thread() is not threading.main_thread():
            event.wait(10)


class FenceErasing(MemoryStore):
    """Does not remember the fences of the rows that it erases."""

    def erase(self, ids: Sequence[bytes]) -> int:
        floor = self._rows.fence_floor
        erased = super().erase(ids)
        self._rows.fence_floor = floor
        return erased


class Stale(MemoryStore):
    """Shows a loser what stood there before the winner."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._before: dict[bytes, Record | None] = {}

    def put(self, write: Write, expect: bytes | None) -> Standing:
        before = self.load(write.id)
        standing = super().put(write, expect)
        if standing.landed:
            self._before[write.id] = before
            return standing
        return Standing(False, self._before.get(write.id) or standing.record)


class CallersClock(MemoryStore):
    """Works out what is left of a lease on the clock of the process that asks."""

    def load(self, id: bytes) -> Record | None:
        with self._rows.lock:
            row = self._rows.rows.get(id)
            return row.read(time.time_ns() // 1000) if row is not None else None


class BatchLosing(MemoryStore):
    """Gathers puts, and answers for one that it never wrote."""

    _puts = 0

    def put(self, write: Write, expect: bytes | None) -> Standing:
        self._puts += 1
        if self._puts % 47 or expect is not None:
            return super().put(write, expect)
        now = self._environment.wall_us()
        return Standing(True, _Row(write._replace(first_at=now), now, now).read(now))


class CheckingFirst(MemoryStore):
    """Looks whether the place is free, and then takes it."""

    def put(self, write: Write, expect: bytes | None) -> Standing:
        free = self.load(write.id) is None
        time.sleep(0.001)
        if free and expect is None:
            self._rows.rows.pop(write.id, None)
        return super().put(write, expect)


class DriversOwn(MemoryStore):
    """Lets its driver's exception through once it is closed."""

    _closed = False

    def load(self, id: bytes) -> Record | None:
        if self._closed:
            raise ValueError("Cannot operate on a closed database.")
        return super().load(id)

    def close(self) -> None:
        self._closed = True


class HalfWriting:
    """Awaits in the middle of a write."""

    def __init__(self, **options: Any) -> None:
        self._rows = _Rows()
        self._store = AsyncMemoryStore(rows=self._rows, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put(self, write: Write, expect: bytes | None) -> Standing:
        standing = await self._store.put(write._replace(operation="half"), expect)
        if not standing.landed:
            return standing
        await asyncio.sleep(0)
        row = self._rows.rows[write.id]
        row.write = row.write._replace(operation=write.operation)
        return standing._replace(record=standing.record._replace(operation=write.operation))


def _factory(broken: Any, offered: str) -> Any:
    def factory(colour: str, environment: Any) -> Any:
        return broken(environment=environment) if colour == offered else None

    factory.__name__ = broken.__name__
    return factory


FACTORIES = {
    broken.__name__.lower(): _factory(broken, "blocking")
    for broken in MemoryStore.__subclasses__()
    if broken.__module__ == __name__
}
FACTORIES["halfwriting"] = _factory(HalfWriting, "awaiting")
globals().update(FACTORIES)
