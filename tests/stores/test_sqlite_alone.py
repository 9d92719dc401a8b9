"""A caller who finds nobody under way goes past the queue, and owes the others what everybody in it owes them."""

from __future__ import annotations

import linecache
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from sqlite_support import Clock, claimed, in_thread, key, settled, until

from onceward._core.errors import StoreUnavailable
from onceward.stores import _sqlite_database
from onceward.stores.sqlite import SqliteStore


class HeldClock(Clock):
    """A clock that can be made to wait: whoever reads it has the lead."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def wall_us(self) -> int:
        self.read.set()
        assert self.go_on.wait(60)
        return super().wall_us()


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def store(tmp_path: Path, clock: HeldClock) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "store.db", environment=clock)
    yield store
    if store._database.commits.is_free():  # Otherwise a test has failed, and closing would wait for ever.
        store.close()


def queued(store: SqliteStore) -> list[Any]:
    """Notes every write that goes by the queue."""
    commits, seen = store._database.commits, []
    run = commits.run

    def noting(entry: Any) -> Any:
        seen.append(entry)
        return run(entry)

    commits.run = noting  # type: ignore[method-assign]
    return seen


@pytest.mark.fault("a-lone-put-is-queued")
def test_a_lone_caller_goes_past_the_queue(store: SqliteStore) -> None:
    """
    Claim and settle, and neither was in the queue; nobody leads afterwards.
    """
    by_queue = queued(store)
    held = store.put(claimed(key(1)), None).record
    assert held is not None

    assert store.put(settled(held), held.version).landed
    assert by_queue == []
    assert store._database.commits.is_free()


@pytest.mark.fault("a-lone-put-wakes-nobody")
def test_whoever_queues_behind_a_lone_caller_is_woken(store: SqliteStore, clock: HeldClock) -> None:
    """
    It came while the other one was under way: it waits, and leads as soon as that one is done.
    """
    clock.go_on.clear()
    clock.read.clear()
    first = in_thread(lambda: store.put(claimed(key(1)), None))
    assert clock.read.wait(60)
    second = in_thread(lambda: store.put(claimed(key(2)), None))
    until(lambda: len(store._database.commits.queue) == 1)
    clock.go_on.set()

    assert (first().landed, second().landed) == (True, True)
    assert store._database.commits.is_free()


@pytest.mark.fault("a-lone-lead-is-given-up-without-the-mutex")
def test_the_lead_is_taken_and_given_up_under_the_mutex(store: SqliteStore) -> None:
    """
    Others look through the leads under it, and must not find them changing.
    """
    commits, held = store._database.commits, []

    class Watched(dict[Any, Any]):
        def __setitem__(self, lead: Any, batch: Any) -> None:
            held.append(("taken", commits.mutex.locked()))
            super().__setitem__(lead, batch)

        def __delitem__(self, lead: Any) -> None:
            held.append(("given up", commits.mutex.locked()))
            super().__delitem__(lead)

    commits.leads = Watched()

    assert store.put(claimed(key(1)), None).landed
    assert held == [("taken", True), ("given up", True)]


@pytest.mark.fault("a-lone-put-keeps-the-lead-if-it-fails")
def test_an_error_is_the_callers_and_gives_up_the_lead(store: SqliteStore) -> None:
    """
    The table is gone: the caller hears it, and the next one is not kept waiting.
    """
    with sqlite3.connect(store.path) as other:
        other.execute("ALTER TABLE onceward_records RENAME TO away")
    with pytest.raises(StoreUnavailable, match="no such table"):
        store.put(claimed(key(1)), None)

    assert store._database.commits.is_free()

    with sqlite3.connect(store.path) as other:
        other.execute("ALTER TABLE away RENAME TO onceward_records")
    assert store.put(claimed(key(1)), None).landed


@pytest.mark.fault("a-lone-put-does-not-wait-for-other-processes")
def test_what_is_stopped_before_it_wrote_goes_by_the_queue(store: SqliteStore) -> None:
    """
    Another process has the file: a caller waits for it, as everybody in the queue does.
    """
    by_queue = queued(store)
    other = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    caller = in_thread(lambda: store.put(claimed(key(1)), None))
    until(lambda: len(by_queue) == 1)
    other.execute("ROLLBACK")
    other.close()

    assert caller().landed


@pytest.mark.fault("a-lone-put-keeps-the-lead-if-it-fails")
def test_interrupted_at_any_line_nobody_leads_and_the_record_is_whole(store: SqliteStore) -> None:
    """
    Ctrl-C at each line of a put in turn: the store goes on, and the record is there or not.
    """
    landed = []
    for line in range(1, 100):
        id = key(line)
        try:
            interrupted_at(line, lambda id=id: store.put(claimed(id), None))
        except KeyboardInterrupt:
            assert store._database.commits.is_free()
            landed.append(store.load(id) is not None)
            assert store.put(claimed(id), None).landed is not landed[-1]
            continue
        break

    assert len(landed) > 20
    assert set(landed) == {True, False}


def interrupted_at(number: int, action: Any) -> Any:
    """
    Do something, and raise KeyboardInterrupt before that many lines of the put are run.

    Not at the lines of a `with`, which come again before a lock is let go: there CPython looks for no signal.
    """
    files, seen = {_sqlite_database.__file__, _sqlite_database.rows.__file__}, 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if frame.f_code.co_filename not in files:
            return None
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not text.lstrip().startswith("with "):
            seen += 1
            if seen == number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        return action()
    finally:
        sys.settrace(None)
