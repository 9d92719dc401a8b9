"""
The memory store: a dictionary with a lock, for tests and for trying things out.

It forgets everything when the process ends, so it can prove nothing about crashes; it is the reference for what a
store does. `memory://` opens a new one each time; `memory://name` is shared by everybody in the process who uses
that name.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Self, TypeVar
from urllib.parse import urlsplit

from onceward._core.capabilities import Capabilities
from onceward._core.errors import ConfigurationError
from onceward._core.record import PutResult, Record, State, Write, new_tuple, record_from_write
from onceward._core.store_protocols import PurgeResult, Selection
from onceward.runtime.environment import REAL, Environment
from onceward.stores._store_kinds import StoreKind

T = TypeVar("T")

_UNSETTLED = frozenset((State.CLAIMED.value, State.IN_DOUBT.value))
_shared: dict[str, _Rows] = {}


class _Row:
    """A record as written, with its durations turned into instants on the store's clock."""

    __slots__ = ("fence", "forget_at", "lease_until", "now", "replay_until", "write")

    def __init__(self, write: Write, now: int, fence: int) -> None:
        self.write = write
        self.now = now
        self.fence = fence
        self.lease_until = None if write.lease is None else now + write.lease
        self.replay_until = None if write.replay is None else now + write.replay
        self.forget_at = None if write.forget is None else now + write.forget

    def read(self, now: int) -> Record:
        landed = record_from_write(self.write, now=self.now, fence=self.fence)
        return landed._replace(
            age=now - landed.first_at,
            lease_left=None if self.lease_until is None else self.lease_until - now,
            replay_left=None if self.replay_until is None else self.replay_until - now,
            forget_left=None if self.forget_at is None else self.forget_at - now,
        )


class _Rows:
    """What both colours share."""

    def __init__(self) -> None:
        self.rows: dict[bytes, _Row] = {}
        self.fence_floor = 0
        self.due: list[tuple[int, bytes]] = []
        """A heap of when to look at which record for purging: at the latest when it has something to lose."""
        self.lock = threading.Lock()

    def look_again(self, id: bytes, row: _Row) -> None:
        """Put a record down for the next time at which it has something to lose, if it has ended."""
        if row.write.state in _UNSETTLED:
            return
        shrinks = row.replay_until if _full(row.write) else None
        times = [at for at in (shrinks, row.forget_at) if at is not None]
        if times:
            heappush(self.due, (min(times), id))


class MemoryStore:
    """Records in this process's memory."""

    capabilities = Capabilities(awaits=False, relaxes=True)
    """Settles are relaxed: nothing here is on a disk anyway."""

    def __init__(self, *, environment: Environment = REAL, rows: _Rows | None = None) -> None:
        self._environment = environment
        self._rows = rows if rows is not None else _Rows()

    @classmethod
    def from_url(cls, url: str, *, environment: Environment = REAL) -> Self:
        """Open `memory://` (a new store) or `memory://name` (shared within the process)."""
        parts = urlsplit(url)
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise ConfigurationError("a memory store has no path and no options: memory:// or memory://name")
        return cls(environment=environment, rows=_shared.setdefault(parts.netloc, _Rows()) if parts.netloc else None)

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Write a record if its current version is `expect`; whether it landed, and what is there now."""
        with self._rows.lock:
            return self._put(write, expect, self._environment.wall_us())

    def _put(self, write: Write, expect: bytes | None, now: int) -> PutResult:
        rows = self._rows
        old = rows.rows.get(write.id)
        if (old.write.version if old is not None else None) != expect:
            return PutResult(False, old.read(now) if old is not None else None)
        fence = max(write.fence, now, rows.fence_floor + 1) if write.rise else write.fence
        if not write.first_at:
            write = new_tuple(Write, (*write[:14], now, *write[15:]))
        new = rows.rows[write.id] = _Row(write, now, fence)
        rows.look_again(write.id, new)
        return PutResult(True, record_from_write(write, now=now, fence=fence))

    def put_back(self, write: Write, marks: Sequence[bytes]) -> PutResult:
        """Write a record that the store has lost, unless it is back or one of `marks` is there."""
        rows = self._rows
        with rows.lock:
            now = self._environment.wall_us()
            found = [row for mark in marks if (row := rows.rows.get(mark)) is not None]
            if any(row.forget_at is None or row.forget_at > now for row in found):
                old = rows.rows.get(write.id)
                return PutResult(False, old.read(now) if old is not None else None)
            return self._put(write, None, now)

    def erase(self, ids: Sequence[bytes]) -> int:
        """Delete these records, whatever their state; how many there were."""
        with self._rows.lock:
            gone = [row for id in ids if (row := self._rows.rows.pop(id, None)) is not None]
            self._rows.fence_floor = max([self._rows.fence_floor, *(row.fence for row in gone)])
            return len(gone)

    def load(self, id: bytes) -> Record | None:
        """Read one record; None if there is none."""
        with self._rows.lock:
            row = self._rows.rows.get(id)
            return row.read(self._environment.wall_us()) if row is not None else None

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer; how many there were."""
        with self._rows.lock:
            now = self._environment.wall_us()
            extended = 0
            for row in self._rows.rows.values():
                alive = row.replay_until is not None and row.replay_until > now
                if row.write.family == family and row.write.state == State.SETTLED and alive:
                    row.replay_until = max(row.replay_until or 0, now + replay)
                    row.forget_at = None if row.forget_at is None else max(row.forget_at, now + forget)
                    extended += 1
            return extended

    def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        """One page of records in order of id, beginning after an id."""
        with self._rows.lock:
            now = self._environment.wall_us()
            ids = sorted(id for id, row in self._rows.rows.items() if id > after and _selected(row.write, selection))
            return [self._rows.rows[id].read(now) for id in ids[:limit]]

    def purge(self, limit: int) -> PurgeResult:
        """Delete forgotten records and shrink expired ones to tombstones, at most `limit` of either."""
        rows = self._rows
        with rows.lock:
            now = self._environment.wall_us()
            forgotten = shrunk = 0
            seen: dict[bytes, _Row] = {}
            while rows.due and rows.due[0][0] <= now and (forgotten < limit or shrunk < limit):
                _, id = heappop(rows.due)
                row = rows.rows.get(id)
                if row is None or row.write.state in _UNSETTLED:
                    continue
                if row.forget_at is not None and row.forget_at <= now:
                    if forgotten < limit:
                        forgotten += 1
                        rows.fence_floor = max(rows.fence_floor, rows.rows.pop(id).fence)
                        continue
                elif _shrinkable(row, now) and shrunk < limit:
                    shrunk += 1
                    version = self._environment.random(16)
                    row.write = row.write._replace(codec=None, result=None, error=None, version=version)
                seen[id] = row
            for id, row in seen.items():
                if id in rows.rows:
                    rows.look_again(id, row)
            return PurgeResult(forgotten, shrunk)

    def close(self) -> None:
        """Nothing to let go of."""


