"""
Writes notes in the background: a queue in memory, and a thread.

So a caller never waits for the disk. In return, `kill -9` loses the notes of the last moments (a fifth of a second,
unless the database is slow). The queue is bounded; notes that do not fit are dropped, counted and logged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onceward.journal.note_writer import WriteFailures, log
from onceward.journal.notes import JournalNote
from onceward.runtime.background_queue import BackgroundQueue
from onceward.runtime.environment import Environment

QUEUE_MAX = 10_000
"""Notes in memory: a few megabytes."""
BATCH = 500
"""Notes in one transaction."""
FLUSH_SECONDS = 0.2
"""How long a note waits for company."""


class NoteQueue(BackgroundQueue[JournalNote]):
    """A queue of notes and its thread, which is started by the first note."""

    def __init__(
        self,
        write: Callable[[list[JournalNote]], bool],
        failures: WriteFailures,
        environment: Environment,
        queue_max: int = QUEUE_MAX,
    ) -> None:
        self._write_failures = failures
        self._sources: list[Callable[[], list[JournalNote]]] = []
        super().__init__(
            write, environment, "onceward-journal", queue_max=queue_max, batch=BATCH, wait_seconds=FLUSH_SECONDS
        )

    def _begin(self) -> None:
        self._more()  # Of a process that was forked: what was under way is its parent's to note.
        self._is_full = False
        super()._begin()

    def ask_for_more(self, source: Callable[[], list[JournalNote]]) -> None:
        """Ask `source` before each writing for notes that nobody has put."""
        self._sources.append(source)

    def put(self, notes: Sequence[JournalNote]) -> bool:
        """Have notes written soon; none: let the sources be asked soon. Never waits. Whether there was room."""
        if super().put(notes):
            return True
        self._write_failures.missing(len(notes))
        if not self._is_full:
            self._is_full = True
            log.warning("onceward: %d journal entries are waiting to be written; further ones are dropped", self._max)
        return False

    def _more(self) -> list[JournalNote]:
        return [note for source in self._sources for note in source()]

    def _taken(self) -> list[JournalNote]:
        self._is_full = False
        return super()._taken()
