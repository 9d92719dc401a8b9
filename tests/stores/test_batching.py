"""What every batch is made of, whichever store it is for; and the queue that a task of an event loop leads."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from onceward._core.errors import StoreUnavailable
from onceward._core.record import PutResult
from onceward.stores import _group_commit
from onceward.stores._event_loop_commit import EventLoopCommit
from onceward.stores._group_commit import PUT_ALONE, GroupCommit, QueueEntry, take_each_id_once, take_in_order
from onceward.testing.store_suite.rows import row


def _claims(*keys: str) -> list[QueueEntry]:
    return [QueueEntry(row("test:batching", key)) for key in keys]


def _keys(entries: Any) -> list[str]:
    return [entry.write.key for entry in entries]


@pytest.mark.fault("a-second-write-to-an-id-goes-into-the-same-batch")
def test_an_id_is_taken_once_and_the_rest_waits_in_order() -> None:
    """
    A second write to an id stays in the queue, before whatever came later.
    """
    entries = _claims("a", "b", "a", "c", "b")

    taken = take_each_id_once(deque(entries))

    assert sorted(_keys(taken.batch)) == ["a", "b", "c"]
    assert list(taken.left) == [entries[2], entries[4]]
    assert [entry.write.id for entry in taken.batch if entry.write] == sorted(
        entry.write.id for entry in taken.batch if entry.write
    )


def test_a_job_goes_alone_and_in_its_turn() -> None:
    """
    What was queued before it goes first, without it; what came after it waits.
    """
    [before, after], job = _claims("a", "b"), QueueEntry(None, job=lambda _: None)

    first = take_each_id_once(deque([before, job, after]))
    second = take_each_id_once(first.left)

    assert (first.batch, second.batch, list(second.left)) == ([before], [job], [after])


@pytest.mark.parametrize("take", [take_each_id_once, partial(take_in_order, size=3)], ids=["each id once", "in order"])
def test_a_batch_has_a_greatest_size(take: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The rest is taken next, and nothing is lost or taken twice.
    """
    monkeypatch.setattr(_group_commit, "BATCH_MAX", 3)
    left, sizes, seen = deque(_claims(*"abcdefgh")), [], []
    while left:
        batch, left = take(left)
        sizes.append(len(batch))
        seen += _keys(batch)

    assert (sizes, sorted(seen)) == ([3, 3, 2], list("abcdefgh"))


def test_a_server_that_keeps_commands_apart_takes_an_id_as_often_as_it_comes() -> None:
    """
    A hot key is replayed to all its callers at once.
    """
    entries = _claims("a", "a", "b", "a")

    assert take_in_order(deque(entries), size=9).batch == entries


def test_claims_of_one_id_follow_the_first_but_changes_do_not() -> None:
    """
    Only what claims where nothing stands can be answered with what stands there afterwards.
    """
    first, second, third = _claims("a", "a", "a")
    third.expect = b"version"

    taken = take_each_id_once(deque([first, second, third]), following=True)

    assert (taken.batch, first.followers, list(taken.left)) == ([first], [second], [third])


