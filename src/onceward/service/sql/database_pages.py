"""
How many pages a database uses, and how many more it may.

SQLite itself holds the limit (`max_page_count`), so that it holds to the page, whatever a statement does. Pages that
were freed can be filled again: a file never grows past what its tenant may have, and deleting rows makes room in it.
"""

from __future__ import annotations

import sqlite3

from onceward.protocol.errors import SqlError, SqlKind
from onceward.service.sql.limits import Limits

PAGES_MIN = 16
"""Enough for the tables of keys."""


class DatabasePages:
    """The pages of one database, on a cursor of the connection that writes it."""

    def __init__(self, cursor: sqlite3.Cursor, limits: Limits) -> None:
        self._cursor = cursor
        self._size = self._ask("page_size")
        self._most = max(limits.database_bytes // self._size, PAGES_MIN)
        self._set = 0
        self._growth: int | None = None
        self._before = 0
        self._known: int | None = None
        """Pages in use, since a request has ended and until the next one of its transaction begins."""

    def used_bytes(self) -> int:
        """Bytes that are in use, in whole pages."""
        return self._used() * self._size

    def allow(self, growth: int | None) -> None:
        """Let the next request add so many bytes to what is in use; None: up to the largest size of a database."""
        self._before = self._used() if self._known is None else self._known
        self._known = None  # A request that fails is undone, and nobody asks what it has grown.
        limit = self._most
        if growth is not None:
            limit = min(limit, self._before + max(growth, 0) // self._size)
        self._growth = growth if limit < self._most else None
        if limit != self._set:
            self._ask(f"max_page_count = {max(limit, 1)}")  # Never below what the file has: SQLite sees to that.
            self._set = limit

    def grown(self) -> int:
        """How many more bytes are in use than before the request."""
        self._known = self._used()
        return (self._known - self._before) * self._size

    def begin(self) -> None:
        """A transaction begins: others may have written since the last one."""
        self._known = None

    def full(self, statement: int | None = None) -> SqlError:
        """The error for a request that needs more; `statement` is the one of its batch."""
        message, hint = "the database is full", "delete rows; the database has reached its size limit"
        if self._growth is not None:
            message = f"the quota is used up: this needs more than the {self._growth} bytes that are left"
            hint = "delete rows, or ask for a higher quota"
        error = SqlError(SqlKind.FULL, f"{message}. Nothing was written", hint=hint)
        error.statement = statement
        return error

    def _used(self) -> int:
        return self._ask("page_count") - self._ask("freelist_count")

    def _ask(self, pragma: str) -> int:
        return int(self._cursor.execute(f"PRAGMA {pragma}").fetchone()[0])
