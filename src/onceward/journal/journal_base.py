"""
`JournalBase`: what the blocking and the async journal share.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from onceward._core.durations import microseconds
from onceward._core.errors import ConfigurationError
from onceward.gate.operator_actions import digest_of_key
from onceward.journal import views
from onceward.journal.call_attempt import GateListener, NoteFactory, Redactor
from onceward.journal.note_queue import NoteQueue
from onceward.journal.note_writer import LazyDriver, WriteFailures, write_notes
from onceward.journal.notes import JournalNote, NoteSubject, run_subject, turn_subject
from onceward.journal.views import CallFilter
from onceward.runtime.environment import REAL, Environment
from onceward.stores.tables import Flow, TablesRunner, transact

Seconds = float | timedelta

RETAIN_SECONDS = 7 * 86_400.0
ROWS_MAX = 1_000_000
"""Attempts that are kept at most: a few hundred megabytes."""


class JournalBase:
    """Makes notes, and writes them in the background; `Journal` and `AsyncJournal` do the rest."""

    def __init__(
        self,
        url: str,
        *,
        scope: str,
        worker: str,
        secret: bytes | None = None,
        redacted: Redactor | None = None,
        environment: Environment = REAL,
        create: bool = True,
    ) -> None:
        self._note_factory = NoteFactory.checked(environment, scope, worker, secret, redacted)
        self._environment = environment
        self._write_failures = WriteFailures(environment)
        self._tables = TablesRunner(LazyDriver(url, environment, create=create))
        self._batches = NoteQueue(self._write_now, self._write_failures, environment)

    @property
    def missed(self) -> int:
        """Notes that could not be written."""
        return self._write_failures.missed

    def ask_for_more(self, source: Callable[[], list[JournalNote]]) -> None:
        """Ask `source` for notes before each writing behind the work: beginnings of what is still under way."""
        self._batches.ask_for_more(source)

    def _write_now(self, notes: list[JournalNote]) -> bool:
        return self._tables.run(self._writing(notes))

    def _writing(self, notes: list[JournalNote]) -> Flow[bool]:
        return write_notes(self._environment, self._write_failures, notes)

    def _listening(self, listener: GateListener) -> GateListener:
        """A listener, asked for what is under way if its notes are written behind the work."""
        if listener.behind:
            self.ask_for_more(listener.begun_meanwhile)
        return listener

    def _run_of(self, id: str, input_ref: str | None) -> NoteSubject:
        return run_subject(self._environment, self._note_factory.scope, id, self._note_factory.worker, input_ref)

    def _turn_of(self, run: str, seq: int) -> NoteSubject:
        return turn_subject(self._environment, self._note_factory.scope, run, seq)


def prune_in_batches(retain: Seconds, rows: int) -> Flow[int]:
    """Delete in small transactions until nothing is left to delete."""
    keep = microseconds(retain, "retain")
    total = 0
    for steps in (partial(views.prune, keep), partial(views.prune_beyond, rows)):
        while deleted := (yield from transact("journal.prune", steps)):
            total += deleted
    return total


def call_filter_of(
    note_factory: NoteFactory, run: str | None, key: str | None, digest: str | None, after: str | None, limit: int
) -> CallFilter:
    """What to look for: a run's attempts, or those at one key."""
    if key is not None and digest is not None:
        raise ConfigurationError("give key or digest, not both")
    at = digest if key is None else digest_of_key(note_factory.scope, key)
    return CallFilter(note_factory.scope, run=run, digest=at, after=after, limit=limit, oldest_first=True)
