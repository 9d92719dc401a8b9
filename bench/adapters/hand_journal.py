"""
The least that a journal can cost: the same rows into the same table, in batches, and nothing else.

A listener keeps what an end needs, and a thread writes it five times a second, many rows in a statement. No bound, no
runs, no beginnings, no texts that are too long, no failures.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

from bench.adapters.ours import Ours
from bench.work import Work
from onceward._core.events import Event, EventType
from onceward.journal import Journal
from onceward.journal.notes import CALL_TYPES, CALLS_ENDED

EVERY_SECONDS = 0.2
AT_A_TIME = 100
_ROW = f"({', '.join('?' * len(CALL_TYPES))})"
_OUTCOMES = {EventType.SETTLED: "executed", EventType.REPLAYED: "replayed"}


class Rows:
    """A listener and its thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began: dict[str, int] = {}
        self._ended: list[tuple[object, ...]] = []
        threading.Thread(target=self._write_on, daemon=True).start()

    def __call__(self, event: Event) -> None:
        """Keep what a row needs."""
        now = time.time_ns() // 1_000
        if event.type is EventType.CLAIMED:
            self._began[event.digest] = now
        elif outcome := _OUTCOMES.get(event.type):
            began = self._began.pop(event.digest, now)
            id = f"{began:014x}{event.digest}"
            self._ended.append(
                (id, event.scope, None, None, "bench", event.operation, event.digest, None, None, None, "00" * 60,
                 outcome, None, began, now)
            )  # fmt: skip

    def _write_on(self) -> None:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as database:
            database.execute("PRAGMA synchronous = full")
            while True:
                time.sleep(EVERY_SECONDS)
                rows, self._ended = self._ended, []
                database.execute("BEGIN IMMEDIATE")
                for begin in range(0, len(rows), AT_A_TIME):
                    some = rows[begin : begin + AT_A_TIME]
                    text = CALLS_ENDED.replace("{rows}", f"VALUES {', '.join([_ROW] * len(some))}")
                    database.execute(text, [value for row in some for value in row])
                database.execute("COMMIT")


def journaled(folder: Path, work: Work) -> Ours:
    """A gate on files, with such a listener."""
    url, async_url = (f"sqlite:///{folder}/{name}.db" for name in ("ours", "ours_async"))
    with Journal(async_url, scope="live:acme", worker="bench") as journal, journal.run("bench"):
        pass  # It makes the tables.
    return Ours(work, url, async_url, listeners=[Rows(folder / "ours_async.journal.db")])
