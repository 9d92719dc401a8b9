"""
Stores that are wrong in one way each, so that the conformance suite can be shown to notice.

Each is a sound store with something spoiled (one in memory; one in memory, reached over a line; one in a file, which
other processes open), and has a `Candidate` of the same name in small letters.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from unicodedata import normalize

import shelf

from onceward import StoreUnavailable
from onceward.stores import Capabilities, PurgeResult, PutResult, Record, Selection, StoreKind, Write
from onceward.stores.memory import AsyncMemoryStore, MemoryStore, _Row, _Rows
from onceward.testing.store_suite import Candidate

Shelf: Any = shelf.Shelf


class Sound(MemoryStore):
    """Nothing is wrong with this one."""


class Upserting(MemoryStore):
    """Overwrites what stands there when nothing was expected."""

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        if expect is None:
            self._rows.rows.pop(write.id, None)
        return super().put(write, expect)


class TokenComparing(MemoryStore):
    """Lets whoever owns the record replace it, whichever version of it they read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._tokens: dict[bytes | None, bytes] = {}

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        self._tokens[write.version] = write.token
        stands = self.load(write.id)
        if stands is not None and self._tokens.get(expect) == stands.token:
            expect = stands.version
        return super().put(write, expect)


class FingerprintDropping(MemoryStore):
    """Forgets what the key stood for as soon as it is settled or released."""

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        return super().put(write if expect is None else write._replace(fingerprint=b"\x01" + bytes(32)), expect)


class Unfenced(MemoryStore):
    """Takes the fence as it comes."""

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        return super().put(write._replace(rise=False), expect)


class FenceForgetting(MemoryStore):
    """Does not remember the fences of the rows that it purges."""

    def purge(self, limit: int) -> PurgeResult:
        purged = super().purge(limit)
        self._rows.fence_floor = 0
        return purged


class OverPurging(MemoryStore):
    """Purges whatever is past its time, whatever became of it."""

    def purge(self, limit: int) -> PurgeResult:
        now = self._environment.wall_us()
        for id, row in list(self._rows.rows.items()):
            if row.forget_at is not None and row.forget_at <= now:
                del self._rows.rows[id]
        return super().purge(limit)


class Resurrecting(MemoryStore):
    """Puts back whatever is gone, erased or not."""

    def put_back(self, write: Write, marks: Sequence[bytes]) -> PutResult:
        return super().put_back(write, ())


