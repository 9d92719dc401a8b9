"""
One open SQLite file: a writer, some readers, and the queue in front of the writer.

Readers are lent from a pool and brought back, so that there are as many as callers at the same moment and none per
dead thread. The writer belongs to whoever leads the group commit.

Waiting for another process's lock is done here and not by SQLite: the store's clock must be read when the lock is
ours and not when the waiting began, and a person must be able to interrupt it.

A fork finds the file closed. SQLite keeps the locks of a process in memory that a child would inherit: the child
would believe that it holds locks which it does not, and another process could delete the log under its writes. So
before a fork everything is closed, at rest, and both sides open again when they next need it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from onceward import failpoints
from onceward._core.errors import ConfigurationError, OncewardError, StoreUnavailable
from onceward._core.record import Record, Standing
from onceward.environment import Environment
from onceward.stores import _sqlite_rows as rows
from onceward.stores import _sqlite_schema as schema
from onceward.stores._sqlite_commit import Entry, GroupCommit
from onceward.stores._sqlite_file import (
    DRIVER_ERRORS,
    Options,
    breaks_connection,
    concerns_everybody,
    connect,
    is_busy,
    meaning_of,
    prepare,
)

T = TypeVar("T")

PAUSE_SECONDS_FIRST = 0.0002
PAUSE_SECONDS_MAX = 0.004
"""Between two tries for the write lock: about a commit at first, then a few. SQLite's own goes up to 100 ms."""
REST_SECONDS_MAX = 5.0
"""How long a fork or a close waits for reads that are under way."""

BEFORE_WRITE = failpoints.declare("sqlite.write.before", "nothing is written | a statement or a transaction begins")
BEFORE_COMMIT = failpoints.declare("sqlite.commit.before", "a batch is written | it is committed")
AFTER_COMMIT = failpoints.declare("sqlite.commit.after", "a write is committed | anything else happens")


