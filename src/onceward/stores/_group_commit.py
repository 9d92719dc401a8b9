"""
Group commit: the queue in front of the stores. Many callers share one transaction and one sync of the disk.

The first caller leads: it takes what is queued, performs it, gives every caller its result, and hands the lead to the
next in the queue, so that nobody leads for ever. A lone caller finds nobody there and goes past the queue. Awaiting
callers have no thread to lend, so a worker thread leads for them. If the connection itself is async, a task of the
event loop leads (`_event_loop_commit.py`, with the same entries and the same rules for a batch).

    caller A   |-- lead: A ------------------|
    caller B     |-- wait --------------------|-- lead: B, C, D ----------|
    caller C        |-- wait -------------------------------- answered --|
    caller D            |-- wait ---------------------------- answered --|

A store says how a batch is performed, and what goes into one: `take_each_id_once`, for a transaction, or
`take_in_order`, for a server that runs each command by itself. It also says how many batches may be under way at once
(`in_flight`): with two, one travels while the server syncs the other.

    caller A   |-- lead: A ------------------|
    caller B     |-- lead: B ------------------|
    caller C       |-- wait -----------------|-- lead: C, D, E --------------|
    caller D         |-- wait ---------------------------------- answered --|

Rules of a batch, each with a test:

- In a transaction, each id occurs once. A second write to it waits for the next batch, in order.
- No two batches under way have an id in common: writes to one id are performed in the order in which they came.
- A batch that fails is its own callers' affair; another one that is under way does not notice.
- A second batch sets out only when it is at least half as large as the one under way. A smaller one would cost the
  server more than the wait that it saves.
- In a transaction, ids are sorted: batches of several processes touch rows and pages in the same order.
- Its size is limited.
- In a crowd of one event loop, a batch sets out when a round of the loop has brought nobody new: those who were
  answered by the batch before are in it, too.
- No caller gets its result before the commit; if the commit fails, no caller learns that anything landed.
- A caller who is interrupted does not harm the others. A waiter leaves the queue. If the leader is interrupted, the
  entries of its batch without a result go back to the head of the queue and are performed again. That is safe for a
  write, because each carries a version of its own.

Who leads is decided by identity (`entry in leads`), never by a local variable: an interrupt can arrive between any
two instructions, and the cleanup must be able to tell. For the same reason, which ids are under way is never noted, but
read from the batches themselves.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

from onceward._core.errors import OncewardError, StoreUnavailable
from onceward._core.record import Write
from onceward.runtime import failpoints

BATCH_MAX = 256
"""Writes in one transaction. More would hardly make the sync cheaper, and would make the first caller wait."""
WORKER_IDLE_SECONDS = 10.0
"""The worker's thread ends when nothing came for this long; the next awaiting caller starts another."""

ROUNDS_MAX = 4
"""For so many rounds of an event loop a batch waits at most, while each brings more: the first must not wait long."""

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


class LoneLead(QueueEntry):
    """
    The lead of a blocking caller who found nobody there, and goes past the queue with one write.

    Under `mutex` it sees that there are no `leads`, and puts this one there. It writes; then, under the mutex, it takes
    the lead out again, and lets the next one lead if there is a `queue` by then. If anything is raised, `withdraw` puts
    things in order.
    """

    __slots__ = ()
    job = future = wake = error = None
    done = True
    __init__ = object.__init__  # One is made for every put.


def copy_error(error: OncewardError) -> OncewardError:
    """The same error for another caller: raised twice, one object would collect both tracebacks."""
    copied = type(error)(str(error), retry_after_seconds=error.retry_after_seconds)
    copied.__cause__ = error.__cause__
    return copied


class BatchSplit(NamedTuple):
    """What goes into the next batch, and what is left in the queue."""

    batch: list[QueueEntry]
    left: deque[QueueEntry]


NO_IDS: Final[Collection[bytes]] = frozenset()