class LookingForMarksFirst(MemoryStore):
    """Looks for the marks, and puts back in another step; where two race, an erasure slips in between."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._looked, self._erased = threading.Event(), threading.Event()

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        if write.kind == "erasure":
            self._meet(self._looked)
        return super().put(write, expect)

    def erase(self, ids: Sequence[bytes]) -> int:
        erased = super().erase(ids)
        self._erased.set()
        return erased

    def put_back(self, write: Write, marks: Sequence[bytes]) -> PutResult:
        now = self._environment.wall_us()
        found = [row for mark in marks if (row := self._rows.rows.get(mark)) is not None]
        self._looked.set()
        if any(row.forget_at is None or row.forget_at > now for row in found):
            return PutResult(False, self.load(write.id))
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

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        before = self.load(write.id)
        standing = super().put(write, expect)
        if standing.landed:
            self._before[write.id] = before
            return standing
        return PutResult(False, self._before.get(write.id) or standing.record)


class CallersClock(MemoryStore):
    """Works out what is left of a lease on the clock of the process that asks."""

    def load(self, id: bytes) -> Record | None:
        with self._rows.lock:
            row = self._rows.rows.get(id)
            return row.read(time.time_ns() // 1000) if row is not None else None


class BatchLosing(MemoryStore):
    """Gathers puts, and answers for one that it never wrote."""

    _puts = 0

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        self._puts += 1
        if self._puts % 47 or expect is not None:
            return super().put(write, expect)
        now = self._environment.wall_us()
        return PutResult(True, _Row(write._replace(first_at=now), now, now).read(now))


class CheckingFirst(MemoryStore):
    """Looks whether the place is free, and then takes it."""

    def put(self, write: Write, expect: bytes | None) -> PutResult:
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

    def __init__(self, *, rows: _Rows, **options: Any) -> None:
        self._rows = rows
        self._store = AsyncMemoryStore(rows=self._rows, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put(self, write: Write, expect: bytes | None) -> PutResult:
        standing = await self._store.put(write._replace(operation="half"), expect)
        if not standing.landed:
            return standing
        await asyncio.sleep(0)
        row = self._rows.rows[write.id]
        row.write = row.write._replace(operation=write.operation)
        return standing._replace(record=standing.record._replace(operation=write.operation))


# Wrong only for a second handle or another process, or on files: spoiled copies of the store in a file.


class LockPerProcess(Shelf):
    """Keeps two from winning by a lock, which other processes do not have, and by no constraint."""

    _lock = threading.Lock()

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        with self._lock:
            found = self.load(write.id)
            if (found.version if found is not None else None) != expect:
                return PutResult(False, found)
            time.sleep(0.002)
            with self.transaction() as (cursor, now):
                cursor.execute("DELETE FROM shelf WHERE id = ?", (write.id,))
                return shelf.put(cursor, write, None, now)


class ClockOfTheProcess(Shelf):
    """Is said to be a server's, and takes the time from whichever process asks."""

    def now(self) -> int:
        return time.time_ns() // 1000


class ClockOfTheEnvironment(Shelf):
    """Is said to be a server's, and takes the time from what it was given."""


class FenceInTheHandle(Shelf):
    """Remembers the fences that it deletes, but nobody else does."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._floor = 0

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        if write.rise:
            write = write._replace(fence=max(write.fence, self._floor + 1))
        return super().put(write, expect)

    def purge(self, limit: int) -> PurgeResult:
        with self.transaction() as (cursor, _):
            self._floor = max(self._floor, *cursor.execute("SELECT coalesce(max(fence), 0) FROM shelf").fetchone())
        purged = super().purge(limit)
        with self.transaction() as (cursor, _):
            cursor.execute("UPDATE shelf_floor SET fence = 0")
        return purged


class LettingThrough(Shelf):
    """Lets its driver's exceptions through."""

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
            yield connection


class AlikeIsTheSame(Shelf):
    """Compares text as people read it: as MySQL does, unless it is told otherwise."""

    def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        found = super().scan(after, 1000, selection._replace(scope=None, kind=None))
        same = [
            one
            for one in found
            if (selection.scope is None or _folded(one.scope) == _folded(selection.scope))
            and (selection.kind is None or _folded(one.kind) == _folded(selection.kind))
        ]
        return same[:limit]


class Normalising(Shelf):
    """Stores text in the normal form."""

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        texts = {name: normalize("NFC", getattr(write, name)) for name in ("scope", "key", "operation")}
        return super().put(write._replace(**texts), expect)


class Uncomparing(Shelf):
    """Takes versions for text, in which small letters and large ones are the same."""

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        stands = None if expect is None else self.load(write.id)
        if stands is not None and expect is not None and stands.version.lower() == expect.lower():
            expect = stands.version
        return super().put(write, expect)


class OfTheOtherColour(Shelf):
    """Blocks, and says that it awaits."""

    capabilities = Capabilities(awaits=True)


def _folded(text: str) -> str:
    return normalize("NFKD", text).casefold().rstrip()


# Wrong only when the server is away: a store in memory behind a line that can be cut.