class _Server:
    """Answers every put; what it was asked is noted."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.alone: list[str] = []
        self.bad: set[str] = set()

    async def perform(self, batch: list[QueueEntry]) -> None:
        self.asked.append(_keys(batch))
        await asyncio.sleep(0)
        for entry in batch:
            entry.answer = PUT_ALONE if entry.write is None or entry.write.key in self.bad else _landed(entry)
            entry.done = True

    async def put_alone(self, entry: QueueEntry) -> PutResult:
        self.alone += _keys([entry])
        if self.alone.count("bad") == 1 and "bad" in _keys([entry]):
            raise StoreUnavailable("not this one")
        return _landed(entry)


def _landed(entry: QueueEntry) -> PutResult:
    return PutResult(True, entry.write)  # type: ignore[arg-type]  # Any record does.


def _together(server: _Server, keys: list[str]) -> list[Any]:
    async def crowd() -> list[Any]:
        commits = EventLoopCommit(server.perform, server.put_alone)
        futures = [commits.submit(row("test:batching", key), None) for key in keys]
        answers = await asyncio.gather(*futures, return_exceptions=True)
        await commits.finish()
        return answers

    return asyncio.run(crowd())


@pytest.mark.fault("a-crowd-for-one-key-asks-again-and-again", "a-follower-is-told-that-its-own-claim-landed")
def test_a_crowd_for_one_key_asks_once_and_one_of_it_lands() -> None:
    """
    The first lands; the others are shown what it left there.
    """
    server = _Server()

    answers = _together(server, ["hot"] * 5)

    assert server.asked == [["hot"]]
    assert [answer.landed for answer in answers] == [True, False, False, False, False]
    assert len({answer.record.version for answer in answers}) == 1


def test_what_a_batch_cannot_answer_is_put_alone_and_its_followers_too() -> None:
    """
    An error there is its own caller's; whoever followed asks for itself.
    """
    server = _Server()
    server.bad = {"bad"}

    answers = _together(server, ["bad", "good", "bad"])

    assert [type(answer) for answer in answers] == [StoreUnavailable, PutResult, PutResult]
    assert server.alone == ["bad", "bad"]


def test_whoever_is_cancelled_takes_nobody_along() -> None:
    """
    The others are answered, and so is what came later.
    """
    server = _Server()

    async def crowd() -> list[Any]:
        commits = EventLoopCommit(server.perform, server.put_alone)
        futures = [commits.submit(row("test:batching", key), None) for key in "abc"]
        futures[0].cancel()
        answers = await asyncio.gather(*futures, return_exceptions=True)
        later = await commits.submit(row("test:batching", "d"), None)
        return [*answers[1:], later]

    assert [answer.landed for answer in asyncio.run(crowd())] == [True, True, True]


def test_when_the_loop_ends_nobody_waits_for_ever() -> None:
    """
    The task that leads is cancelled with its loop, and so are all that wait for it.
    """
    states = []

    async def never(batch: list[QueueEntry]) -> None:
        await asyncio.get_running_loop().create_future()

    async def crowd() -> None:
        commits = EventLoopCommit(never, _Server().put_alone)
        futures = [commits.submit(row("test:batching", key), None) for key in "aab"]
        await asyncio.sleep(0)
        for task in commits._tasks:
            task.cancel()
        await asyncio.wait(futures)
        states.extend(future.cancelled() for future in futures)

    asyncio.run(crowd())

    assert states == [True, True, True]


def test_an_id_that_is_under_way_waits_with_all_that_is_written_to_it() -> None:
    """
    Whatever may go into a batch: the order of the writes to one id stays.
    """
    entries = _claims("a", "b", "a", "c")
    under_way = {entries[0].write.id}  # type: ignore[union-attr]

    once = take_each_id_once(deque(entries), under_way)
    in_order = take_in_order(deque(entries), under_way, size=9)

    assert (sorted(_keys(once.batch)), _keys(once.left)) == (["b", "c"], ["a", "a"])
    assert (_keys(in_order.batch), _keys(in_order.left)) == (["b", "c"], ["a", "a"])


class _Gates:
    """A server that answers a batch when it is told to; what is with it is noted."""

    def __init__(self) -> None:
        self.under_way: dict[str, asyncio.Future[None]] = {}
        self.sent: list[str] = []

    async def perform(self, batch: list[QueueEntry]) -> None:
        name = "".join(sorted(_keys(batch)))
        self.sent.append(name)
        gate = self.under_way[name] = asyncio.get_running_loop().create_future()
        try:
            await gate
        finally:
            del self.under_way[name]
        for entry in batch:
            entry.answer = _landed(entry)
            entry.done = True

    def answer(self, name: str) -> None:
        self.under_way[name].set_result(None)


async def _rounds() -> None:
    """Everything that can go on without the server."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.fault("two-batches-under-way-have-an-id-in-common")
def test_a_second_batch_sets_out_without_the_ids_of_the_first() -> None:
    """
    Batch two travels while the first one is with the server. A second write to the same id goes when the first is over.
    """
    server = _Gates()

    async def crowd() -> list[str]:
        commits = EventLoopCommit(server.perform, _Server().put_alone, in_flight=2)
        futures = []
        for keys in ("ab", "ac", "d"):
            futures += [commits.submit(row("test:batching", key), b"version") for key in keys]
            await _rounds()
        under_way = list(server.under_way)
        while not all(future.done() for future in futures):
            server.answer(next(iter(server.under_way)))
            await _rounds()
        await commits.finish()
        return under_way

    under_way = asyncio.run(crowd())

    assert under_way == ["ab", "c"]
    assert server.sent == ["ab", "c", "ad"]


