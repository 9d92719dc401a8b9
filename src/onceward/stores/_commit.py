"""
Group commit: many callers, one transaction, one sync of the disk.

Whoever comes first leads: takes what is queued, performs it, answers everybody, and hands the lead to the next in
the queue, so that nobody leads for ever. A lone caller finds the queue empty and is its own batch. Awaiting
callers have no thread to lend, so a worker leads for them.

    caller A   |-- lead: A ------------------|
    caller B     |-- wait --------------------|-- lead: B, C, D ----------|
    caller C        |-- wait -------------------------------- answered --|
    caller D            |-- wait ---------------------------- answered --|

Rules of a batch, each with a test:

- An id is in a batch once. A second write to it waits for the next batch, in order.
- Ids are sorted: batches of several processes touch pages in the same order.
- It has a greatest size.
- Nobody is answered before the commit; if the commit fails, nobody is told that anything landed.
- A caller who is interrupted takes nobody along: a waiter withdraws; a leader's unanswered companions go back to
  the head of the queue and are done again. Doing a write again is safe, because each carries a version of its own.

Who leads is a matter of identity (`_leader is entry`), never of a local variable: an interrupt can arrive between
any two instructions, and what it finds must be enough to clean up.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from onceward import failpoints
from onceward._core.errors import StoreUnavailable
from onceward._core.record import Standing, Write

BATCH_MAX = 256
"""Writes in one transaction: the sync is shared so widely by then that more only makes the first caller wait."""
WORKER_IDLE_SECONDS = 10.0
"""The worker's thread ends when nothing came for this long; the next awaiting caller starts another."""

BEFORE_ANSWER = failpoints.declare("batch.before_answer", "the batch is committed | its callers hear of it")


class Entry:
    """One caller's wish in the queue: a write, or a job that wants the connection for itself."""

    __slots__ = ("again", "answer", "done", "error", "expect", "future", "job", "wake", "write")

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
        """Done once already by a leader that was interrupted: it may have landed."""

    @property
    def wrote(self) -> bool:
        """Whether it changed anything, as far as is known."""
        return not (isinstance(self.answer, Standing) and not self.answer.landed)

    def result(self) -> Any:
        """The answer, or the error raised."""
        if self.error is not None:
            raise self.error
        return self.answer

    def fail(self, error: BaseException) -> None:
        """Note the error."""
        self.error = error
        self.done = True


