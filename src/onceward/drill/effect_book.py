"""
`EffectBook`: the outside world of a proof, where each effect is a row. It knows nothing of keys, unless it is told.

A SQLite file of its own, in the drill's folder: effects must be counted by somebody who is not the store that is
tried, and must still be there when whoever caused them is killed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_BUSY_SECONDS = 60.0


class EffectBook:
    """Effects, counted. Safe for threads and processes: each call has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(self._open()) as book, book:
            book.execute("CREATE TABLE IF NOT EXISTS effects (operation TEXT NOT NULL, honoured TEXT UNIQUE)")

    def happen(self, operation: str, honoured: str | None = None) -> None:
        """Have an effect. With a downstream key, a second one under the same key is none: this world honours keys."""
        with closing(self._open()) as book, book:
            book.execute("INSERT OR IGNORE INTO effects VALUES (?, ?)", (operation, honoured))

    def count(self, operation: str = "") -> int:
        """How many effects an operation had, or all of them."""
        with closing(self._open()) as book:
            row = book.execute("SELECT count(*) FROM effects WHERE ? IN ('', operation)", (operation,)).fetchone()
        return int(row[0])

    def _open(self) -> sqlite3.Connection:
        book = sqlite3.connect(self.path, timeout=_BUSY_SECONDS)
        book.execute("PRAGMA synchronous = OFF")  # Processes are killed here, not machines.
        return book