@pytest.mark.fault("a-batch-that-fails-leaves-its-callers-waiting")
def test_a_batch_that_fails_is_no_other_ones_affair() -> None:
    """
    Its callers get the error; the one that is under way beside it, and what comes later, are answered.
    """
    server = _Gates()

    async def crowd() -> list[Any]:
        commits = EventLoopCommit(server.perform, _Server().put_alone, in_flight=2)
        futures = []
        for key in "ab":
            futures.append(commits.submit(row("test:batching", key), None))
            await _rounds()
        server.under_way["a"].set_exception(ValueError("broken"))
        await _rounds()
        futures.append(commits.submit(row("test:batching", "c"), None))
        await _rounds()
        for name in list(server.under_way):
            server.answer(name)
        await _rounds()
        return [future.exception() or future.result() if future.done() else None for future in futures]

    answers = asyncio.run(crowd())

    assert [type(answer) for answer in answers] == [StoreUnavailable, PutResult, PutResult]


def test_a_small_batch_waits_for_more_while_a_large_one_is_under_way() -> None:
    """
    One that is less than half as large costs the server more than the wait that it saves; nothing is left behind.
    """
    server = _Gates()

    async def crowd() -> list[str]:
        commits = EventLoopCommit(server.perform, _Server().put_alone, in_flight=2)
        futures = [commits.submit(row("test:batching", key), None) for key in "abcd"]
        await _rounds()
        for key in "ef":
            futures.append(commits.submit(row("test:batching", key), None))
            await _rounds()
        futures.append(commits.submit(row("test:batching", "g"), None))
        await _rounds()
        for name in ("abcd", "ef", "g"):
            server.answer(name)
            await _rounds()
        await asyncio.gather(*futures)
        return server.sent

    assert asyncio.run(crowd()) == ["abcd", "ef", "g"]


class _Threads:
    """Callers in threads, and a server that holds each batch until it is let go."""

    def __init__(self, in_flight: int = 2) -> None:
        self.commits = GroupCommit(self._perform, in_flight=in_flight)
        self.changed = threading.Condition()
        self.under_way: dict[str, list[QueueEntry]] = {}
        self.let_go: set[str] = set()
        self.sent: list[str] = []
        self.over = 0
        self.answers: dict[int, Any] = {}
        self._callers: list[threading.Thread] = []

    def _perform(self, batch: list[QueueEntry]) -> None:
        name = "".join(sorted(_keys(batch)))
        with self.changed:
            self.sent.append(name)
            self.under_way[name] = batch
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: name in self.let_go, 60)
            self.let_go.discard(name)
            self.under_way.pop(name, None)
            self.over += 1
        if "!" in name:
            raise ValueError(name)
        for entry in batch:
            entry.answer = _landed(entry)
            entry.done = True

    def call(self, key: str) -> None:
        """Somebody puts, and is under way or in the queue when this returns."""
        number, entry = len(self._callers), QueueEntry(row("test:batching", key), b"version")

        def put() -> None:
            try:
                self.answers[number] = self.commits.run(entry)
            except Exception as error:
                self.answers[number] = error

        caller = threading.Thread(target=put, daemon=True)
        self._callers.append(caller)
        caller.start()
        self.until(lambda: entry in self.commits.queue or any(entry in one for one in self.under_way.values()))

    def until(self, came: Callable[[], bool]) -> None:
        with self.changed:
            while not came():  # The queue tells nobody: look again and again, with no limit that could be too short.
                self.changed.wait(0.01)

    def answer(self, name: str) -> None:
        self.until(lambda: name in self.under_way)
        with self.changed:
            over = self.over
            self.let_go.add(name)
            self.changed.notify_all()
        self.until(lambda: self.over > over)

    def join(self) -> list[Any]:
        """Answer whatever comes, until everybody has an answer."""
        while any(caller.is_alive() for caller in self._callers):
            with self.changed:
                self.let_go.update(self.under_way)
                self.changed.notify_all()
                self.changed.wait(0.01)
        return [self.answers.get(number) for number in range(len(self._callers))]


@pytest.mark.fault("two-threads-batches-have-an-id-in-common")
def test_threads_have_two_batches_under_way_and_no_id_in_both() -> None:
    """
    The second caller leads at once; the third writes to what the first has under way, and waits for that.
    """
    threads = _Threads()
    threads.call("a")
    threads.call("b")
    threads.call("a")
    threads.call("c")
    threads.answer("b")
    threads.until(lambda: len(threads.sent) == 3)
    before = list(threads.sent)
    answers = threads.join()

    assert before == ["a", "b", "c"]
    assert threads.sent == ["a", "b", "c", "a"]
    assert [answer.landed for answer in answers] == [True] * 4
    assert threads.commits.is_free()


