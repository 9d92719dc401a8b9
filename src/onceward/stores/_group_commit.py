"""
Group commit: the queue in front of the stores. Many callers share one transaction and one sync of the disk.

The first caller leads: it takes what is queued, performs it, gives every caller its result, and hands the lead to the
next in the queue, so that nobody leads for ever. A lone caller finds the queue empty and is its own batch. Awaiting
callers have no thread to lend, so a worker thread leads for them. If the connection itself is async, a task of the
event loop leads (`_event_loop_commit.py`, with the same entries and the same rules for a batch).

    caller A   |-- lead: A ------------------|
    caller B     |-- wait --------------------|-- lead: B, C, D ----------|
    caller C        |-- wait -------------------------------- answered --|
    caller D            |-- wait ---------------------------- answered --|

A store says how a batch is performed, and what goes into one: `take_each_id_once`, for a transaction, or
`take_in_order`, for a server that runs each command by itself.

Rules of a batch, each with a test:

- In a transaction, each id occurs once. A second write to it waits for the next batch, in order.
- There, ids are sorted: batches of several processes touch rows and pages in the same order.
- Its size is limited.
- No caller gets its result before the commit; if the commit fails, no caller learns that anything landed.
- A caller who is interrupted does not harm the others. A waiter leaves the queue. If the leader is interrupted, the
  entries of its batch without a result go back to the head of the queue and are performed again. That is safe for a
  write, because each carries a version of its own.

Who leads is decided by identity (`_leader is entry`), never by a local variable: an interrupt can arrive between any
two instructions, and the cleanup must be able to tell.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

from onceward._core.errors import OncewardError, StoreUnavailable
from onceward._core.record import PutResult, Write
from onceward.runtime import failpoints

BATCH_MAX = 256
"""Writes in one transaction. More would hardly make the sync cheaper, and would make the first caller wait."""
WORKER_IDLE_SECONDS = 10.0
"""The worker's thread ends when nothing came for this long; the next awaiting caller starts another."""

BEFORE_ANSWER = failpoints.declare("batch.before_answer", "the batch is committed | its callers hear of it")


PUT_ALONE: Final = object()
"""The result of a put that the batch could not decide: it has to be put by itself."""


class QueueEntry:
    """One caller in the queue: a write, or a job that needs the connection for itself."""

    __slots__ = ("again", "answer", "done", "error", "expect", "followers", "future", "job", "wake", "write")

    def __init__(
        self,
        write: Write | None,
        expect: bytes | None = None,
        *,
        job: Callable[[Any], Any] | None = None,
        future: asyncio.Future[Any] | None = None,
    ) -> None:
        self.write = write
        self.expect = expect
        self.job = job
        self.future = future
        """Where an awaiting caller waits; None for a blocking one."""
        self.wake: threading.Lock | None = None
        """The lock a blocking caller waits on: held until there is an answer, or the lead."""
        self.answer: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.again = False
        """Whether an interrupted leader has performed it before: it may have landed."""
        self.followers: list[QueueEntry] | None = None
        """Claims of the same id that get their result from this one: see `take_each_id_once`."""

    @property
    def wrote(self) -> bool:
        """Whether it changed anything, as far as is known."""
        return type(self.answer) is not PutResult or self.answer.landed

    def fail(self, error: BaseException) -> None:
        """Note the error."""
        self.error = error
        self.done = True

    def deliver(self) -> None:
        """Set the caller's future, on its event loop, unless nobody waits any more."""
        future = self.future
        if future is None or future.done():
            return
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self.answer)


def copy_error(error: OncewardError) -> OncewardError:
    """The same error for another caller: raised twice, one object would collect both tracebacks."""
    copied = type(error)(str(error), retry_after_seconds=error.retry_after_seconds)
    copied.__cause__ = error.__cause__
    return copied


class BatchSplit(NamedTuple):
    """What goes into the next batch, and what is left in the queue."""

    batch: list[QueueEntry]
    left: deque[QueueEntry]


