"""
Interrupts a statement when its time is over, from a thread of its own.

SQLite asks a progress handler after so many instructions, and an instruction can take milliseconds: ten thousand of
them are half a minute in which nobody asks. An interrupt is seen at the next turn of any loop.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import suppress

from onceward.runtime.environment import Environment

LOOK_SECONDS = 0.01
"""Between two looks at the clock, while a statement runs; while none does, the thread sleeps."""


class StatementTimer:
    """One statement at a time, by the processor time of the thread that made this."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.clock = environment.thread_cpu_clock()
        self._guard = threading.Lock()
        self._watched: tuple[sqlite3.Connection, float] | None = None
        self._begun = threading.Event()
        threading.Thread(target=self._look, name="onceward-statement-timer", daemon=True).start()

    def begin(self, connection: sqlite3.Connection, deadline: float) -> None:
        """Interrupt what runs on this connection, once the clock is past the deadline, until `end`."""
        with self._guard:
            self._watched = connection, deadline
            if not self._begun.is_set():
                self._begun.set()

    def end(self) -> None:
        """It has ended: what comes after is never interrupted."""
        with self._guard:
            self._watched = None

    def _look(self) -> None:
        while True:
            self._begun.wait()
            self._environment.sleep(LOOK_SECONDS)
            with self._guard:
                if self._watched is None:
                    self._begun.clear()
                    continue
                connection, deadline = self._watched
                if self.clock() > deadline:
                    with suppress(sqlite3.Error):
                        connection.interrupt()
