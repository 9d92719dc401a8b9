"""
One open SQLite file: its connections, and the queue in front of the writer.

A fork finds the file closed. SQLite keeps the locks of a process in memory that a child would inherit: the child
would believe that it holds locks which it does not, and another process could delete the log under its writes. So
before a fork everything is closed, at rest, and both sides open again when they next need it.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from onceward._core.record import PeekResult, PutResult, Write
from onceward.runtime import failpoints
from onceward.runtime.environment import Environment
from onceward.stores import _sqlite_rows as rows
from onceward.stores._group_commit import GroupCommit, LoneLead, QueueEntry
from onceward.stores._sqlite_connections import REST_SECONDS_MAX, BusyWait, Connections
from onceward.stores._sqlite_file import (
    DRIVER_ERRORS,
    SqliteOptions,
    breaks_connection,
    is_about_the_file,
    prepare_file,
    stopped_before_writing,
)
from onceward.stores._sqlite_purge import Purged, is_wanted, purge

T = TypeVar("T")

BEFORE_WRITE = failpoints.declare("sqlite.write.before", "nothing is written | a statement or a transaction begins")
BEFORE_COMMIT = failpoints.declare("sqlite.commit.before", "a batch is written | it is committed")
AFTER_COMMIT = failpoints.declare("sqlite.commit.after", "a write is committed | anything else happens")


MISSES_MAX = 32
"""Looks in a row that found nothing: after so many, while others commit, only every so many-th call looks."""
PEEK_EVERY = 8


class SqliteDatabase:
    """The file, opened. Both colours of store are thin shells over this."""

    def __init__(self, path: Path, options: SqliteOptions, environment: Environment, *, create: bool = True) -> None:
        self.path = prepare_file(path, create=create)
        self.options = options
        self.environment = environment
        self._wall_us = environment.wall_us
        self._may_relax = options.settle == "relaxed"
        self._held: QueueEntry | None = None
        self._rested = True
        self._misses = 0
        self._start_over()
        self.connections.open_writer()
        _open_databases.add(self)

    def _start_over(self) -> None:
        """As new: nothing open, nothing queued. Also what a child does after a fork."""
        self.connections = Connections(self.path, self.options, self.environment)
        self.commits = GroupCommit(self._perform)

    def close(self) -> None:
        """Finish what is under way and let go of the file."""
        connections = self.connections
        if connections.closed is not None:
            return
        held = QueueEntry(None)
        self.commits.hold(held)
        try:
            with connections.opening:
                connections.closed = f"the store {self.path} was closed"
                connections.rest()
        finally:
            self.commits.let_go(held)

    def peek(self, id: bytes) -> PeekResult | None:
        """
        A quick look at what a replay needs. None if nothing is there, or if looking is not quick.

        After a write of this process a reader has to fetch its pages again, and the next call is likely to be fresh,
        too: then the write that follows finds out for less. But not while somebody commits: a replay should not wait
        for that, so it is worth a look unless nothing but fresh calls come.
        """
        if self.connections.stale:
            if not self.commits.leads:
                return None
            if self._misses > MISSES_MAX and self._misses % PEEK_EVERY:
                self._misses += 1
                return None
        seen = self.connections.peek(id)
        self._misses = 0 if seen is not None else self._misses + 1
        return seen

    def peek_many(self, ids: Sequence[bytes]) -> dict[bytes, PeekResult]:
        """Quick looks at several records: those that are there."""
        return self.connections.peek_many(ids)

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

    def purge_job(self, limit: int, version: bytes) -> Callable[[sqlite3.Cursor], Purged]:
        """A job: one transaction of a purge, or only a look if there is nothing to do."""
        purging = self.transaction(lambda cursor, now: purge(cursor, limit, version, now))

        def job(cursor: sqlite3.Cursor) -> Purged:
            return purging(cursor) if is_wanted(cursor, self.environment.wall_us()) else Purged()

        return job

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """
        A blocking caller's put: past the queue if nobody is under way (`LoneLead`), as most find it.

        In autocommit, one statement is a whole transaction. It gets the write lock at once or fails at once, so that
        the clock is read when the write is made.
        """
        commits, connections = self.commits, self.connections
        leads = commits.leads
        if not (leads or self._may_relax or failpoints.ARMED):
            lead = LoneLead()
            lead.write = write
            try:
                with commits.mutex:
                    is_alone = not leads
                    if is_alone:
                        leads[lead] = [lead]
                cursor = connections.writer
                if is_alone and cursor is not None and not cursor.connection.in_transaction:
                    connections.stale = True
                    result = rows.put_in(cursor, write, expect, self._wall_us())
                    # A claim that finds somebody there before it is a sign of replays: look first, next time.
                    connections.stale = result.landed
                    with commits.mutex:
                        del leads[lead]
                        if commits.queue:
                            commits.elect_and_wake()
                    return result
                commits.withdraw(lead)
            except BaseException as error:
                self._end_alone(lead, error)
        put: PutResult = commits.run(QueueEntry(write, expect))
        return put

    def _end_alone(self, lead: LoneLead, error: BaseException) -> None:
        """A put past the queue was stopped: raises why, unless nothing was written, so that it may be queued."""
        try:
            if lead in self.commits.leads:
                self.connections.end_transaction(broken=breaks_connection(error))
        finally:
            self.commits.withdraw(lead)
        if not isinstance(error, Exception):
            raise error
        if not stopped_before_writing(error):
            raise self.connections.error(error)

    def _perform(self, batch: list[QueueEntry]) -> None:
        """Give each entry its answer or its error. The lead is ours, and with it the writer."""
        connections = self.connections
        patience: BusyWait | None = None
        while True:
            try:
                self._try(batch)
                return
            except DRIVER_ERRORS as error:
                connections.end_transaction(broken=breaks_connection(error))
                if patience is None and self._is_answered_by_peek(batch, error):
                    return
                patience = patience or BusyWait(connections)
                if patience.wait_if_busy(error):
                    continue
                failure: Exception = error
                break
            except Exception as error:
                # Ours, or a write that is none: its own caller hears of it, and not the one who happens to lead.
                connections.end_transaction(broken=False)
                failure = error
                break
            except BaseException:
                connections.end_transaction(broken=False)
                raise
        if len(batch) == 1 or is_about_the_file(failure):
            for entry in batch:
                entry.fail(connections.error(failure))
            return
        # One bad row must not fail the others, and none of them is stored: each for itself.
        for entry in batch:
            entry.again = True
            self._perform([entry])

    def _is_answered_by_peek(self, batch: list[QueueEntry], error: Exception) -> bool:
        """A replay needs no write lock, so it neither waits for one nor fails without: look who stands there."""
        entry = batch[0]
        if len(batch) > 1 or entry.write is None or entry.expect is not None or not stopped_before_writing(error):
            return False
        found = self.connections.find(entry.write.id)
        if found is not None:
            entry.answer = _landed_if_own(entry, PutResult(False, found)) if entry.again else PutResult(False, found)
            entry.done = True
        return found is not None

    def _try(self, batch: list[QueueEntry]) -> None:
        """Perform a batch, once, or raise."""
        connections = self.connections
        cursor = connections.writer or connections.open_writer()
        if cursor.connection.in_transaction:
            connections.end_transaction(broken=False)  # An interrupt came even while another was seen to.
        if failpoints.ARMED:
            failpoints.hit(BEFORE_WRITE)
        connections.stale = True
        if len(batch) > 1:
            self._put_many(cursor, batch)
            return
        entry = batch[0]
        write = entry.write
        if write is not None:
            if self._may_relax:
                connections.relax(cursor, write.relaxed)
            result = rows.put_in(cursor, write, entry.expect, self.environment.wall_us())
            if failpoints.ARMED:
                failpoints.hit(AFTER_COMMIT)
            connections.stale = result.landed
            entry.answer = _landed_if_own(entry, result) if entry.again else result
        elif entry.job is not None:
            entry.answer = entry.job(cursor)
        entry.done = True

    def _put_many(self, cursor: sqlite3.Cursor, batch: list[QueueEntry]) -> None:
        """One transaction for everybody. Nobody has an answer before the commit."""
        writes = [(entry.write, entry.expect) for entry in batch if entry.write is not None]
        if self._may_relax:
            self.connections.relax(cursor, all(write.relaxed for write, _ in writes))
        cursor.execute("BEGIN IMMEDIATE")
        now = self.environment.wall_us()
        results = [rows.put_in(cursor, write, expect, now) for write, expect in writes]
        failpoints.hit(BEFORE_COMMIT)
        cursor.execute("COMMIT")
        failpoints.hit(AFTER_COMMIT)
        for entry, result in zip(batch, results, strict=True):
            entry.answer = _landed_if_own(entry, result) if entry.again else result
            entry.done = True

    # Forking.

    def before_fork(self) -> None:
        """Close everything, and keep it so until the fork is over."""
        self._rested = True
        if self.connections.closed is not None:
            return
        held = QueueEntry(None)
        # Not in time: somebody is stuck in a write, or this very thread is forking in the middle of one.
        self._rested = self.commits.hold(held, REST_SECONDS_MAX)
        if self._rested:
            self._held = held
            self.connections.opening.acquire()
            self._rested = self.connections.rest()

    def after_fork_in_parent(self) -> None:
        """Go on: connections are opened again when they are needed."""
        if self._held is not None:
            self.connections.opening.release()
            self.commits.let_go(self._held)
            self._held = None

    def after_fork_in_child(self) -> None:
        """Begin anew: the threads that held the parent's locks and waited in its queue are not here."""
        parents = self.connections
        self._held = None
        self._start_over()
        self.connections.closed = parents.closed
        if not self._rested:
            # Closing inherited connections, or opening others beside them, would undo the locks of this process.
            _inherited.append(parents)
            self.connections.closed = f"this process was forked while {self.path} was in use: fork first, then open"


def _landed_if_own(entry: QueueEntry, result: PutResult) -> PutResult:
    """A write that is done again after an interrupt may find itself: then it had landed."""
    if result.record is not None and entry.write is not None and result.record.version == entry.write.version:
        return PutResult(True, result.record)
    return result


_inherited: list[Connections] = []
"""Connections of a parent process, kept so that they are never closed here."""
_open_databases: weakref.WeakSet[SqliteDatabase] = weakref.WeakSet()


def _each_database(method: Callable[[SqliteDatabase], None]) -> Callable[[], None]:
    def call() -> None:
        for database in list(_open_databases):
            method(database)

    return call


os.register_at_fork(
    before=_each_database(SqliteDatabase.before_fork),
    after_in_parent=_each_database(SqliteDatabase.after_fork_in_parent),
    after_in_child=_each_database(SqliteDatabase.after_fork_in_child),
)