class GroupCommit:
    """The queue, the lead and the worker."""

    def __init__(self, perform: Callable[[list[Entry]], None]) -> None:
        self._perform = perform
        """Gives every entry of a batch its answer or its error; raises only what is not about the batch."""
        self._mutex = threading.Lock()
        self._queue: deque[Entry] = deque()
        self._leader: Entry | None = None
        self._batch: list[Entry] = []
        """What the leader has taken and not answered yet."""
        self._worker: threading.Thread | None = None
        self._worker_wake = threading.Lock()
        self._worker_wake.acquire()

    # Blocking callers.

    def run(self, entry: Entry) -> Any:
        """Have an entry performed, by this thread or by whoever leads, and answer."""
        if not self.run_if_free(entry):
            try:
                self._wait_for_lead(entry)
                while not entry.done:
                    if self._leader is entry:
                        self._lead()
                    elif entry.wake is not None:
                        entry.wake.acquire()
            except BaseException:
                self._withdraw(entry)
                raise
        return entry.result()

    def run_if_free(self, entry: Entry) -> bool:
        """Perform an entry now, alone, if nobody leads; whether that was so."""
        try:
            with self._mutex:
                if self._leader is not None:
                    return False
                self._leader = entry
                self._batch = batch = [entry]
            self._perform(batch)
            failpoints.hit(BEFORE_ANSWER)
            with self._mutex:
                self._batch = []
                if self._queue:
                    self._hand_on()
                else:
                    self._leader = None
        except BaseException:
            self._withdraw(entry)
            raise
        return True

    def is_free(self) -> bool:
        """Whether nobody leads just now."""
        return self._leader is None

    def hold(self, entry: Entry, seconds: float = -1) -> bool:
        """Wait for the lead and keep it, for what needs the connection at rest; whether it came in time."""
        try:
            return self._wait_for_lead(entry, seconds) or not self._withdraw(entry)
        except BaseException:
            self._withdraw(entry)
            raise

    def let_go(self, entry: Entry) -> None:
        """Give up a lead that was held."""
        self._withdraw(entry)

    def _wait_for_lead(self, entry: Entry, seconds: float = -1) -> bool:
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

    def _withdraw(self, entry: Entry) -> bool:
        """Leave: take nobody along and leave nobody waiting. Whether that was all; otherwise there is an answer now."""
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

    def submit(self, entry: Entry) -> None:
        """
        Queue an entry whose caller awaits its future.

        If nobody leads, the worker is woken at the loop's next turn: by then everybody who is about to ask has asked,
        and they travel together. Woken at once, it would find the first of them only.
        """
        loop = asyncio.get_running_loop()
        with self._mutex:
            if self._worker is None:
                self._start_worker()
            head = self._queue[0].future if self._queue else None
            self._queue.append(entry)
            # Whoever is at the head, on the same loop, has seen to it.
            begins = self._leader is None and (head is None or head.get_loop() is not loop)
        if begins:
            loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Somebody leads from now on, if there is anything to do."""
        with self._mutex:
            if self._leader is None and self._queue:
                self._hand_on()

    def _start_worker(self) -> None:
        worker = threading.Thread(target=self._work, name="onceward-commit", daemon=True)
        try:
            worker.start()
        except RuntimeError as error:
            raise StoreUnavailable(f"no thread could be started to write with: {error}") from error
        self._worker = worker

    def _work(self) -> None:
        """Lead for those who await, for as long as there are any."""
        while True:
            woken = self._worker_wake.acquire(timeout=WORKER_IDLE_SECONDS)
            with self._mutex:
                if self._leader is None and not woken and self._queue:
                    self._leader = self._queue[0]  # Its loop stopped before its next turn.
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

    def _take(self) -> list[Entry]:
        """The next batch: from the head of the queue, each id once, sorted; a job goes alone."""
        taken: dict[bytes, Entry] = {}
        later: deque[Entry] = deque()
        waiting = iter(self._queue)
        for entry in waiting:
            if entry.write is None or len(taken) == BATCH_MAX:
                later.append(entry)
                break
            if entry.write.id in taken:
                later.append(entry)
            else:
                taken[entry.write.id] = entry
        later.extend(waiting)
        batch = [taken[id] for id in sorted(taken)] if taken else [later.popleft()]
        # Together, with nothing in between: an interrupt must find every entry in one of the two.
        self._batch, self._queue = batch, later
        return batch

    def _answer(self, batch: list[Entry]) -> None:
        """Tell everybody in the batch; each event loop is woken once."""
        loops: dict[asyncio.AbstractEventLoop, list[Entry]] = {}
        for entry in batch:
            if entry.future is not None:
                loops.setdefault(entry.future.get_loop(), []).append(entry)
            else:
                self._wake(entry)
        for loop, entries in loops.items():
            with suppress(RuntimeError):  # The loop was closed: nobody is left to hear it.
                loop.call_soon_threadsafe(_deliver, entries)

    def _give_back(self, own: Entry) -> None:
        """Put what has no answer back at the head of the queue, but not the leader's own."""
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

    def _wake(self, entry: Entry) -> None:
        """Let a caller, or the worker in its place, look around. Once too often does no harm."""
        wake = self._worker_wake if entry.future is not None else entry.wake
        if wake is not None and wake.locked():
            wake.release()


def _deliver(entries: list[Entry]) -> None:
    """On the event loop: hand out what the worker brought."""
    for entry in entries:
        future = entry.future
        if future is None or future.done():
            continue
        if entry.error is not None:
            future.set_exception(entry.error)
        else:
            future.set_result(entry.answer)
