"""
Purges behind the answer: a caller never waits for what somebody else left to be deleted.

A gate asks for a purge after every so many runs (`PurgeSchedule`). The blocking one leaves it to a thread of its own,
which lives while it is asked for something and a little longer, and holds the gate weakly; the awaiting one to a task
of the loop that asks. `close` lets a purge that is under way end, because the store is closed next.

What if nobody is left to do it? Where no thread can be started, and where loops end before their purges do (one loop a
call, say), the purge is made within a call, as a table that only grows would be worse than a slow answer in fifty.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from onceward.runtime.processes import fork_count

IDLE_SECONDS = 10.0
"""The thread ends when nothing was asked of it for this long; the next purge starts another."""

WANTED_MAX = 100
"""Purges that wait for their turn: what is asked for is done, since each deletes no more than twice what came in."""

_FAILED = "onceward: a purge failed; no operation is affected"

_log = logging.getLogger("onceward")


class Purger:
    """For threads: one thread per gate. `purge` takes care of its own errors."""

    def __init__(self, purge: Callable[[], None]) -> None:
        self._purge = purge
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = fork_count()
        self._wanted = 0
        self._closed = False
        self._done = threading.Event()
        self._done.set()

    def follow(self) -> None:
        """Purge behind whoever calls this; one after the other, if more are asked for meanwhile."""
        if self._process != fork_count():  # Of a parent process: its thread may have held the lock, and is not here.
            self._process, self._lock, self._thread = fork_count(), threading.Lock(), None
            self._done = threading.Event()
        with self._lock:
            if self._closed:
                return
            self._wanted = min(self._wanted + 1, WANTED_MAX)
            self._done.clear()
            if self._thread is not None and self._thread.is_alive():
                self._wake.set()
                return
            if self._start():
                return
            self._wanted = 0
        self._purge()
        self._done.set()

    def wait(self) -> None:
        """Until everything that was asked for is done: for a test that counts what is left."""
        self._done.wait()

    def close(self) -> None:
        """Let what was asked for end, and stop the thread. A forked child has none to wait for."""
        if self._process != fork_count():
            self._closed = True
            return
        with self._lock:
            self._closed = True
            thread = self._thread
            self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _start(self) -> bool:
        self._wake = threading.Event()
        self._wake.set()
        arguments = (weakref.ref(self), self._wake)
        thread = threading.Thread(target=_keep_purging, args=arguments, name="onceward-purger", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # Too many threads, or the interpreter is about to end.
            return False
        self._thread = thread
        return True

    def _take_turn(self, wake: threading.Event) -> bool:
        """In the thread: purge, if that was asked for. False: nothing was, and the thread ends."""
        with self._lock:
            if not self._closed:
                wake.clear()
            if not self._wanted:
                self._thread = None
                return False
            self._wanted -= 1
            if self._wanted:
                wake.set()
        try:
            self._purge()
        except BaseException:
            _log.exception(_FAILED)
        with self._lock:
            if not self._wanted:
                self._done.set()
        return True


def _keep_purging(purger: weakref.ref[Purger], wake: threading.Event) -> None:
    """Until nobody asks any more. Between two purges only the event is held, so that a gate can go."""
    while True:
        wake.wait(IDLE_SECONDS)
        living = purger()
        if living is None or not living._take_turn(wake):
            return
        del living


class AsyncPurger:
    """For event loops: one task, on the loop that asked for it. `purge` takes care of its own errors."""

    def __init__(self, purge: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._purge = purge
        self._task: asyncio.Task[None] | None = None
        self._wanted = 0

    async def follow(self) -> None:
        """Purge behind whoever awaits this, one after the other. Where the last was cut short, at once."""
        before, loop = self._task, asyncio.get_running_loop()
        if before is not None and not before.done() and (before.get_loop() is loop or before.get_loop().is_running()):
            self._wanted = min(self._wanted + 1, WANTED_MAX)
            return
        if before is not None and (before.cancelled() or not before.done()):
            self._task = None
            await self._purge()
        else:
            self._wanted = 1
            self._task = loop.create_task(self._made())

    async def close(self) -> None:
        """Let a purge of this loop end."""
        await self.wait()

    async def wait(self) -> None:
        """Until a purge of this loop is done."""
        task = self._task
        if task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait((task,))

    async def _made(self) -> None:
        while self._wanted > 0:
            self._wanted -= 1
            try:
                await self._purge()
            except Exception:
                _log.exception(_FAILED)
