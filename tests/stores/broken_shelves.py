"""
More stores that are wrong in one way each, as `broken_stores.py` has them: what they spoil is the page's store in a
file, for a second handle, under a race, or on the clock of whoever asks.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import shelf

from onceward.stores import (
    AwaitedTransaction,
    Capabilities,
    PurgeResult,
    PutResult,
    Record,
    Selection,
    StoreKind,
    Write,
)
from onceward.testing.store_suite import Candidate

Shelf: Any = shelf.Shelf


class Remembering(Shelf):
    """Shows again what it has read before, until it writes there itself."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._read: dict[bytes, Record] = {}

    def load(self, id: bytes) -> Record | None:
        found = self._read.get(id) or super().load(id)
        if found is not None:
            self._read[id] = found
        return found

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        standing = super().put(write, expect)
        if standing.landed:
            self._read.pop(write.id, None)
        return standing

    def erase(self, ids: Sequence[bytes]) -> int:
        self._read.clear()
        return int(super().erase(ids))

    def purge(self, limit: int) -> PurgeResult:
        self._read.clear()
        return super().purge(limit)  # type: ignore[no-any-return]


class LimitingFirst(Shelf):
    """Takes as many records as asked for, and then selects among them."""

    def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        found = super().scan(after, limit, Selection())
        return [
            one
            for one in found
            if selection.scope in (None, one.scope)
            and selection.kind in (None, one.kind)
            and (not selection.unsettled or one.state in ("claimed", "in_doubt"))
        ]


class DriversKinds(Shelf):
    """Gives back bytes as its driver does."""

    def load(self, id: bytes) -> Record | None:
        found: Record | None = super().load(id)
        return found if found is None else found._replace(fingerprint=memoryview(found.fingerprint))  # type: ignore[arg-type]


class PurgingLate(Shelf):
    """Looks for what may go, and deletes or shrinks it in another step; where two race, a claim slips in between."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._looked, self._claimed = threading.Event(), threading.Event()

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        races = threading.current_thread() is not threading.main_thread()
        if races:
            self._looked.wait(10)
        standing: PutResult = super().put(write, expect)
        if races:
            self._looked.clear()
            self._claimed.set()
        return standing

    def purge(self, limit: int) -> PurgeResult:
        if threading.current_thread() is threading.main_thread():
            return super().purge(limit)  # type: ignore[no-any-return]
        asked = {"now": self.now(), "limit": limit}
        gone = "SELECT id FROM shelf WHERE state IN ('settled', 'released') AND forget_at <= :now LIMIT :limit"
        full = """SELECT id FROM shelf WHERE state = 'settled' AND replay_until <= :now AND forget_at > :now
            AND codec IS NOT NULL LIMIT :limit"""
        with self.transaction() as (cursor, _):
            due, expired = ([id for (id,) in cursor.execute(found, asked).fetchall()] for found in (gone, full))
        self._looked.set()
        self._claimed.wait(10)
        self._claimed.clear()
        with self.transaction() as (cursor, _):
            for id in expired:
                version = self._environment.random(16)
                cursor.execute("UPDATE shelf SET codec = NULL, result = NULL, version = ? WHERE id = ?", (version, id))
            return PurgeResult(shelf.delete(cursor, due), len(expired))


# Wrong on the caller's connection.

Joined: Any = shelf.JoinedShelf


class CommittingForOthers(Shelf):
    """Ends the caller's transaction with its own part of it."""

    class Joined(Joined):
        """Commits whatever is open."""

        def commit(self) -> None:
            super().commit()
            self._connection.commit()


class UndoingForOthers(Shelf):
    """Undoes the caller's transaction with its own part of it."""

    class Joined(Joined):
        """Rolls back whatever is open."""

        def rollback(self) -> bool:
            undone = super().rollback()
            self._connection.rollback()
            return bool(undone)


class NotLooking(Shelf):
    """Does not notice that its transaction is over."""

    class Joined(Joined):
        """Goes on in the next one."""

        def _check_is_open(self) -> None:
            """Takes it for granted."""

        def commit(self) -> None:
            _, opened = self._opened.pop()
            if opened:
                self._connection.commit()


class Joins:
    """Joins as the store's own class does."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def join(self, connection: Any) -> Any:
        return self._store.Joined(connection, self._store)

    def join_async(self, connection: Any) -> Any:
        return AwaitedTransaction(self.join(connection))


for _broken in (CommittingForOthers, UndoingForOthers, NotLooking):
    _broken.capabilities = property(lambda self: Capabilities(awaits=False, joins=Joins(self)))


# Said to be a server's: its clock is SQLite's, which no clock of Python's touches, but for one thing each.


class OnAServer(Shelf):
    """Nothing is wrong with this one."""

    def now(self) -> int:
        with closing(sqlite3.connect(":memory:")) as server:
            [(seconds,)] = server.execute("SELECT julianday('now') - 2440587.5").fetchall()
            return round(seconds * 86_400_000) * 1_000

    def on_the_callers_clock(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self.now = lambda: time.time_ns() // 1_000
        try:
            return call(*arguments)
        finally:
            del self.now


class RetainingByTheCaller(OnAServer):
    """Works out on the caller's clock when an answer is to be forgotten."""

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        off = time.time_ns() // 1_000 - self.now()
        lives = {name: None if (life := getattr(write, name)) is None else life + off for name in ("replay", "forget")}
        return super().put(write._replace(**lives), expect)  # type: ignore[no-any-return]


class SettlingByTheCaller(OnAServer):
    """Takes the caller's word for when it was settled."""

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        at = time.time_ns() // 1_000 if write.settled_at == 0 else write.settled_at
        return super().put(write._replace(settled_at=at), expect)  # type: ignore[no-any-return]


class PurgingByTheCaller(OnAServer):
    """Purges what the caller's clock says is due."""

    def purge(self, limit: int) -> PurgeResult:
        return self.on_the_callers_clock(super().purge, limit)  # type: ignore[no-any-return]


class ExtendingByTheCaller(OnAServer):
    """Extends from the caller's now."""

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        return self.on_the_callers_clock(super().extend, family, replay, forget)  # type: ignore[no-any-return]


class MarkingByTheCaller(OnAServer):
    """Asks the caller's clock whether a mark still counts."""

    def put_back(self, write: Write, marks: Sequence[bytes]) -> PutResult:
        return self.on_the_callers_clock(super().put_back, write, marks)  # type: ignore[no-any-return]


class ScanningByTheCaller(OnAServer):
    """Shows on a page what is left by the caller's clock."""

    def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        return self.on_the_callers_clock(super().scan, after, limit, selection)  # type: ignore[no-any-return]


def _candidate(broken: Any) -> Candidate:
    kind = StoreKind(open=broken.from_url, local=not issubclass(broken, OnAServer))
    url = "shelf:///{tmp}/shelf.db"
    return Candidate(
        kind=kind, url=url, no_line="a file has no line", connect=lambda of: sqlite3.connect(shelf.path_of(of))
    )


CANDIDATES = {
    one.__name__.lower(): _candidate(one)
    for one in list(globals().values())
    if isinstance(one, type) and issubclass(one, Shelf) and one is not Shelf
}
globals().update(CANDIDATES)
