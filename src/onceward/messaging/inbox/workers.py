"""
The threads that process events.

They are woken when the same process receives an event, and poll for what other processes received. If a thread ends in
the middle of a handler (its process ended, or was killed), the event's lease runs out and another worker takes it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from onceward._core.errors import ConfigurationError, OncewardError
from onceward.messaging.inbox import event_table
from onceward.messaging.inbox.event_processor import EventProcessor
from onceward.runtime.environment import Environment
from onceward.stores.tables import TablesRunner, transact

THREADS = 4
"""Handlers at once."""
POLL_SECONDS = 1.0
"""Between two looks at the table, if nobody wakes the workers."""
FORGET_SECONDS = 60.0

log = logging.getLogger("onceward.inbox")


class Workers:
    """Threads of one process."""

    def __init__(
        self,
        processor: EventProcessor,
        tables: TablesRunner,
        known: Callable[[], list[tuple[str, str]]],
        environment: Environment,
        threads: int = THREADS,
    ) -> None:
        if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1_000:
            raise ConfigurationError("threads must be a whole number from 1 to 1000: how many handlers run at once")
        self._processor = processor
        self._tables = tables
        self._known = known
        self._environment = environment
        self._wakeup = threading.Event()
        self._stopping = False
        self._forgot = environment.monotonic()
        # Not waited for by a process that ends: what is under way then is as if it had been killed, which is safe.
        self._threads = [
            threading.Thread(target=self._work, name=f"onceward-inbox-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def notify(self) -> None:
        """There is something to do."""
        self._wakeup.set()

    def stop(self, seconds: float) -> bool:
        """Take nothing new, and wait for what is under way; whether all of it ended in time."""
        self._stopping = True
        self._wakeup.set()
        until = self._environment.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - self._environment.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def leave(self) -> None:
        """Take nothing new, and wait for nothing. Nobody is rung, for a bell has a lock: each ends when it looks."""
        self._stopping = True

    def _work(self) -> None:
        while not self._stopping:
            # Cleared before looking: the wait below notices an event that comes afterwards.
            self._wakeup.clear()
            try:
                if self._one():
                    continue
                self._forget()
            except OncewardError as error:
                log.warning("events could not be processed, and will be retried: %s", error)
            except Exception:
                log.exception("a worker failed unexpectedly, and continues")
            if not self._stopping:
                self._environment.wait(self._wakeup, POLL_SECONDS)
        self._wakeup.set()  # For the other threads.

    def _one(self) -> bool:
        claim = self._processor.claim(self._known())
        if claim is None:
            return False
        self._wakeup.set()  # There may be more, for a thread that is idle.
        self._processor.process(claim)
        return True

    def _forget(self) -> None:
        now = self._environment.monotonic()
        if now - self._forgot >= FORGET_SECONDS:
            self._forgot = now
            self._tables.run(transact("inbox.forget", partial(event_table.forget_old_events)))