class Wire:
    """A line to a store that is none."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True

    def restore(self) -> None:
        self.is_cut = False


_wires: dict[str, Wire] = {}


@contextmanager
def wire(url: str) -> Iterator[Wire]:
    """The line to the store of that URL."""
    yield _wires.setdefault(url, Wire(url))


class Remote:
    """Nothing is wrong with this one: away is `StoreUnavailable`, and it goes on when the server is back."""

    def __init__(self, *, environment: Any, rows: Any, url: str) -> None:
        self._store = MemoryStore(environment=environment, rows=rows)
        self._wire = _wires.setdefault(url, Wire(url))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in ("capabilities", "close"):
            return found

        def call(*arguments: Any) -> Any:
            if self._wire.is_cut:
                raise self.away()
            return found(*arguments)

        return call

    def away(self) -> Exception:
        return StoreUnavailable("the server is away")


class Leaking(Remote):
    """Lets the driver say that the server is away."""

    def away(self) -> Exception:
        return ConnectionResetError("Connection reset by peer")


class LeakingAtTheEnd(Remote):
    """Lets the driver speak when it is closed."""

    def close(self) -> None:
        if self._wire.is_cut:
            raise ConnectionResetError("Connection reset by peer")


class LeakingAtTheDoor(Remote):
    """Lets the driver speak when it is opened."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self._wire.is_cut:
            raise ConnectionRefusedError("Connection refused")


class NeverBack(Remote):
    """Has to be opened again when the server was away."""

    def away(self) -> Exception:
        self._wire = Wire("another")
        self._wire.cut()
        return super().away()


class AnsweringEarly(Remote):
    """Answers before the server has it; what was under way when the line was cut is lost."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._sent: list[bytes] = []

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        if self._wire.is_cut:
            self._store.erase(self._sent)
            raise self.away()
        self._sent = [*self._sent[-3:], write.id]
        return self._store.put(write, expect)


# What the suite is told about them.

_rows: dict[str, _Rows] = {}


def _in_memory(broken: Any) -> Candidate:
    def opened(url: str, *, environment: Any) -> Any:
        return broken(environment=environment, rows=_rows.setdefault(url, _Rows()))

    return Candidate(kind=StoreKind(open=opened, local=True, processes=False), url=f"{broken.__name__}://{{fresh}}")


def _behind_a_wire(broken: Any) -> Candidate:
    def opened(url: str, *, environment: Any) -> Any:
        return broken(environment=environment, rows=_rows.setdefault(url, _Rows()), url=url)

    kind = StoreKind(open=opened, local=True, processes=False)
    return Candidate(kind=kind, url=f"{broken.__name__}://{{fresh}}", line=wire)


def _half_writing(url: str, *, environment: Any) -> Any:
    return HalfWriting(environment=environment, rows=_rows.setdefault(url, _Rows()))


def _in_a_file(broken: Any) -> Candidate:
    local = broken not in (ClockOfTheProcess, ClockOfTheEnvironment)
    kind = StoreKind(open=broken.from_url, local=local)
    connect = None if broken is OfTheOtherColour else _connected
    return Candidate(kind=kind, url="shelf:///{tmp}/shelf.db", connect=connect, no_line="a file has no line")


def _connected(url: str) -> sqlite3.Connection:
    return sqlite3.connect(shelf.path_of(url))


def _ours(base: type) -> list[type]:
    return [one for one in base.__subclasses__() if one.__module__ == __name__]


def function(colour: str, environment: Any) -> Any:
    """A sound store, of which no second handle can be opened."""
    return MemoryStore(environment=environment) if colour == "blocking" else None


CANDIDATES = {
    **{broken.__name__.lower(): _in_memory(broken) for broken in _ours(MemoryStore)},
    **{broken.__name__.lower(): _behind_a_wire(broken) for broken in (Remote, *_ours(Remote))},
    **{broken.__name__.lower(): _in_a_file(broken) for broken in _ours(Shelf)},
    "halfwriting": Candidate(
        kind=StoreKind(open_async=_half_writing, local=True, processes=False), url="HalfWriting://{fresh}"
    ),
}
globals().update(CANDIDATES)