class Database:
    """The file, opened. Everything that touches it goes through here."""

    def __init__(self, path: Path, options: Options, environment: Environment, *, create: bool = True) -> None:
        self.path = prepare(path, create=create)
        self.options = options
        self.environment = environment
        self.readers: deque[sqlite3.Cursor] = deque()
        self.migrated: tuple[int, int] | None = None
        """The schema's versions before and after, if opening changed it."""
        self._closed: str | None = None
        """Why nothing can be done with it any more."""
        self._may_relax = options.settle == "relaxed"
        self._start_over()
        self._open_writer()
        _open_databases.add(self)

    def _start_over(self) -> None:
        """As new: nothing open, nothing queued. Also what a child does after a fork."""
        self.commits = GroupCommit(self._perform)
        self.readers.clear()
        self.stale = False
        """Whether this process wrote since a reader last looked: the writer is then the quicker one to ask."""
        self._all_readers: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()
        self._readers_mutex = threading.Lock()
        self._writer: sqlite3.Cursor | None = None
        self._relaxed = False
        self._held: Entry | None = None
        self._pause = threading.Lock()
        self._pause.acquire()

    # Reading.

    def find(self, id: bytes, *, patient: bool = True) -> Record | None:
        """Read one record: the short way if there is a reader and nothing is in its way."""
        try:
            reader = self.readers.pop()
            try:
                return rows.find(reader, id, self.environment.wall_us())
            finally:
                self.stale = False
                self.readers.append(reader)
        except (IndexError, *DRIVER_ERRORS):
            return self.read(lambda cursor: rows.find(cursor, id, self.environment.wall_us()), patient=patient)

    def read(self, action: Callable[[sqlite3.Cursor], T], *, patient: bool = True) -> T:
        """Do something with a reader. If not patient, the driver's own error says that the file is busy."""
        try:
            reader: sqlite3.Cursor | None = self.readers.pop()
        except IndexError:
            reader = None
        patience: Patience | None = None
        try:
            while True:
                try:
                    reader = reader or self._open_reader()
                    return action(reader)
                except DRIVER_ERRORS as error:
                    if breaks_connection(error) and reader is not None:
                        self._all_readers.discard(reader)
                        reader.connection.close()
                        reader = None
                    if not patient and is_busy(error):
                        raise
                    patience = patience or Patience(self)
                    if not patience.has_borne(error):
                        raise self._error(error) from error
        finally:
            if reader is not None:
                self.readers.append(reader)

    def _open_reader(self) -> sqlite3.Cursor:
        """One more, since all the others are lent."""
        with self._readers_mutex:
            if self._closed is not None:
                raise StoreUnavailable(self._closed)
            reader = connect(self.path, read_only=True).cursor()
            self._all_readers.add(reader)
            return reader

    # Writing.

    def transaction(self, action: Callable[[sqlite3.Cursor, int], T]) -> Callable[[sqlite3.Cursor], T]:
        """A job: a transaction around `action`, which is given the store's clock, read inside it."""

        def job(cursor: sqlite3.Cursor) -> T:
            cursor.execute("BEGIN IMMEDIATE")
            answer = action(cursor, self.environment.wall_us())
            failpoints.hit(BEFORE_COMMIT)
            cursor.execute("COMMIT")
            failpoints.hit(AFTER_COMMIT)
            return answer

        return job

    def _perform(self, batch: list[Entry]) -> None:
        """Give each entry its answer or its error. The lead is ours, and with it the writer."""
        patience: Patience | None = None
        while True:
            try:
                self._try(batch)
                self.stale = True
                return
            except DRIVER_ERRORS as error:
                self._end_transaction(broken=breaks_connection(error))
                patience = patience or Patience(self)
                if patience.has_borne(error):
                    continue
                failure: Exception = error
                break
            except OncewardError as error:
                self._end_transaction(broken=False)
                failure = error
                break
            except BaseException:
                self._end_transaction(broken=False)
                raise
        if len(batch) == 1 or concerns_everybody(failure):
            for entry in batch:
                entry.fail(self._error(failure))
            return
        # One bad row must not fail the others, and none of them is stored: each for itself.
        for entry in batch:
            entry.again = True
            self._perform([entry])

    def _error(self, error: Exception) -> OncewardError:
        """What to raise for an error; for one of the driver's, a new one each time: each caller adds its own traceback."""
        if isinstance(error, OncewardError):
            return error
        meaning = meaning_of(error, self.path)
        meaning.__cause__ = error
        return meaning

    def _try(self, batch: list[Entry]) -> None:
        """Perform a batch, once, or raise."""
        cursor = self._writer or self._open_writer()
        failpoints.hit(BEFORE_WRITE)
        if len(batch) > 1:
            self._many(cursor, batch)
            return
        entry = batch[0]
        write = entry.write
        if write is None:
            entry.answer = entry.job(cursor) if entry.job is not None else None
        else:
            if self._may_relax:
                self._sync(cursor, relaxed=write.relaxed)
            # In autocommit, one statement is a whole transaction: it gets the write lock at once or fails at once,
            # so that the clock is read when the write is made.
            now = self.environment.wall_us()
            standing: Standing | None = None
            if entry.look and rows.is_there(cursor, write.id):
                found = rows.find(cursor, write.id, now)
                standing = Standing(False, found) if found is not None else None
            if standing is None:
                standing = rows.put_in(cursor, write, entry.expect, now)
                failpoints.hit(AFTER_COMMIT)
            entry.answer = _recognised(entry, standing) if entry.again else standing
        entry.done = True

    def _many(self, cursor: sqlite3.Cursor, batch: list[Entry]) -> None:
        """One transaction for everybody. Nobody has an answer before the commit."""
        writes = [(entry.write, entry.expect) for entry in batch if entry.write is not None]
        if self._may_relax:
            self._sync(cursor, relaxed=all(write.relaxed for write, _ in writes))
        cursor.execute("BEGIN IMMEDIATE")
        now = self.environment.wall_us()
        standings = [rows.put_in(cursor, write, expect, now) for write, expect in writes]
        failpoints.hit(BEFORE_COMMIT)
        cursor.execute("COMMIT")
        failpoints.hit(AFTER_COMMIT)
        for entry, standing in zip(batch, standings, strict=True):
            entry.answer = _recognised(entry, standing) if entry.again else standing
            entry.done = True

    def _sync(self, cursor: sqlite3.Cursor, *, relaxed: bool) -> None:
        """Have the next commit wait for the disk or not."""
        if relaxed is not self._relaxed:
            cursor.execute(f"PRAGMA synchronous = {'normal' if relaxed else self.options.synchronous}")
            self._relaxed = relaxed

    def pause(self, seconds: float) -> None:
        """Wait a little, in a way that an interrupt ends."""
        self._pause.acquire(timeout=seconds)

    def _end_transaction(self, *, broken: bool) -> None:
        """After an error: nothing may be left open, and nothing may go on in autocommit as if it were still inside."""
        cursor = self._writer
        if cursor is None:
            return
        try:
            if cursor.connection.in_transaction:
                cursor.connection.rollback()
        except DRIVER_ERRORS:
            broken = True
        if broken:
            self._writer = None
            with suppress(*DRIVER_ERRORS):
                cursor.connection.close()

    # Opening and closing.

    def _open_writer(self) -> sqlite3.Cursor:
        """Open the writer and see to the schema. Done once at the start: errors come then, not at the first call."""
        if self._closed is not None:
            raise StoreUnavailable(self._closed)
        patience = Patience(self)
        while True:
            try:
                return self._try_to_open_writer()
            except DRIVER_ERRORS as error:
                if not patience.has_borne(error):
                    raise self._error(error) from error

    def _try_to_open_writer(self) -> sqlite3.Cursor:
        connection = connect(self.path)
        try:
            cursor = connection.cursor()
            mode = cursor.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise ConfigurationError(f"{self.path} cannot have a write-ahead log ({mode}): use a local disk")
            cursor.execute(f"PRAGMA synchronous = {self.options.synchronous}")
            before, after = schema.bring_up_to_date(cursor)
        except BaseException:
            connection.close()
            raise
        if before != after:
            self.migrated = (before, after)
        self._relaxed = False
        self._writer = cursor
        return cursor

    def close(self) -> None:
        """Finish what is under way and let go of the file."""
        if self._closed is not None:
            return
        entry = Entry(None)
        self.commits.hold(entry)
        try:
            with self._readers_mutex:
                self._closed = f"the store {self.path} was closed"
                self._rest()
        finally:
            self.commits.let_go(entry)

    def _rest(self) -> bool:
        """Close every connection; whether all were at rest in time. The lead and the readers' mutex are ours."""
        if self._writer is not None:
            self._writer.connection.close()
            self._writer = None
        left = REST_SECONDS_MAX
        while len(self._all_readers) and left > 0:
            try:
                reader = self.readers.pop()
            except IndexError:
                self._pause.acquire(timeout=PAUSE_SECONDS_MAX)
                left -= PAUSE_SECONDS_MAX
                continue
            self._all_readers.discard(reader)
            reader.connection.close()
        return not len(self._all_readers)

    # Forking.

    def before_fork(self) -> None:
        """Close everything, and keep it so until the fork is over."""
        self._rested = True
        if self._closed is not None:
            return
        held = Entry(None)
        # Not in time: somebody is stuck in a write, or this very thread is forking in the middle of one.
        self._rested = self.commits.hold(held, REST_SECONDS_MAX)
        if self._rested:
            self._held = held
            self._readers_mutex.acquire()
            self._rested = self._rest()

    def after_fork_in_parent(self) -> None:
        """Go on: connections are opened again when they are needed."""
        if self._held is not None:
            self._readers_mutex.release()
            self.commits.let_go(self._held)
            self._held = None

    def after_fork_in_child(self) -> None:
        """Begin anew: the threads that held the parent's locks and waited in its queue are not here."""
        if not self._rested:
            # Closing inherited connections, or opening others beside them, would undo the locks of this process.
            _inherited.append((self._writer, list(self._all_readers)))
            self._closed = (
                f"this process was forked while {self.path} was in use: open a store of its own after forking"
            )
        self._start_over()

    _rested = True


