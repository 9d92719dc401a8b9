"""
Group commit on an event loop: the queue of `_group_commit.py`, led by tasks, for connections that are awaited.

The first put starts a task; it takes what is queued, has it performed, answers everybody, and goes on until the queue
is empty. A lone put finds the queue empty and is a batch of one. With `in_flight=2`, a second task may send another
batch while the first one's is with the server (the rules are in `_group_commit.py`). The tasks belong to nobody:
whoever is cancelled takes nothing along, so there is no lead to hand on, nobody to withdraw and no lock.

Why no worker thread, as for SQLite and Redis: the connection belongs to the event loop, and a put that has to wait for
a lock waits on a connection of its own, which would be a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial
from typing import Any, Final

from onceward._core.errors import OncewardError, StoreUnavailable
from onceward._core.record import PutResult, Write
from onceward.runtime.flow_driver import UncancellableFuture
from onceward.stores._group_commit import (
    NO_IDS,
    PUT_ALONE,
    BatchSplit,
    QueueEntry,
    copy_error,
    ids_of,
    is_worth_sending,
    take_each_id_once,
)

ONCE_WITH_FOLLOWERS: Final = partial(take_each_id_once, following=True)
"""Claims of one id are sent as one: a caller here cannot leave the queue, so whoever follows it is answered."""


class EventLoopCommit:
    """The queue, and the tasks that lead."""

    def __init__(
        self,
        perform: Callable[[list[QueueEntry]], Awaitable[None]],
        alone: Callable[[QueueEntry], Awaitable[PutResult]] | None = None,
        *,
        take: Callable[[deque[QueueEntry], Collection[bytes]], BatchSplit] = ONCE_WITH_FOLLOWERS,
        in_flight: int = 1,
    ) -> None:
        self._perform = perform
        """Puts a whole batch, and gives every entry its result. Called for so many batches at once as may be."""
        self._alone = alone
        """Puts one entry by itself: one whose result in a batch was `PUT_ALONE`."""
        self._take_from = take
        self._most = in_flight
        self._queue: deque[QueueEntry] = deque()
        self._starting = False
        """Whether a task was started that has not taken its batch yet."""
        self._batches: list[list[QueueEntry]] = []
        """Those that are under way."""
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, write: Write, expect: bytes | None) -> UncancellableFuture[PutResult]:
        """Queue a put. It is under way when this returns, awaited or not."""
        future: UncancellableFuture[PutResult] = UncancellableFuture(loop=asyncio.get_running_loop())
        self.enqueue(QueueEntry(write, expect, future=future))
        return future

    def enqueue(self, entry: QueueEntry) -> None:
        """Queue an entry whose caller awaits its future."""
        self._queue.append(entry)
        if not self._starting and len(self._batches) < self._most and self._is_worth_it():
            self._starting = True
            self._start(self._lead())

    async def finish(self) -> None:
        """Wait for what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _is_worth_it(self) -> bool:
        """Whether what is queued, or enough of it, can be a batch beside those that are under way."""
        return not self._batches or is_worth_sending(len(self._queue), self._batches)

    async def _lead(self) -> None:
        """Send what is queued, batch by batch, until there is nothing left to send just now."""
        batch: list[QueueEntry] = []
        try:
            while self._queue and self._is_worth_it():
                self._starting = False
                batch, self._queue = self._take_from(self._queue, ids_of(self._batches) if self._batches else NO_IDS)
                if not batch:  # What is queued waits for the batch under way: whoever leads that one takes it next.
                    return
                await self._send(batch)
        except asyncio.CancelledError:
            # Only the end of the loop cancels this task: whoever still waits is told that it is over.
            _cancel(*batch, *self._queue)
            self._queue.clear()
            raise
        finally:
            self._starting = False

    async def _send(self, batch: list[QueueEntry]) -> None:
        """Perform one batch and answer it. What it comes to is no other batch's affair."""
        self._batches.append(batch)
        try:
            await self._perform(batch)
        except Exception as error:  # Nobody waits for ever.
            for entry in batch:
                entry.fail(StoreUnavailable(f"the batch failed: {error!r}"))
        finally:
            self._batches.remove(batch)
        for entry in batch:
            answer, future = entry.answer, entry.future
            if entry.error is not None:
                self._answer(entry)
            elif answer is PUT_ALONE:
                self._start(self._put_alone(entry))
            elif entry.followers is not None or future is None:
                self._answer(entry)
            elif not future.done():  # What `_answer` does, for nearly every put.
                future.set_result(answer)

    async def _put_alone(self, entry: QueueEntry) -> None:
        """As patiently as it takes; the error, if there is one, is its caller's alone."""
        try:
            if self._alone is None:
                raise StoreUnavailable("the put was not answered")
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
                asyncio.Future.cancel(one.future)  # Also one that callers cannot cancel.