def take_each_id_once(
    queue: deque[QueueEntry], under_way: Collection[bytes] = NO_IDS, *, following: bool = False
) -> BatchSplit:
    """
    Take from the head of the queue, each id once, sorted; a job goes alone. Ids that are under way wait.

    With `following`, several claims of one id are sent as one. The others get what it finds, as if they had come right
    after it, so a crowd that waits for one result asks for it once. This is only for callers that cannot leave the
    queue. Blocking callers can leave, and then nobody would answer those that follow them.
    """
    taken: dict[bytes, QueueEntry] = {}
    later: deque[QueueEntry] = deque()
    waiting = iter(queue)
    for entry in waiting:
        if entry.write is None or len(taken) == BATCH_MAX:
            if entry.write is None and not taken:
                later.extend(waiting)
                return BatchSplit([entry], later)
            later.append(entry)
            break
        id = entry.write.id
        if id in under_way:
            later.append(entry)
            continue
        first = taken.setdefault(id, entry)
        if first is entry:
            continue
        if not following or first.expect is not None or entry.expect is not None:
            later.append(entry)
        elif first.followers is None:
            first.followers = [entry]
        else:
            first.followers.append(entry)
    later.extend(waiting)
    return BatchSplit([taken[id] for id in sorted(taken)], later)


def take_in_order(queue: deque[QueueEntry], under_way: Collection[bytes] = NO_IDS, *, size: int) -> BatchSplit:
    """The head of the queue, however often an id is in it; ids that are under way wait."""
    if not under_way:
        return BatchSplit(list(islice(queue, size)), deque(islice(queue, size, None)))
    batch: list[QueueEntry] = []
    later: deque[QueueEntry] = deque()
    for entry in queue:
        waits = len(batch) == size or (entry.write is not None and entry.write.id in under_way)
        (later if waits else batch).append(entry)
    return BatchSplit(batch, later)


def ids_of(batches: Iterable[Iterable[QueueEntry]]) -> set[bytes]:
    """The ids that are under way in some batches."""
    return {entry.write.id for batch in batches for entry in batch if entry.write is not None}


def is_worth_sending(waiting: int, batches: Iterable[Collection[QueueEntry]]) -> bool:
    """Whether so many entries are enough for a batch of their own, beside those that are under way."""
    return all(waiting * 2 >= len(batch) for batch in batches)


