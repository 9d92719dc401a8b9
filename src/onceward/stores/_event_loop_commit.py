"""
Group commit on an event loop: the queue of `_group_commit.py`, led by a task, for connections that are awaited.

The first put starts the task; it takes what is queued, has it performed, answers everybody, and goes on until the queue
is empty. A lone put finds the queue empty and is a batch of one. The task belongs to nobody: whoever is cancelled takes
nothing along, so there is no lead to hand on, nobody to withdraw and no lock.

Why no worker thread, as for SQLite and Redis: the connection belongs to the event loop, and a put that has to wait for
a lock waits on a connection of its own, which would be a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from onceward._core.errors import OncewardError, StoreUnavailable
from onceward._core.record import PutResult, Write
from onceward.stores._group_commit import PUT_ALONE, QueueEntry, copy_error, take_each_id_once


class EventLoopCommit:
    """The queue, and the task that leads."""

    def __init__(
        self,
        perform: Callable[[list[QueueEntry]], Awaitable[None]],
        alone: Callable[[QueueEntry], Awaitable[PutResult]],
    ) -> None:
        self._perform = perform
        """Puts a whole batch, and gives every entry its result."""
        self._alone = alone
        """Puts one entry by itself: one whose result in a batch was `PUT_ALONE`."""
        self._queue: deque[QueueEntry] = deque()
        self._leads = False
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, write: Write, expect: bytes | None) -> asyncio.Future[PutResult]:
        """Queue a put. It is under way when this returns, awaited or not."""
        future: asyncio.Future[PutResult] = asyncio.get_running_loop().create_future()
        self._queue.append(QueueEntry(write, expect, future=future))
        if not self._leads:
            self._leads = True
            self._start(self._lead())
        return future

    async def finish(self) -> None:
        """Wait for what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _lead(self) -> None:
        """Send what is queued, batch by batch, until there is nothing left."""
        batch: list[QueueEntry] = []
        try:
            while self._queue:
                batch, self._queue = take_each_id_once(self._queue, following=True)
                await self._perform(batch)
                for entry in batch:
                    if entry.answer is PUT_ALONE:
                        self._start(self._put_alone(entry))
                    else:
                        self._answer(entry)
        except asyncio.CancelledError:
            # Only the end of the loop cancels this task: whoever still waits is told that it is over.
            _cancel(*batch, *self._queue)
            self._queue.clear()
            raise
        finally:
            self._leads = False

    async def _put_alone(self, entry: QueueEntry) -> None:
        """As patiently as it takes; the error, if there is one, is its caller's alone."""
        try:
            entry.answer = await self._alone(entry)
        except asyncio.CancelledError:
            # Only the end of the loop cancels this task: whoever waits for it must not wait for ever.
            _cancel(entry)
            raise
        except Exception as error:
            entry.error = error if isinstance(error, OncewardError) else StoreUnavailable(f"the put failed: {error!r}")
            entry.deliver()
            for follower in entry.followers or ():
                # What befell the first may be its own affair: the others ask for themselves.
                self._start(self._put_alone(follower))
        else:
            self._answer(entry)

    def _answer(self, entry: QueueEntry) -> None:
        """Tell whoever is still there; those who followed are shown what stands there now."""
        entry.deliver()
        for follower in entry.followers or ():
            if isinstance(entry.error, OncewardError):
                follower.error = copy_error(entry.error)
            else:
                follower.answer = PutResult(False, entry.answer.record)
            follower.deliver()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _cancel(*entries: QueueEntry) -> None:
    for entry in entries:
        for one in (entry, *(entry.followers or ())):
            if one.future is not None:
                one.future.cancel()