class Patience:
    """How much longer to wait for other processes. Counted in pauses, so that it needs no clock."""

    __slots__ = ("_database", "_left", "_pause")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pause = PAUSE_SECONDS_FIRST
        self._left = database.options.busy_seconds

    def has_borne(self, error: BaseException) -> bool:
        """Pause if waiting can still help, and say whether that was so."""
        if self._left <= 0 or not is_busy(error):
            return False
        # Unequal pauses: processes that collided once would otherwise collide again.
        pause = min(self._left, self._pause * (0.5 + self._database.environment.random(1)[0] / 256))
        self._database.pause(pause)
        self._left -= pause
        self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)
        return True


def _recognised(entry: Entry, standing: Standing) -> Standing:
    """A write that is done again after an interrupt may find itself: then it had landed."""
    if entry.again and standing.record is not None and entry.write is not None:
        return Standing(standing.record.version == entry.write.version, standing.record)
    return standing


_inherited: list[object] = []
"""Connections of a parent, kept so that they are never closed here."""
_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()


def _each_database(method: Callable[[Database], Any]) -> Callable[[], None]:
    def call() -> None:
        for database in list(_open_databases):
            method(database)

    return call


os.register_at_fork(
    before=_each_database(Database.before_fork),
    after_in_parent=_each_database(Database.after_fork_in_parent),
    after_in_child=_each_database(Database.after_fork_in_child),
)
