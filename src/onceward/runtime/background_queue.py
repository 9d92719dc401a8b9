"""
`BackgroundQueue`: what is to be done behind the work. A bounded queue in memory, and a thread that takes batches.

Whoever puts something in never waits. In return, `kill -9` loses what was put in the last moments.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from onceward.runtime.environment import Environment
from onceward.runtime.processes import fork_count

T = TypeVar("T")

_log = logging.getLogger("onceward")


class BackgroundQueue(Generic[T]):
    """A queue and its thread, which is started by the first thing put in. A process that was forked begins anew."""

    def __init__(
        self,
        work: Callable[[list[T]], object],
        environment: Environment,
        name: str,
        *,
        queue_max: int,
        batch: int,
        wait_seconds: float,
    ) -> None:
        """`wait_seconds` is how long something waits for company."""
        self._work = work
        self._environment = environment
        self._name = name
        self._max, self._batch, self._wait_seconds = queue_max, batch, wait_seconds
        self._begin()

    def _begin(self) -> None:
        """Empty, and without a thread: at first, and in a process that was forked. The parent does what it had."""
        self._process = fork_count()
        self._queue: list[T] = []
        self._guard = threading.RLock()
        self._changing = threading.Condition(self._guard)
        self._wanted = threading.Event()
        self._busy = False
        self._flushing = 0
        """Who waits for everything that was put in."""
        self._closing = False
        self._thread: threading.Thread | None = None

    def put(self, things: Sequence[T]) -> bool:
        """Have things done soon; whether there was room. Nothing at all: a batch soon, of what `_more` has."""
        if self._process != fork_count():
            self._begin()
        with self._guard:  # The condition's own: to enter that by itself takes longer.
            if self._closing or len(self._queue) + len(things) > self._max:
                return False
            self._queue += things
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
                self._thread.start()
                atexit.register(self.close)  # A program that ends well has it done.
            if len(self._queue) >= self._batch and not self._wanted.is_set():
                self._wanted.set()
            return True

    def take(self) -> list[T]:
        """Take the oldest of what waits, one batch, for somebody who does such work anyway."""
        if self._process != fork_count():
            return []
        with self._changing:
            return self._taken()

    def flush(self) -> None:
        """Wait until everything that was put in is done, or has failed to be."""
        if self._process != fork_count():
            return
        with self._changing:
            self._queue += self._more()
            self._wanted.set()
            self._flushing += 1
            try:
                self._changing.wait_for(lambda: not self._queue and not self._busy)
            finally:
                self._flushing -= 1

    def close(self) -> None:
        """Do what is left, and end. What is put in afterwards is refused."""
        atexit.unregister(self.close)
        if self._process != fork_count():
            return
        with self._changing:
            self._closing = True
            thread = self._thread
        self._wanted.set()
        if thread is not None:
            thread.join()

    def _more(self) -> list[T]:
        """What else is to be done, that nobody has put in."""
        return []

    def _taken(self) -> list[T]:
        """The next batch. What nobody put in comes first: it is older than what waits."""
        more = self._more()
        things, self._queue = self._queue[: self._batch], self._queue[self._batch :]
        return more + things

    def _loop(self) -> None:
        while True:
            self._environment.wait(self._wanted, self._wait_seconds)
            while self._one_batch():
                continue
            with self._changing:
                if self._closing and not self._queue:
                    return
                if not self._closing:
                    self._wanted.clear()

    def _one_batch(self) -> bool:
        """
        Do some; whether there is more to be done now.

        What came in meanwhile waits for company again, unless it is a whole batch or somebody waits for it: a batch
        takes long, and under load a few things have always come in.
        """
        with self._changing:
            things = self._taken()
            self._busy = True
        try:
            if things:
                self._work(things)
        except Exception:
            _log.exception("onceward: %s raised; the work is not affected", self._name)
        finally:
            with self._changing:
                self._busy = False
                self._changing.notify_all()
                left, hurried = len(self._queue), self._closing or self._flushing > 0
        return left >= self._batch or (hurried and left > 0)
