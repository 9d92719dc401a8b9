"""
Writes notes to the database. Failures are logged and counted, never raised: the work that is noted goes on.

After a failure nothing is written for half a minute, so that a database that is away costs one wait in that time and
not one per call.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from onceward._core.errors import ConfigurationError
from onceward.journal import views
from onceward.journal.notes import CALL_TYPES, CALLS_BEGUN, CALLS_ENDED, CallNote, JournalNote, Note, is_end, row_of
from onceward.runtime.environment import Environment
from onceward.stores import tables_url
from onceward.stores.tables import Flow, Row, Schema, Sql, SqlSteps, TablesDriver, open_tables, transact
from onceward.stores.tables.sql_steps import declare_failpoints

T = TypeVar("T")

SCHEMA = Schema("journal", "onceward.journal", 2, "the first note makes them")
TABLES = views.TABLES
PAUSE_SECONDS = 30.0
"""After a failure, nothing is tried for so long."""

REST_SECONDS = 1.0
"""How long a fork waits for a transaction that is under way."""

_DATABASE_TIME = "SELECT :now"

log = logging.getLogger("onceward.journal")

declare_failpoints({"journal.write": "the journal is written", "journal.prune": "a batch of the journal is deleted"})


class LazyDriver:
    """
    A database that is opened when it is first needed: one that is away does not keep a program from starting.

    A fork finds it closed, because connections must not be shared with a child, nor SQLite's locks; both sides open it
    again when they next need it. A child that was forked in the middle of a transaction keeps no journal.
    """

    def __init__(self, url: str, environment: Environment, *, create: bool = True) -> None:
        if tables_url(url) is None:
            raise ConfigurationError(
                "a journal is kept on SQLite or PostgreSQL: sqlite:///agent.db or postgresql://..."
            )
        self._url = url
        self._environment = environment
        self._create = create
        self._parents: TablesDriver | None = None
        self._begin()
        _drivers.add(self)

    def _begin(self) -> None:
        self._changing = threading.Condition()
        self._driver: TablesDriver | None = None
        self._users = 0
        self._rested = False

    def transact(self, at: str, steps: Callable[[], SqlSteps[T]]) -> T:
        """Run steps in one transaction."""
        with self._opened() as driver:
            return driver.transact(at, steps)

    def look(self, steps: Callable[[], SqlSteps[T]]) -> T:
        """Run steps that only read."""
        with self._opened() as driver:
            return driver.look(steps)

    def wipe(self) -> None:
        """Delete everything in the tables."""
        with self._opened() as driver:
            driver.wipe()

    def close(self) -> None:
        """See `TablesDriver.close`."""
        with self._changing:
            if self._driver is not None:
                self._driver.close()

    @contextmanager
    def _opened(self) -> Iterator[TablesDriver]:
        with self._changing:
            if self._parents is not None:
                raise ConfigurationError(
                    "this process was forked while the journal was in use: fork first, then use the journal"
                )
            if self._driver is None:
                self._driver = open_tables(self._url, SCHEMA, self._environment, create=self._create)
            driver = self._driver
            self._users += 1
        try:
            yield driver
        finally:
            with self._changing:
                self._users -= 1
                self._changing.notify_all()

    def before_fork(self) -> None:
        """Close everything, and keep it so until the fork is over."""
        self._rested = self._changing.acquire(timeout=REST_SECONDS)
        if not self._rested:
            return
        self._rested = self._changing.wait_for(lambda: not self._users, REST_SECONDS)
        if not self._rested:
            self._changing.release()
        elif self._driver is not None:
            self._driver.close()
            self._driver = None

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._rested:
            self._changing.release()

    def after_fork_in_child(self) -> None:
        """Begin anew: the threads that held the parent's locks are not here."""
        self._parents = None if self._rested else self._driver
        self._begin()


_drivers: weakref.WeakSet[LazyDriver] = weakref.WeakSet()


def _each_driver(method: Callable[[LazyDriver], None]) -> Callable[[], None]:
    def call() -> None:
        for driver in list(_drivers):
            method(driver)

    return call


os.register_at_fork(
    before=_each_driver(LazyDriver.before_fork),
    after_in_parent=_each_driver(LazyDriver.after_fork_in_parent),
    after_in_child=_each_driver(LazyDriver.after_fork_in_child),
)


class WriteFailures:
    """Counts and logs failures to write, and says whether to pause after one."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._until = float("-inf")
        self._counting = threading.Lock()
        self.missed = 0
        """Notes that could not be written, or were not even tried."""

    def is_resting(self) -> bool:
        """Whether a failure was only just now."""
        return self._environment.monotonic() < self._until

    def missing(self, notes: int) -> None:
        """So many notes are lost."""
        with self._counting:
            self.missed += notes

    def tell(self, error: Exception) -> None:
        """Writing failed."""
        self._until = self._environment.monotonic() + PAUSE_SECONDS
        log.warning(
            "onceward: the journal could not be written (%s: %s); the work is not affected, but its attempts are "
            "not recorded for the next %d s (%d entries missed so far)",
            type(error).__name__,
            error,
            PAUSE_SECONDS,
            self.missed,
        )


def write_notes(environment: Environment, failures: WriteFailures, notes: Sequence[JournalNote]) -> Flow[bool]:
    """Write notes, all in one transaction; whether that worked. Never raises an `Exception`."""
    if failures.is_resting():
        failures.missing(len(notes))
        return False
    try:
        yield from transact("journal.write", partial(_note_statements, environment, notes))
    except Exception as error:
        failures.missing(len(notes))
        failures.tell(error)
        return False
    return True


def _note_statements(environment: Environment, notes: Sequence[JournalNote]) -> SqlSteps[None]:
    now = environment.monotonic()
    calls: dict[str, CallNote] = {}
    for note in notes:
        if not isinstance(note, Note):
            calls[note[0]] = note  # The end of an attempt says everything that its beginning said.
        else:
            yield Sql(note.text, {**note.values, "ago": max(0, round((now - note.at) * 1_000_000))})
    if calls:
        yield from _call_statements(environment, now, calls.values())


def _call_statements(environment: Environment, now: float, calls: Iterable[CallNote]) -> SqlSteps[None]:
    """Attempts, many rows at a time."""
    [(wall,)] = yield Sql(_DATABASE_TIME, {})
    process = environment.process().hex()
    begun: list[Row] = []
    ended: list[Row] = []
    for one in calls:
        (ended if is_end(one) else begun).append(row_of(one, now, int(wall), process))
    for text, rows in ((CALLS_BEGUN, begun), (CALLS_ENDED, ended)):
        if rows:
            yield Sql(text, {}, rows, CALL_TYPES)
