"""What every batch is made of, whichever store it is for; and the queue that a task of an event loop leads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from onceward._core.errors import StoreUnavailable
from onceward._core.record import PutResult
from onceward.stores import _group_commit
from onceward.stores._event_loop_commit import EventLoopCommit
from onceward.stores._group_commit import PUT_ALONE, QueueEntry, take_each_id_once, take_in_order
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

    assert take_in_order(deque(entries), 9).batch == entries


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
