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
from pathlib import Path
from typing import Any, TypeVar

from onceward import failpoints
from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward._core.record import Standing, Write
from onceward.environment import Environment
from onceward.stores import _sqlite_rows as rows
from onceward.stores import _sqlite_schema as schema
from onceward.stores._sqlite_commit import Entry, GroupCommit
from onceward.stores._sqlite_file import (
    DRIVER_ERRORS,
    Options,
    breaks_connection,
    connect,
    is_busy,
    meaning_of,
    prepare,
)

T = TypeVar("T")

PAUSE_SECONDS_FIRST = 0.0002
PAUSE_SECONDS_MAX = 0.004
"""Between two tries for the write lock: about a commit at first, then a few. SQLite's own goes up to 100 ms."""
REST_SECONDS_MAX = 10.0
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
        self.migrated = (0, 0)
        self._start_over()
        self._open()
        _open_databases.add(self)

    def _start_over(self) -> None:
        """As new: nothing open, nothing queued. Also what a child does after a fork."""
        self.commits = GroupCommit(self._perform)
        self.readers = deque()
        self._lent = 0
        self._mutex = threading.Lock()
        self._writer: sqlite3.Cursor | None = None
        self._relaxed = False
        self._closed = False
        self._pause = threading.Lock()
        self._pause.acquire()

    # Opening and closing.

    def _open(self) -> None:
        """Open the writer, and see to the schema: errors come now and not at the first call."""

        def opened() -> sqlite3.Cursor:
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
            return cursor

        self._relaxed = False
        self._writer = self.patiently(opened)

    def open_reader(self) -> sqlite3.Cursor:
        """One more reader, when all the others are lent."""
        with self._mutex:
            if self._closed:
                raise StoreUnavailable(f"the store {self.path} was closed")
            reader = self.patiently(lambda: connect(self.path, read_only=True)).cursor()
            self._lent += 1
            return reader

    def close(self) -> None:
        """Finish what is under way and let go of the file."""
        if self._closed:
            return
        entry = Entry(None)
        self.commits.hold(entry)
        try:
            self._closed = True
            self._rest()
        finally:
            self.commits.let_go(entry)

    def _rest(self) -> bool:
        """Close every connection; whether all were at rest in time. The lead is ours."""
        if self._writer is not None:
            self._writer.connection.close()
            self._writer = None
        left = REST_SECONDS_MAX
        while self._lent and left > 0:
            try:
                reader = self.readers.pop()
            except IndexError:
                self._pause.acquire(timeout=PAUSE_SECONDS_MAX)
                left -= PAUSE_SECONDS_MAX
                continue
            reader.connection.close()
            self._lent -= 1
        return not self._lent

    # Reading.

    def read(self, action: Callable[[sqlite3.Cursor], T], *, patient: bool = True) -> T:
        """Do something with a reader. Impatient: a busy file raises the driver's own error, for the caller to handle."""
        try:
            reader = self.readers.pop()
        except IndexError:
            reader = self.open_reader()
        try:
            return action(reader)
        except DRIVER_ERRORS as error:
            if not is_busy(error):
                raise meaning_of(error, self.path) from error
            if not patient:
                raise
            return self.patiently(lambda: action(reader))
        finally:
            self.readers.append(reader)

    # Writing.

    def write(self, write: Write, expect: bytes | None) -> Standing:
        """Put, from a blocking caller."""
        standing: Standing = self.commits.run(Entry(write, expect))
        return standing

    def job(self, action: Callable[[sqlite3.Cursor, int], T]) -> Callable[[sqlite3.Cursor], T]:
        """A transaction of its own around `action`, which is given the store's clock read inside it."""

        def transaction(cursor: sqlite3.Cursor) -> T:
            cursor.execute("BEGIN IMMEDIATE")
            answer = action(cursor, self.environment.wall_us())
            failpoints.hit(BEFORE_COMMIT)
            cursor.execute("COMMIT")
            failpoints.hit(AFTER_COMMIT)
            return answer

        return transaction

    def _perform(self, batch: list[Entry]) -> None:
        """Give each entry its answer or its error. The lead is ours, and with it the writer."""
        if len(batch) == 1:
            self._perform_alone(batch[0])
            return
        try:
            standings = self._write(
                lambda cursor: self._put_all(cursor, batch), all(_relaxed(entry) for entry in batch)
            )
        except StoreUnavailable:
            # One bad row must not fail the others, and none of them is stored: each for itself.
            for entry in batch:
                self._perform_alone(entry)
        else:
            for entry, standing in zip(batch, standings, strict=True):
                entry.succeed(standing)

    def _perform_alone(self, entry: Entry) -> None:
        action = entry.job if entry.job is not None else lambda cursor: self._put_alone(cursor, entry)
        try:
            entry.succeed(self._write(action, _relaxed(entry)))
        except StoreUnavailable as error:
            entry.fail(error)

    def _put_alone(self, cursor: sqlite3.Cursor, entry: Entry) -> Standing:
        """In autocommit, a single statement is a whole transaction: it takes the write lock at once or not at all."""
        standing = rows.put_in(cursor, entry.write, entry.expect, self.environment.wall_us())  # type: ignore[arg-type]
        failpoints.hit(AFTER_COMMIT)
        return _recognised(entry, standing)

    def _put_all(self, cursor: sqlite3.Cursor, batch: list[Entry]) -> list[Standing]:
        cursor.execute("BEGIN IMMEDIATE")
        now = self.environment.wall_us()
        standings = [
            _recognised(entry, rows.put_in(cursor, entry.write, entry.expect, now))  # type: ignore[arg-type]
            for entry in batch
        ]
        failpoints.hit(BEFORE_COMMIT)
        cursor.execute("COMMIT")
        failpoints.hit(AFTER_COMMIT)
        return standings

    def _write(self, action: Callable[[sqlite3.Cursor], T], relaxed: bool) -> T:
        """Do something with the writer; whatever goes wrong, no transaction is left open."""
        if self._closed:
            raise StoreUnavailable(f"the store {self.path} was closed")
        if self._writer is None:
            self._open()
        cursor = self._writer
        if cursor is None:
            raise StoreUnavailable(f"the store {self.path} could not be opened")
        relaxed = relaxed and self.options.settle == "relaxed"

        def attempt() -> T:
            try:
                if relaxed is not self._relaxed:
                    cursor.execute(f"PRAGMA synchronous = {'normal' if relaxed else self.options.synchronous}")
                    self._relaxed = relaxed
                failpoints.hit(BEFORE_WRITE)
                return action(cursor)
            except BaseException:
                if cursor.connection.in_transaction:
                    cursor.connection.rollback()
                raise

        try:
            return self.patiently(attempt)
        except StoreUnavailable as error:
            if error.__cause__ is not None and breaks_connection(error.__cause__):
                cursor.connection.close()
                self._writer = None
            raise

    def patiently(self, action: Callable[[], T]) -> T:
        """Try until nobody else is in the way, or the busy limit is reached."""
        left = self.options.busy_seconds
        pause = PAUSE_SECONDS_FIRST
        while True:
            try:
                return action()
            except DRIVER_ERRORS as error:
                if left <= 0 or not is_busy(error):
                    raise meaning_of(error, self.path) from error
            # Unequal pauses: processes that collided once would otherwise collide again.
            wait = min(left, pause * (0.5 + self.environment.random(1)[0] / 256))
            self._pause.acquire(timeout=wait)
            left -= wait
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    # Forking.

    def before_fork(self) -> None:
        """Close everything, at rest, and keep the lead until the fork is over."""
        self._holding = None
        if self._closed or self.commits.is_led_by_this_thread():
            return
        self._holding = Entry(None)
        self.commits.hold(self._holding)
        self._rested = self._rest()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._holding is not None:
            self.commits.let_go(self._holding)

    def after_fork_in_child(self) -> None:
        """Begin anew: threads, queue and locks of the parent are not here."""
        if not self._closed:
            self._start_over()

    _holding: Entry | None = None
    _rested = True


def _relaxed(entry: Entry) -> bool:
    return entry.write is not None and entry.write.relaxed


def _recognised(entry: Entry, standing: Standing) -> Standing:
    """A write that is done again after an interrupt may find itself: then it had landed."""
    if entry.again and standing.record is not None and entry.write is not None:
        return Standing(standing.record.version == entry.write.version, standing.record)
    return standing


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
