"""
Writes notes to the database. Failures are logged and counted, never raised: the work that is noted goes on.

After a failure nothing is written for half a minute, so that a database that is away costs one wait in that time and
not one per call.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from onceward._core.errors import ConfigurationError
from onceward.journal import views
from onceward.journal.notes import Note, without_superseded
from onceward.runtime.environment import Environment
from onceward.stores import tables_url
from onceward.stores.tables import Flow, Schema, Sql, SqlSteps, TablesDriver, open_tables, transact
from onceward.stores.tables.sql_steps import declare_failpoints

T = TypeVar("T")

SCHEMA = Schema("journal", "onceward.journal", 2, "the first note makes them")
TABLES = views.TABLES
PAUSE_SECONDS = 30.0
"""After a failure, nothing is tried for so long."""

log = logging.getLogger("onceward.journal")

declare_failpoints({"journal.write": "the journal is written", "journal.prune": "a batch of the journal is deleted"})


class LazyDriver:
    """A database that is opened when it is first needed: one that is away does not keep a program from starting."""

    def __init__(self, url: str, environment: Environment, *, create: bool = True) -> None:
        if tables_url(url) is None:
            raise ConfigurationError(
                "a journal is kept on SQLite or PostgreSQL: sqlite:///agent.db or postgresql://..."
            )
        self._url = url
        self._environment = environment
        self._create = create
        self._begin()

    def _begin(self) -> None:
        """Not opened yet: at first, and in a process that was forked, where the parent's connections are not ours."""
        self._pid = os.getpid()
        self._opening = threading.Lock()
        self._driver: TablesDriver | None = None

    def transact(self, at: str, steps: Callable[[], SqlSteps[T]]) -> T:
        """Run steps in one transaction."""
        return self._opened().transact(at, steps)

    def look(self, steps: Callable[[], SqlSteps[T]]) -> T:
        """Run steps that only read."""
        return self._opened().look(steps)

    def wipe(self) -> None:
        """Delete everything in the tables."""
        self._opened().wipe()

    def close(self) -> None:
        """See `TablesDriver.close`."""
        with self._opening:
            if self._driver is not None:
                self._driver.close()

    def _opened(self) -> TablesDriver:
        if self._pid != os.getpid():
            self._parents = self._driver  # Kept, so that nothing of it is closed here.
            self._begin()
        with self._opening:
            if self._driver is None:
                self._driver = open_tables(self._url, SCHEMA, self._environment, create=self._create)
            return self._driver


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
            "onceward: the journal could not be written (%s: %s); the work is not affected, and its attempts are not "
            "noted for the next %d s (%d notes missed so far)",
            type(error).__name__,
            error,
            PAUSE_SECONDS,
            self.missed,
        )


def write_notes(environment: Environment, failures: WriteFailures, notes: list[Note]) -> Flow[bool]:
    """Write notes, all in one transaction; whether that worked. Never raises an `Exception`."""
    if failures.is_resting():
        failures.missing(len(notes))
        return False
    try:
        yield from transact("journal.write", partial(_note_statements, environment, without_superseded(notes)))
    except Exception as error:
        failures.missing(len(notes))
        failures.tell(error)
        return False
    return True


def _note_statements(environment: Environment, notes: list[Note]) -> SqlSteps[None]:
    now = environment.monotonic()
    for note in notes:
        yield Sql(note.text, {**note.values, "ago": max(0, round((now - note.at) * 1_000_000))})