def test_threads_with_one_batch_at_a_time_wait_for_it() -> None:
    """
    That is the rule unless a store asks for more: SQLite has one connection that writes.
    """
    threads = _Threads(in_flight=1)
    for key in "abc":
        threads.call(key)
    threads.answer("a")
    threads.answer("bc")
    threads.join()

    assert threads.sent == ["a", "bc"]


def test_a_threads_batch_that_breaks_is_no_other_ones_affair() -> None:
    """
    Its leader gets the error; what was in the queue is led by somebody else.
    """
    threads = _Threads()
    for key in ("!", "b", "c"):
        threads.call(key)
    threads.answer("!")
    for key in ("c", "b"):
        threads.answer(key)
    answers = threads.join()

    assert [type(answer) for answer in answers] == [ValueError, PutResult, PutResult]
    assert threads.commits.is_free()


def test_two_workers_lead_for_awaiting_callers() -> None:
    """
    A second thread is started when a second batch is to set out, and both serve any loop.
    """
    threads = _Threads()

    async def crowd() -> list[Any]:
        loop = asyncio.get_running_loop()
        futures = []
        for key in "ab":
            future: asyncio.Future[PutResult] = loop.create_future()
            threads.commits.submit(QueueEntry(row("test:batching", key), future=future))
            futures.append(future)
            await asyncio.to_thread(threads.until, lambda name=key: name in threads.under_way)
        for key in "ba":
            await asyncio.to_thread(threads.answer, key)
        return await asyncio.gather(*futures)

    answers = asyncio.run(crowd())

    assert [answer.landed for answer in answers] == [True, True]
    assert len(threads.commits._workers) == 2


async def _put(commits: GroupCommit, *keys: str) -> None:
    """A task that writes one row after the other."""
    for key in keys:
        future: asyncio.Future[PutResult] = asyncio.get_running_loop().create_future()
        commits.submit(QueueEntry(row("test:batching", key), future=future))
        await future


@pytest.mark.fault("a-batch-does-not-wait-for-those-who-come-back")
def test_whoever_was_answered_is_in_the_next_batch() -> None:
    """
    Two tasks have their answers and write again at once; a third came while their first writes were under way.
    """
    threads = _Threads(in_flight=1)
    threads.commits._crowded = True

    async def crowd() -> None:
        tasks = [asyncio.create_task(_put(threads.commits, *keys)) for keys in ("ad", "be")]
        await asyncio.to_thread(threads.until, lambda: "ab" in threads.under_way)
        tasks.append(asyncio.create_task(_put(threads.commits, "c")))
        while not threads.commits.queue:
            await asyncio.sleep(0)
        await asyncio.to_thread(threads.answer, "ab")
        while not all(task.done() for task in tasks):
            with threads.changed:
                threads.let_go.update(threads.under_way)
                threads.changed.notify_all()
            await asyncio.sleep(0.001)

    asyncio.run(crowd())

    assert threads.sent == ["ab", "cde"]


@pytest.mark.fault("a-loop-that-stopped-holds-up-another")
def test_a_loop_that_has_stopped_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It left a write in the queue in front of somebody else's: the worker does not wait for its next round.
    """
    monkeypatch.setattr(_group_commit, "WORKER_IDLE_SECONDS", 3_600.0)
    threads = _Threads(in_flight=1)
    threads.commits._crowded = True
    stopped = asyncio.new_event_loop()
    left = QueueEntry(row("test:batching", "x"), future=stopped.create_future())

    async def crowd() -> bool:
        first = [asyncio.create_task(_put(threads.commits, key)) for key in "ab"]
        await asyncio.to_thread(threads.until, lambda: "ab" in threads.under_way)
        threads.commits.submit(left)
        last = asyncio.create_task(_put(threads.commits, "c"))
        while len(threads.commits.queue) < 2:
            await asyncio.sleep(0)
        await asyncio.to_thread(threads.answer, "ab")
        await asyncio.gather(*first)
        for _ in range(10_000):
            with threads.changed:
                threads.let_go.update(threads.under_way)
                threads.changed.notify_all()
            if last.done():
                return True
            await asyncio.sleep(0.001)
        last.cancel()
        return False

    came = asyncio.run(crowd())
    stopped.close()

    assert came
    assert left.done
