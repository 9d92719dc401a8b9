"""
Watches for the commit of an atomic run. Then listeners get its events, and now and then a little is purged.

A transaction that the gate opened is committed when the run ends. Of the caller's own transaction only the database
knows. So the record is looked up, on the gate's own connection, until it is there (committed), or the transaction has
ended without it (rolled back: there is nothing to tell).

This only keeps books: what goes wrong here is logged, and never reaches the caller's transaction.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from onceward._core import record
from onceward._core.events import Event
from onceward._core.flow import AfterCommit
from onceward._core.store_protocols import AsyncStore, Store
from onceward.runtime.environment import Environment

POLL_SECONDS_FIRST = 0.02
POLL_SECONDS_MAX = 2.0
"""Seconds between looks at a transaction that is still open: soon at first, then seldom."""

FOLLOW_SECONDS_MAX = 600.0
"""A transaction that is open for longer is not followed any more: its runs are kept, and nobody is told of them."""

FOLLOWED_MAX = 1_000
"""Runs that are followed at one time; of more, the oldest are let go of."""

_log = logging.getLogger("onceward")


class PendingCommit(NamedTuple):
    """A run in a transaction of the caller's own."""

    after: AfterCommit
    joined: Any
    since: float
    tidies: bool
    """Whether a purge is due once it is committed."""


class _CommitWatcherBase:
    """What both colours share."""

    def __init__(self, environment: Environment, tell: Callable[[Event], None]) -> None:
        self._environment = environment
        self._tell = tell

    def followed(self, after: AfterCommit, joined: Any, *, tidies: bool) -> PendingCommit:
        """A run that is to be followed from now on."""
        return PendingCommit(after, joined, self._environment.monotonic(), tidies)

    def is_decided(self, one: PendingCommit, found: record.Record | None, *, was_over: bool) -> bool:
        """
        Whether it is known what became of a run; if it was committed, everybody is told.

        `was_over` is from before the record was looked up: then that look was the last one needed.
        """
        if not record.belongs_to_another(found, one.after.token) and record.is_settled(found):
            self.committed(one.after)
            return True
        return was_over or self._environment.monotonic() - one.since > FOLLOW_SECONDS_MAX

    def committed(self, after: AfterCommit) -> None:
        """It is committed."""
        for event in after.events:
            self._tell(event)


def _is_over(joined: Any) -> bool:
    """Whether the transaction that was joined has ended; False if that cannot be seen."""
    try:
        return bool(joined.is_over())
    except Exception:  # A connection that was closed, or is in other hands.
        return True


class CommitWatcher(_CommitWatcherBase):
    """For threads: one thread of its own, there while something is followed."""

    def __init__(
        self, environment: Environment, store: Store, tell: Callable[[Event], None], tidy: Callable[[], None]
    ) -> None:
        super().__init__(environment, tell)
        self._store = store
        self._tidy = tidy
        self._followed: deque[PendingCommit] = deque(maxlen=FOLLOWED_MAX)
        self._lock = threading.Lock()
        self._looking = threading.RLock()  # A listener that is told may close the gate.
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def follow(self, after: AfterCommit, joined: Any, *, tidies: bool) -> None:
        """Find out whether a run is committed, and tell the listeners."""
        with self._lock:
            self._followed.append(self.followed(after, joined, tidies=tidies))
            if self._thread is not None and self._thread.is_alive():
                return
            thread = threading.Thread(target=self._work, name="onceward-afterwards", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                _log.exception("onceward: no thread could be started; listeners hear of an atomic run later")
            else:
                self._thread = thread

    def _look(self) -> bool:
        """Look once at everything that is followed; whether anything is left. Called by the thread, or by a test."""
        for _ in range(len(self._followed)):
            one = self._followed.popleft()
            try:
                was_over = _is_over(one.joined)
                if not self.is_decided(one, self._store.load(one.after.id), was_over=was_over):
                    self._followed.append(one)
                elif one.tidies:
                    self._tidy()
            except Exception:
                _log.exception(
                    "onceward: the outcome of an atomic run could not be looked up; listeners miss this event"
                )
        return bool(self._followed)

    def close(self) -> None:
        """Look a last time, and stop; a look of the thread's ends first, because the store is closed next."""
        self._closed.set()
        with self._looking:
            if self._followed:
                self._look()

    def _work(self) -> None:
        pause = POLL_SECONDS_FIRST
        while not self._closed.wait(pause):
            with self._looking:
                # Closed meanwhile: what was left has been looked at, and the store may be gone.
                left = not self._closed.is_set() and self._look()
            if not left:
                with self._lock:
                    if not self._followed:
                        self._thread = None
                        return
            pause = min(pause * 2, POLL_SECONDS_MAX)


class AsyncCommitWatcher(_CommitWatcherBase):
    """For event loops: one task for each run that is followed, on the loop that it ran in."""

    def __init__(
        self,
        environment: Environment,
        store: AsyncStore,
        tell: Callable[[Event], None],
        tidy: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(environment, tell)
        self._store = store
        self._tidy = tidy
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, after: AfterCommit, joined: Any, *, tidies: bool) -> None:
        """Find out whether a run is committed, and tell the listeners."""
        if len(self._tasks) >= FOLLOWED_MAX:
            return
        one = self.followed(after, joined, tidies=tidies)
        task = asyncio.get_running_loop().create_task(self._work(one))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look(self, one: PendingCommit) -> bool:
        """Look once at a run; whether it is known what became of it."""
        was_over = _is_over(one.joined)
        if not self.is_decided(one, await self._store.load(one.after.id), was_over=was_over):
            return False
        if one.tidies:
            await self._tidy()
        return True

    async def close(self) -> None:
        """Look a last time at what is followed in this loop, and stop."""
        own = {task for task in self._tasks if task.get_loop() is asyncio.get_running_loop()}
        for task in own:
            task.cancel()
        await asyncio.gather(*own, return_exceptions=True)

    async def _work(self, one: PendingCommit) -> None:
        pause = POLL_SECONDS_FIRST
        try:
            while True:
                await _pause(pause)
                if await self._look(one):
                    return
                pause = min(pause * 2, POLL_SECONDS_MAX)
        except asyncio.CancelledError:
            await self._last_look(one)
            raise
        except Exception:
            _log.exception("onceward: the outcome of an atomic run could not be looked up; listeners miss this event")

    async def _last_look(self, one: PendingCommit) -> None:
        try:
            await self._look(one._replace(tidies=False))
        except Exception:
            _log.warning("onceward: the outcome of an atomic run can no longer be looked up")


async def _pause(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    timer = loop.call_later(seconds, _set, over)
    try:
        await over
    finally:
        timer.cancel()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
