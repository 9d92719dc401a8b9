"""
Writes notes in the background: a queue in memory, and a thread.

So a caller never waits for the disk. In return, `kill -9` loses the notes of the last moments (a fifth of a second,
unless the database is slow). The queue is bounded; notes that do not fit are dropped, counted and logged.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable

from onceward.journal.note_writer import WriteFailures, log
from onceward.journal.notes import Note
from onceward.runtime.environment import Environment

QUEUE_MAX = 10_000
"""Notes in memory: a few megabytes."""
BATCH = 500
"""Notes in one transaction."""
FLUSH_SECONDS = 0.2
"""How long a note waits for company."""


class NoteQueue:
    """A queue of notes and its thread, which is started by the first note."""

    def __init__(
        self,
        write: Callable[[list[Note]], bool],
        failures: WriteFailures,
        environment: Environment,
        queue_max: int = QUEUE_MAX,
    ) -> None:
        self._write = write
        self._write_failures = failures
        self._environment = environment
        self._max = queue_max
        self._begin()

    def _begin(self) -> None:
        """Empty, and without a thread: at first, and in a process that was forked. The parent writes what it had."""
        self._pid = os.getpid()
        self._queue: list[Note] = []
        self._changing = threading.Condition()
        self._wanted = threading.Event()
        self._busy = False
        self._is_full = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def put(self, notes: list[Note]) -> None:
        """Have notes written soon. Never waits."""
        if self._pid != os.getpid():
            self._begin()
        with self._changing:
            if self._closing or len(self._queue) + len(notes) > self._max:
                self._write_failures.missing(len(notes))
                if not self._is_full:
                    self._is_full = True
                    log.warning("onceward: %d notes of the journal wait to be written; more are missed", self._max)
                return
            self._queue += notes
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="onceward-journal", daemon=True)
                self._thread.start()
                atexit.register(self.close)  # A program that ends well has its notes written.
            if len(self._queue) >= BATCH:
                self._wanted.set()

    def take(self) -> list[Note]:
        """Take some of what waits, for somebody who writes anyway: the oldest, as many as fit into one transaction."""
        if self._pid != os.getpid():
            return []
        with self._changing:
            notes, self._queue = self._queue[:BATCH], self._queue[BATCH:]
        return notes

    def flush(self) -> None:
        """Wait until everything that was put is written, or has failed to be."""
        if self._pid != os.getpid():
            return
        self._wanted.set()
        with self._changing:
            self._changing.wait_for(lambda: not self._queue and not self._busy)

    def close(self) -> None:
        """Write what is left, and end."""
        atexit.unregister(self.close)
        if self._pid != os.getpid():
            return
        with self._changing:
            self._closing = True
            thread = self._thread
        self._wanted.set()
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while True:
            self._environment.wait(self._wanted, FLUSH_SECONDS)
            while self._one_batch():
                continue
            with self._changing:
                if self._closing and not self._queue:
                    return
                if not self._closing:
                    self._wanted.clear()

    def _one_batch(self) -> bool:
        """Write some; whether there is more."""
        with self._changing:
            notes, self._queue = self._queue[:BATCH], self._queue[BATCH:]
            self._busy, self._is_full = True, False
        try:
            if notes:
                self._write(notes)
        finally:
            with self._changing:
                self._busy = False
                self._changing.notify_all()
        return bool(self._queue)
