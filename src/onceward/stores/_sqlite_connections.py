"""
The connections to one SQLite file: a writer, a pool of readers, and the wait while the file is busy.

Readers are lent from a pool and brought back, so that a thread that ends leaves none behind. The writer belongs to
whoever leads the group commit.

Waiting for another process's lock is done here and not by SQLite: the store's clock must be read when the lock is
ours and not when the waiting began, and a person must be able to interrupt it.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from onceward._core.errors import ConfigurationError, OncewardError, StoreUnavailable
from onceward._core.record import PeekResult, Record
from onceward.runtime.environment import Environment
from onceward.stores import _sqlite_rows as rows
from onceward.stores import _sqlite_schema as schema
from onceward.stores._sqlite_file import (
    DRIVER_ERRORS,
    SqliteOptions,
    breaks_connection,
    connect,
    is_busy,
    translate_error,
)

T = TypeVar("T")

PAUSE_SECONDS_FIRST = 0.0002
PAUSE_SECONDS_MAX = 0.004
"""Between two tries for the write lock: about a commit at first, then a few. SQLite's own goes up to 100 ms."""
REST_SECONDS_MAX = 5.0
"""How long a fork or a close waits for what is under way."""


class Connections:
    """What is open of a file."""

    def __init__(self, path: Path, options: SqliteOptions, environment: Environment) -> None:
        self.path = path
        self.options = options
        self.environment = environment
        self.closed: str | None = None
        """Why nothing can be opened any more."""
        self.writer: sqlite3.Cursor | None = None
        self.relaxed = False
        """Whether the writer's next commit does not wait for the disk."""
        self.stale = False
        """Whether this process wrote since a reader last looked: the writer is then the quicker one to ask."""
        self.opening = threading.Lock()
        """Held while a reader is opened, and for as long as none may be."""
        self._idle: deque[sqlite3.Cursor] = deque()
        self._readers: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()
        """All of them: idle, lent, and not those that an interrupt lost."""

    # Reading.

    def find(self, id: bytes) -> Record | None:
        """Read one record: the short way if there is a reader and nothing is in its way."""
        try:
            reader = self._idle.pop()
            try:
                return rows.find(reader, id, self.environment.wall_us())
            finally:
                self.stale = False
                self._idle.append(reader)
        except (IndexError, *DRIVER_ERRORS):
            return self.read(lambda cursor: rows.find(cursor, id, self.environment.wall_us()))

    def peek(self, id: bytes) -> PeekResult | None:
        """A quick look. None if nothing is there, or if looking is not quick."""
        try:
            reader = self._idle.pop()
        except IndexError:
            with suppress(*DRIVER_ERRORS, OncewardError):
                self._idle.append(self._borrow())
            return None
        try:
            seen = rows.peek(reader, id, self.environment.wall_us())
        except DRIVER_ERRORS:
            return None
        finally:
            self._idle.append(reader)
        if seen is not None:
            self.stale = False  # A sign of replays: look first, next time.
        return seen

    def peek_many(self, ids: Sequence[bytes]) -> dict[bytes, PeekResult]:
        """Quick looks at several records: those that are there, if they can be read at once."""
        try:
            reader = self._borrow()
        except (*DRIVER_ERRORS, OncewardError):
            return {}
        try:
            return rows.peek_many(reader, ids, self.environment.wall_us())
        except DRIVER_ERRORS:
            return {}
        finally:
            self._idle.append(reader)

    def read(self, action: Callable[[sqlite3.Cursor], T], *, patient: bool = True) -> T:
        """Do something with a reader. If not patient, the driver's own error says that the file is busy."""
        patience = BusyWait(self)
        reader: sqlite3.Cursor | None = None
        try:
            while True:
                try:
                    reader = reader or self._borrow()
                    return action(reader)
                except DRIVER_ERRORS as error:
                    if breaks_connection(error) and reader is not None:
                        self._discard(reader)
                        reader = None
                    if not patient and is_busy(error):
                        raise
                    if not patience.wait_if_busy(error):
                        raise self.error(error) from error
        finally:
            if reader is not None:
                self.stale = False
                self._idle.append(reader)

    def _borrow(self) -> sqlite3.Cursor:
        """An idle reader, or one more."""
        with suppress(IndexError):
            return self._idle.pop()
        with self.opening:
            if self.closed is not None:
                raise StoreUnavailable(self.closed)
            reader = connect(self.path, read_only=True).cursor()
            self._readers.add(reader)
            return reader

    def _discard(self, reader: sqlite3.Cursor) -> None:
        self._readers.discard(reader)
        reader.connection.close()

    # Writing. Only for the leader.

    def open_writer(self) -> sqlite3.Cursor:
        """Open the writer and see to the schema. Done once at the start: errors come then, not at the first call."""
        if self.closed is not None:
            raise StoreUnavailable(self.closed)
        patience = BusyWait(self)
        while True:
            try:
                return self._try_to_open_writer()
            except DRIVER_ERRORS as error:
                if not patience.wait_if_busy(error):
                    raise self.error(error) from error

    def _try_to_open_writer(self) -> sqlite3.Cursor:
        connection = connect(self.path)
        try:
            cursor = connection.cursor()
            mode = cursor.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise ConfigurationError(
                    f"{self.path} cannot have a write-ahead log (journal mode is {mode}); put it on a local disk"
                )
            cursor.execute(f"PRAGMA synchronous = {self.options.synchronous}")
            schema.bring_up_to_date(cursor)
        except BaseException:
            connection.close()
            raise
        self.relaxed = False
        self.writer = cursor
        return cursor

    def relax(self, cursor: sqlite3.Cursor, relaxed: bool) -> None:
        """Have the next commit wait for the disk or not."""
        if relaxed is not self.relaxed:
            cursor.execute(f"PRAGMA synchronous = {'normal' if relaxed else self.options.synchronous}")
            self.relaxed = relaxed

    def end_transaction(self, *, broken: bool) -> None:
        """After an error: nothing is left open, and nothing goes on in autocommit as if it were still inside."""
        cursor = self.writer
        if cursor is None:
            return
        try:
            if cursor.connection.in_transaction:
                cursor.connection.rollback()
        except DRIVER_ERRORS:
            broken = True
        if broken:
            self.writer = None
            with suppress(*DRIVER_ERRORS):
                cursor.connection.close()

    # Both.

    def error(self, error: Exception) -> OncewardError:
        """What to raise for an error. A new one each time: every caller adds its own traceback."""
        if isinstance(error, OncewardError):
            return error
        meaning = translate_error(error, self.path)
        meaning.__cause__ = error
        return meaning

    def rest(self) -> bool:
        """Close everything; whether all of it was at rest in time. The lead and `opening` must be the caller's."""
        if self.writer is not None:
            self.writer.connection.close()
            self.writer = None
        left = REST_SECONDS_MAX
        while len(self._readers) and left > 0:
            try:
                self._discard(self._idle.pop())
            except IndexError:
                pause(PAUSE_SECONDS_MAX)
                left -= PAUSE_SECONDS_MAX
        return not len(self._readers)


class BusyWait:
    """How much longer to wait for other processes. Counted in pauses, so that it needs no clock."""

    __slots__ = ("_connections", "_left", "_pause")

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._pause = PAUSE_SECONDS_FIRST
        self._left = connections.options.busy_seconds

    def wait_if_busy(self, error: BaseException) -> bool:
        """Pause if waiting can still help, and say whether that was so."""
        if self._left <= 0 or not is_busy(error):
            return False
        # Unequal pauses: processes that collided once would otherwise collide again.
        seconds = min(self._left, self._pause * (0.5 + self._connections.environment.random(1)[0] / 256))
        pause(seconds)
        self._left -= seconds
        self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)
        return True


def pause(seconds: float) -> None:
    """Wait for other processes, in their time: real even where a test's clock stands still."""
    threading.Event().wait(seconds)