def take_each_id_once(queue: deque[QueueEntry], *, following: bool = False) -> BatchSplit:
    """
    Take from the head of the queue, each id once, sorted; a job goes alone.

    With `following`, several claims of one id are sent as one. The others get what it finds, as if they had come right
    after it, so a crowd that waits for one result asks for it once. This is only for callers that cannot leave the
    queue. Blocking callers can leave, and then nobody would answer those that follow them.
    """
    taken: dict[bytes, QueueEntry] = {}
    later: deque[QueueEntry] = deque()
    waiting = iter(queue)
    for entry in waiting:
        if entry.write is None or len(taken) == BATCH_MAX:
            later.append(entry)
            break
        first = taken.setdefault(entry.write.id, entry)
        if first is entry:
            continue
        if not following or first.expect is not None or entry.expect is not None:
            later.append(entry)
        elif first.followers is None:
            first.followers = [entry]
        else:
            first.followers.append(entry)
    later.extend(waiting)
    return BatchSplit([taken[id] for id in sorted(taken)] if taken else [later.popleft()], later)


def take_in_order(queue: deque[QueueEntry], size: int) -> BatchSplit:
    """The head of the queue."""
    return BatchSplit(list(islice(queue, size)), deque(islice(queue, size, None)))


class GroupCommit:
    """The queue, the lead and the worker."""

    def __init__(
        self,
        perform: Callable[[list[QueueEntry]], None],
        take: Callable[[deque[QueueEntry]], BatchSplit] = take_each_id_once,
    ) -> None:
        self._perform = perform
        """Gives every entry of a batch its result or its error; raises only what does not concern the batch."""
        self._take_from = take
        self._mutex = threading.Lock()
        self._queue: deque[QueueEntry] = deque()
        self._leader: QueueEntry | None = None
        self._batch: list[QueueEntry] = []
        """The leader's batch, until its entries have got their results."""
        self._crowded = False
        """Whether the last writes that were queued shared their batch."""
        self._worker: threading.Thread | None = None
        self._worker_wake = threading.Lock()
        self._worker_wake.acquire()

    # Blocking callers.

    def run(self, entry: QueueEntry) -> Any:
        """Perform an entry, in this thread or in that of the leader; its result."""
        try:
            with self._mutex:
                alone = self._leader is None
                if alone:
                    self._leader = entry
                    self._batch = [entry]
            if alone:
                self._perform([entry])
                failpoints.hit(BEFORE_ANSWER)
                with self._mutex:
                    self._hand_on()
            else:
                self._wait_for_lead(entry)
                while not entry.done:
                    if self._leader is entry:
                        self._lead()
                    elif entry.wake is not None:
                        entry.wake.acquire()
        except BaseException:
            self._withdraw(entry)
            raise
        if entry.error is not None:
            raise entry.error
        return entry.answer

    def is_free(self) -> bool:
        """Whether nobody leads just now."""
        return self._leader is None

    def hold(self, entry: QueueEntry, seconds: float = -1) -> bool:
        """Wait for the lead and keep it, so that nobody else uses the connection; whether it came in time."""
        try:
            return self._wait_for_lead(entry, seconds) or not self._withdraw(entry)
        except BaseException:
            self._withdraw(entry)
            raise

    def let_go(self, entry: QueueEntry) -> None:
        """Give up a lead that was held."""
        self._withdraw(entry)

    def _wait_for_lead(self, entry: QueueEntry, seconds: float = -1) -> bool:
        """Queue, and wait for the lead or an answer."""
        with self._mutex:
            if self._leader is None:
                self._leader = entry
                self._queue.append(entry)
                return True
            wake = threading.Lock()
            wake.acquire()
            entry.wake = wake
            self._queue.append(entry)
            self._wake_if_elsewhere(entry)
        return wake.acquire(timeout=seconds)

    def _lead(self) -> None:
        """Perform one batch, answer it and hand the lead on."""
        with self._mutex:
            batch = self._take()
        self._perform(batch)
        failpoints.hit(BEFORE_ANSWER)
        self._answer(batch)
        with self._mutex:
            self._hand_on()

    def _withdraw(self, entry: QueueEntry) -> bool:
        """Leave the queue without harm to the others; False if the entry was performed already, and has its result."""
        while True:
            with suppress(KeyboardInterrupt):  # Asked twice: still leaving.
                with self._mutex:
                    if self._leader is entry:
                        self._give_back(entry)
                        self._hand_on()
                        return True
                    if entry in self._queue:
                        self._queue.remove(entry)
                        return True
                    if self._leader is not None and not self._batch:
                        self._wake(self._leader)  # The interrupt may have come between choosing and waking it.
                    taken = entry in self._batch
                # Whether it lands is being decided right now, so wait for that.
                while taken and entry.wake is not None and not entry.done:
                    entry.wake.acquire()
                return False

    # Awaiting callers.

    def submit(self, entry: QueueEntry) -> None:
        """
        Queue an entry whose caller awaits its future.

        In a crowd, the worker is woken after one round of the event loop. By then every task with something to write is
        in the queue, and the worker does not compete with them for the interpreter. A caller from another loop or
        thread wakes the worker at once, because the first loop may have stopped.
        """
        with self._mutex:
            if self._worker is None:
                self._start_worker()
            self._queue.append(entry)
            if self._leader is not None:
                self._wake_if_elsewhere(entry)
                return
            self._leader = entry
            if self._crowded and entry.future is not None:
                entry.future.get_loop().call_soon(self._wake_worker)
            else:
                self._wake(entry)

    def _wake_worker(self) -> None:
        """Called by the event loop after one round: wake the worker, if it is to lead."""
        with self._mutex:
            if self._leader is not None and self._leader.future is not None:
                self._wake(self._leader)

    def _wake_if_elsewhere(self, entry: QueueEntry) -> None:
        """Wake the worker if it is to lead for a loop that is not this entry's."""
        leader = self._leader
        if leader is None or leader.future is None:
            return
        if entry.future is None or entry.future.get_loop() is not leader.future.get_loop():
            self._wake(leader)

    def _start_worker(self) -> None:
        worker = threading.Thread(target=self._work, name="onceward-commit", daemon=True)
        try:
            worker.start()
        except RuntimeError as error:
            raise StoreUnavailable(f"no thread could be started to write with: {error}") from error
        self._worker = worker

    def _work(self) -> None:
        """The worker thread: lead for awaiting callers, as long as there are any."""
        while True:
            woken = self._worker_wake.acquire(timeout=WORKER_IDLE_SECONDS)
            with self._mutex:
                if not self._queue or self._leader is not self._queue[0] or self._leader.future is None:
                    # Not our turn. As long as awaiting callers are in the queue, our turn will come.
                    if woken or any(entry.future is not None for entry in self._queue):
                        continue
                    self._worker = None
                    return
            try:
                self._lead()
            except BaseException as error:  # A worker must outlive everything, or its callers wait for ever.
                for entry in self._batch:
                    if not entry.done:
                        entry.fail(StoreUnavailable(f"the batch failed: {error!r}"))
                self._answer(self._batch)
                with self._mutex:
                    self._hand_on()

    # What every leader does. Under the mutex, all but `_answer`.

    def _take(self) -> list[QueueEntry]:
        """The next batch."""
        # Together, with nothing in between: an interrupt must find every entry in one of the two.
        self._batch, self._queue = self._take_from(self._queue)
        if self._batch[0].job is None:
            self._crowded = len(self._batch) > 1
        return self._batch

    def _answer(self, batch: list[QueueEntry]) -> None:
        """Wake every caller in the batch; each event loop is woken once."""
        loops: dict[asyncio.AbstractEventLoop, list[QueueEntry]] = {}
        for entry in batch:
            if entry.future is not None:
                loops.setdefault(entry.future.get_loop(), []).append(entry)
            else:
                self._wake(entry)
        for loop, entries in loops.items():
            with suppress(RuntimeError):  # The loop was closed: nobody is left to hear it.
                loop.call_soon_threadsafe(_deliver, entries)

    def _give_back(self, own: QueueEntry) -> None:
        """Put entries without a result back at the head of the queue, except the leader's own."""
        if own in self._queue:
            self._queue.remove(own)
        for entry in reversed(self._batch):
            if entry is not own and not entry.done and entry not in self._queue:
                entry.again = True
                self._queue.appendleft(entry)
        self._answer([entry for entry in self._batch if entry is not own and entry.done])

    def _hand_on(self) -> None:
        """The next in the queue leads, if there is one."""
        self._batch = []
        self._leader = self._queue[0] if self._queue else None
        if self._leader is not None:
            self._wake(self._leader)

    def _wake(self, entry: QueueEntry) -> None:
        """Wake a caller, or the worker in its place. Waking once too often does no harm."""
        wake = self._worker_wake if entry.future is not None else entry.wake
        if wake is not None and wake.locked():
            wake.release()


def _deliver(entries: list[QueueEntry]) -> None:
    """On the event loop: hand out what the worker brought."""
    for entry in entries:
        entry.deliver()