class GroupCommit:
    """The queue, those who lead, and the workers."""

    def __init__(
        self,
        perform: Callable[[list[QueueEntry]], None],
        take: Callable[[deque[QueueEntry], Collection[bytes]], BatchSplit] = take_each_id_once,
        *,
        in_flight: int = 1,
    ) -> None:
        """`in_flight` is how many batches may be under way: `perform` is called by so many threads at once."""
        self._perform = perform
        """Gives every entry of a batch its result or its error; raises only what does not concern the batch."""
        self._take_from = take
        self._most = in_flight
        self.mutex = threading.Lock()
        """Held while the queue or the leads are looked through or changed, and never for longer."""
        self.queue: deque[QueueEntry] = deque()
        """Who waits to be in a batch."""
        self.leads: dict[QueueEntry, list[QueueEntry]] = {}
        """Who leads, with the batch until its entries have got their results: empty until it has been taken."""
        self._crowded = False
        """Whether the last writes that were queued shared their batch."""
        self._workers: set[threading.Thread] = set()
        self._worker_wake = threading.Lock()
        self._worker_wake.acquire()

    # Blocking callers.

    def run(self, entry: QueueEntry) -> Any:
        """Perform an entry, in this thread or in that of a leader; its result."""
        try:
            with self.mutex:
                alone = not self.leads or (len(self.leads) < self._most and self._may_go_alone(entry))
                if alone:
                    self.leads[entry] = batch = [entry]
            if alone:
                self._perform(batch)
                if failpoints.ARMED:
                    failpoints.hit(BEFORE_ANSWER)
                with self.mutex:
                    self.leads.pop(entry, None)
                    if self.queue:
                        self.elect_and_wake()
            else:
                self._wait_for_lead(entry)
                while not entry.done:
                    if entry in self.leads:
                        self._lead(entry)
                    elif entry.wake is not None:
                        entry.wake.acquire()
        except BaseException:
            self.withdraw(entry)
            raise
        if entry.error is not None:
            raise entry.error
        return entry.answer

    def is_free(self) -> bool:
        """Whether nobody leads just now."""
        return not self.leads

    def hold(self, entry: QueueEntry, seconds: float = -1) -> bool:
        """
        Wait for a lead and keep it, so that no batch sets out meanwhile; whether it came in time.

        If two may be under way, the other one may still be.
        """
        try:
            return self._wait_for_lead(entry, seconds) or not self.withdraw(entry)
        except BaseException:
            self.withdraw(entry)
            raise

    def let_go(self, entry: QueueEntry) -> None:
        """Give up a lead that was held."""
        self.withdraw(entry)

    def _wait_for_lead(self, entry: QueueEntry, seconds: float = -1) -> bool:
        """Queue, and wait for a lead or an answer."""
        with self.mutex:
            if not self.leads:
                self.leads[entry] = []
                self.queue.append(entry)
                return True
            wake = threading.Lock()
            wake.acquire()
            entry.wake = wake
            self.queue.append(entry)
            if len(self.leads) < self._most:
                self.elect_and_wake()
            if self._workers:
                self._wake_if_elsewhere(entry)
        return wake.acquire(timeout=seconds)

    def _lead(self, leader: QueueEntry) -> None:
        """Perform one batch, answer it and hand the lead on."""
        with self.mutex:
            batch = self._take(leader)
        if batch:
            self._perform(batch)
            failpoints.hit(BEFORE_ANSWER)
            self._answer(batch)
        with self.mutex:
            self._hand_on(leader)

    def withdraw(self, entry: QueueEntry) -> bool:
        """Leave the queue without harm to the others; False if the entry was performed already, and has its result."""
        while True:
            with suppress(KeyboardInterrupt):  # Asked twice: still leaving.
                with self.mutex:
                    if entry in self.leads:
                        self._give_back(entry)
                        self._hand_on(entry)
                        return True
                    if entry in self.queue:
                        self.queue.remove(entry)
                        self.elect_and_wake()
                        return True
                    # The interrupt may have come between giving up a lead, choosing the next leader and waking it.
                    self._elect()
                    if (elected := self._elected()) is not None:
                        self._wake(elected)
                    taken = any(entry in batch for batch in self.leads.values())
                # Whether it lands is being decided right now, so wait for that.
                while taken and entry.wake is not None and not entry.done:
                    entry.wake.acquire()
                return False

    # Awaiting callers.

    def submit(self, entry: QueueEntry) -> None:
        """
        Queue an entry whose caller awaits its future.

        In a crowd, the worker is woken when a round of the event loop brings nothing new. By then every task with
        something to write is in the queue, and the worker does not compete with them for the interpreter. A caller from
        another loop or thread wakes the worker at once, because the first loop may have stopped.
        """
        with self.mutex:
            if not self._workers:
                self._start_worker()
            self.queue.append(entry)
            leader = self._elect()
            if leader is None:
                self._wake_if_elsewhere(entry)
            elif self._crowded and leader.future is not None and entry.future is not None:
                entry.future.get_loop().call_soon(self._wake_worker)
            else:
                self._wake(leader)

    def _wake_worker(self, seen: int = 0, rounds: int = 0) -> None:
        """
        Called by the event loop after a round: wake a worker, if it is to lead and the round has brought nobody new.
        """
        with self.mutex:
            elected = self._elected()
            if elected is None or elected.future is None:
                return
            waiting = len(self.queue)
            if waiting > seen and rounds < ROUNDS_MAX:
                asyncio.get_running_loop().call_soon(self._wake_worker, waiting, rounds + 1)
            else:
                self._wake(elected)

    def _wake_if_elsewhere(self, entry: QueueEntry) -> None:
        """Wake a worker if it is to lead for a loop that is not this entry's."""
        leader = self._elected()
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
        self._workers.add(worker)

    def _work(self) -> None:
        """A worker thread: lead for awaiting callers, as long as there are any."""
        while True:
            woken = self._worker_wake.acquire(timeout=WORKER_IDLE_SECONDS)
            with self.mutex:
                leader = self._elected()
                if leader is None or leader.future is None:
                    # Not our turn. As long as awaiting callers are in the queue, our turn will come.
                    if woken or any(entry.future is not None for entry in self.queue):
                        continue
                    self._workers.discard(threading.current_thread())
                    return
                self._take(leader)  # At once: there may be another worker.
            try:
                self._lead(leader)
            except BaseException as error:  # A worker must outlive everything, or its callers wait for ever.
                batch = self.leads.get(leader, [])
                for entry in batch:
                    if not entry.done:
                        entry.fail(StoreUnavailable(f"the batch failed: {error!r}"))
                self._answer(batch)
                with self.mutex:
                    self._hand_on(leader)

    # What every leader does. Under the mutex, all but `_answer`.

    def _may_go_alone(self, entry: QueueEntry) -> bool:
        """Whether an entry can be a batch of its own although another one is under way; there may be one more."""
        if self.queue or entry.write is None:
            return False
        batches = self.leads.values()
        return is_worth_sending(1, batches) and entry.write.id not in ids_of(batches)

    def _elected(self) -> QueueEntry | None:
        """Who leads and has not taken a batch yet: one at most, because it will take whatever is there."""
        return next((leader for leader, batch in self.leads.items() if not batch), None)

    def _elect(self) -> QueueEntry | None:
        """
        Let the first in the queue that need not wait for a batch under way lead, if a lead is free and it is worth it.

        Whoever was chosen has to be woken.
        """
        if len(self.leads) >= self._most or not self.queue or self._elected() is not None:
            return None
        leader: QueueEntry | None = self.queue[0]
        if self.leads:
            batches = self.leads.values()
            if not is_worth_sending(len(self.queue), batches):
                return None
            busy = ids_of(batches)
            leader = next((one for one in self.queue if one.write is None or one.write.id not in busy), None)
        if leader is not None:
            self.leads[leader] = []
            if leader.future is not None and len(self._workers) < len(self.leads):
                with suppress(StoreUnavailable):  # The worker that there is leads for it, after what it does now.
                    self._start_worker()
        return leader

    def elect_and_wake(self) -> None:
        """Let the first who may lead do so, and wake it."""
        if (leader := self._elect()) is not None:
            self._wake(leader)

    def _take(self, leader: QueueEntry) -> list[QueueEntry]:
        """The leader's batch; taken now, unless it was before. Empty if all that is queued has to wait."""
        if batch := self.leads[leader]:
            return batch
        split = self._take_from(self.queue, ids_of(self.leads.values()) if len(self.leads) > 1 else NO_IDS)
        # First here and then out of the queue: an interrupt must find every entry in one of the two.
        self.leads[leader], self.queue = split
        if split.batch and split.batch[0].job is None:
            self._crowded = len(split.batch) > 1
        if self.queue:
            self.elect_and_wake()
        return split.batch

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
        if own in self.queue:
            self.queue.remove(own)
        batch = self.leads[own]
        for entry in reversed(batch):
            if entry is not own and not entry.done and entry not in self.queue:
                entry.again = True
                self.queue.appendleft(entry)
        self._answer([entry for entry in batch if entry is not own and entry.done])

    def _hand_on(self, leader: QueueEntry) -> None:
        """
        The next in the queue leads, if there is one.

        In a crowd of one event loop, those who were just answered are about to write again: the next batch waits for
        them, as `submit` does. One large batch costs far less than two that take turns.
        """
        self.leads.pop(leader, None)
        if not self.queue or (elected := self._elect()) is None:
            return
        loop = self._loop_of_all() if self._crowded and leader.future is not None else None
        if loop is not None:
            with suppress(RuntimeError):  # It was closed.
                loop.call_soon_threadsafe(self._wake_worker)
                return
        self._wake(elected)

    def _loop_of_all(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of all who are queued; None if there are several: one that has stopped would keep others."""
        loops = {None if entry.future is None else entry.future.get_loop() for entry in self.queue}
        return loops.pop() if len(loops) == 1 else None

    def _wake(self, entry: QueueEntry) -> None:
        """Wake a caller, or a worker in its place. Waking once too often does no harm."""
        wake = self._worker_wake if entry.future is not None else entry.wake
        if wake is not None and wake.locked():
            wake.release()


def _deliver(entries: list[QueueEntry]) -> None:
    """On the event loop: hand out what the worker brought."""
    for entry in entries:
        entry.deliver()
