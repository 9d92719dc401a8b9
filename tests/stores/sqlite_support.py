"""What the tests of the SQLite store share: writes, a clock that stands still, and processes of their own."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onceward._core.record import Record, Write, settle
from onceward.runtime.environment import Environment
from onceward.stores._group_commit import QueueEntry
from onceward.stores.sqlite import AsyncSqliteStore, SqliteStore

HERE = Path(__file__).parent
SECOND = 1_000_000
HOUR = 3600 * SECOND
START = 1_700_000_000 * SECOND
_numbers = itertools.count(1)


class Clock(Environment):
    """A wall clock that moves when it is told to."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def wall_us(self) -> int:
        return self.now


def key(number: int) -> bytes:
    """An id that sorts like its number."""
    return number.to_bytes(32, "big")


def claimed(id: bytes, **changes: Any) -> Write:
    """A first claim of an id."""
    chance = next(_numbers).to_bytes(16, "big")
    write = Write(
        *(id, "operation", "live:acme", "charge:o-17", "charge", None, "claimed", "blind", 0, b"\x01" + b"f" * 32),
        *(b"v" + chance[1:], b"t" + chance[1:], 1, 1, 0, None, 30 * SECOND, None, None, None, None, None),
        rise=True,
    )
    return write._replace(**changes)


def settled(held: Record, result: bytes = b'"paid"', **changes: Any) -> Write:
    """The settle that follows a claim."""
    chance = next(_numbers).to_bytes(16, "big")
    write = settle(held, version=b"s" + chance[1:], replay=HOUR, forget=2 * HOUR, codec="json/1", result=result)
    return write._replace(**changes)


def put_settled(store: SqliteStore, id: bytes, result: bytes = b'"paid"', **changes: Any) -> Record:
    """Claim and settle; what stands there then."""
    held = store.put(claimed(id), None).record
    assert held is not None
    record = store.put(settled(held, result, **changes), held.version).record
    assert record is not None
    return record


def in_thread(action: Callable[[], Any]) -> Callable[[], Any]:
    """Run an action in a thread; call what is returned to join it and get its answer or its error."""
    box: list[Any] = []

    def run() -> None:
        try:
            box.append(("answer", action()))
        except BaseException as error:
            box.append(("error", error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join() -> Any:
        thread.join(30)
        assert box, "still waiting"
        kind, value = box[0]
        if kind == "error":
            raise value
        return value

    return join


def until(condition: Callable[[], bool]) -> None:
    """Wait for other threads to get somewhere."""
    for _ in range(10_000):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it did not happen")


@contextmanager
def lead_held(store: SqliteStore | AsyncSqliteStore) -> Iterator[Callable[[int], None]]:
    """Hold the lead, so that callers queue up; what is given waits until so many of them do. Then they are a batch."""
    commits = store._database.commits
    held = QueueEntry(None)
    commits.hold(held)

    def queued(count: int) -> None:
        until(lambda: len(commits.queue) >= count + 1)

    try:
        yield queued
    finally:
        commits.let_go(held)


@contextmanager
def statements_of(store: SqliteStore | AsyncSqliteStore) -> Iterator[list[str]]:
    """The statements that the writer is given."""
    writer = store._database.connections.writer or store._database.connections.open_writer()
    seen: list[str] = []
    writer.connection.set_trace_callback(seen.append)
    yield seen
    writer.connection.set_trace_callback(None)


def python(script: str, *arguments: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=HERE,
    )