class AsyncMemoryStore:
    """Records in this process's memory, for awaiting callers. It never has to wait."""

    capabilities = Capabilities(awaits=True, relaxes=True)

    def __init__(self, *, environment: Environment = REAL, rows: _Rows | None = None) -> None:
        self._store = MemoryStore(environment=environment, rows=rows)

    @classmethod
    def from_url(cls, url: str, *, environment: Environment = REAL) -> Self:
        """Open the store that a URL names."""
        return cls(environment=environment, rows=MemoryStore.from_url(url)._rows)

    def put(self, write: Write, expect: bytes | None) -> asyncio.Future[PutResult]:
        """Write a record if its current version is `expect`; whether it landed, and what is there now."""
        return _ready(self._store.put(write, expect))

    def put_back(self, write: Write, marks: Sequence[bytes]) -> asyncio.Future[PutResult]:
        """Write a record that the store has lost, unless it is back or one of `marks` is there."""
        return _ready(self._store.put_back(write, marks))

    def erase(self, ids: Sequence[bytes]) -> asyncio.Future[int]:
        """Delete these records, whatever their state; how many there were."""
        return _ready(self._store.erase(ids))

    def load(self, id: bytes) -> asyncio.Future[Record | None]:
        """Read one record; None if there is none."""
        return _ready(self._store.load(id))

    def extend(self, family: bytes, replay: int, forget: int) -> asyncio.Future[int]:
        """Let the settled records of a family replay for longer; how many there were."""
        return _ready(self._store.extend(family, replay, forget))

    def scan(self, after: bytes, limit: int, selection: Selection) -> asyncio.Future[list[Record]]:
        """One page of records in order of id, beginning after an id."""
        return _ready(self._store.scan(after, limit, selection))

    def purge(self, limit: int) -> asyncio.Future[PurgeResult]:
        """Delete forgotten records and shrink expired ones to tombstones, at most `limit` of either."""
        return _ready(self._store.purge(limit))

    def close(self) -> asyncio.Future[None]:
        """Nothing to let go of."""
        return _ready(None)


def _ready(value: T) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


def _selected(write: Write, selection: Selection) -> bool:
    return (
        (selection.scope is None or write.scope == selection.scope)
        and (selection.kind is None or write.kind == selection.kind)
        and (not selection.unsettled or write.state in _UNSETTLED)
        and (selection.family is None or write.family == selection.family)
        and (not selection.before or write.id < selection.before)
    )


def _shrinkable(row: _Row, now: int) -> bool:
    expired = row.replay_until is not None and row.replay_until <= now
    return row.write.state == State.SETTLED and expired and _full(row.write)


def _full(write: Write) -> bool:
    return write.codec is not None or write.error is not None


KIND = StoreKind(open=MemoryStore.from_url, open_async=AsyncMemoryStore.from_url, local=True, processes=False)
"""It lives as long as its process, so it needs no upkeep, and nobody else can open it."""
