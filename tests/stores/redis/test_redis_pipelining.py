"""Pipelining: callers of one moment share a round trip; a lone caller pays for one, and nobody for another's fate."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis_support import SCOPE, key_of, looking, opened, put_claim, put_settled

from onceward import AsyncGate, Gate
from onceward._core.errors import StoreCorrupt
from onceward.runtime import failpoints
from onceward.runtime.environment import Environment
from onceward.stores import _redis_packer
from onceward.stores._group_commit import QueueEntry
from onceward.stores._redis_pipeline import BATCH_MAX, PutRequest
from onceward.stores._settled_ids import SettledIds
from onceward.stores.redis import AsyncRedisStore, RedisStore
from onceward.testing.store_suite.rows import row
from servers.redis import needed, running

needed()


@pytest.fixture
def store() -> Iterator[RedisStore]:
    """A store of this test's own."""
    with opened(running().url()) as made:
        yield made


def trips_of(store: Any) -> list[int]:
    """How many commands each later round trip of a store carries."""
    links, sizes = store._server.connections, []
    exchange = links.exchange

    def counting(commands: Any) -> Any:
        sizes.append(len(commands))
        return exchange(commands)

    links.exchange = counting
    return sizes


async def on_its_own_connection(store: AsyncRedisStore) -> list[int]:
    """Put until the event loop has a connection of its own; how many commands each later write to it carries."""
    loop, sent = asyncio.get_running_loop(), list[int]()
    for number in range(10_000):
        await store.put(row(f"{SCOPE}:first", f"k{number}"), None)
        lane = store._lanes._lanes[loop]
        if lane._line is not None:
            break
        await asyncio.sleep(0.001)
    write = lane._write

    def counting(line: Any, data: bytes) -> None:
        sent.append(data.count(b"$7\r\nEVALSHA\r\n") + data.count(b"$3\r\nGET\r\n"))
        write(line, data)

    lane._write = counting  # type: ignore[method-assign]
    return sent


def gathered(store: Any, calls: list[Callable[[], Any]]) -> list[Any]:
    """Make calls from a thread each, while the lead is held: they are all queued when it is let go of."""
    pipeline, held = store._server.pipeline, QueueEntry(None)
    pipeline.hold(held)
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(call) for call in calls]
        while len(pipeline.queue) < len(calls) + 1:
            threading.Event().wait(0.001)
        pipeline.let_go(held)
        return [one.exception(30) or one.result() for one in running]


class TestALoneCaller:
    """Nobody else is there."""

    def test_an_operation_takes_two_round_trips_and_a_replay_one(self, store: RedisStore) -> None:
        """
        Claim and settle; then the row and the time, in one. Nothing is looked up before a claim.
        """
        with Gate(store, scope=SCOPE) as gate:
            trips = trips_of(store)
            gate.run("k", lambda: "done")
            fresh = list(trips)
            gate.run("k", lambda: "again")

        assert (fresh, trips) == ([1, 1], [1, 1, 2])

    def test_what_was_seen_settled_and_is_gone_is_claimed(self, store: RedisStore) -> None:
        """
        The look finds nothing, so the put follows, in a round trip of its own; and what stands there now is shown.
        """
        found = put_settled(store, "k")
        with looking(running()) as client:
            client.delete(key_of(store, found))
        trips = trips_of(store)
        standings = [store.put(row(SCOPE, "k"), None) for _ in range(2)]

        assert [(one.landed, one.record.state) for one in standings] == [(True, "claimed"), (False, "claimed")]  # type: ignore[union-attr]
        assert trips == [2, 1, 1]

    def test_it_works_without_the_speed_up(self, store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        redis-py alone sends the same.
        """
        monkeypatch.setattr(_redis_packer, "hiredis_pack", None)
        ended = put_settled(store, result=b"\x00\xff" * 5_000)

        assert ended.result == store.load(ended.id).result


def test_a_put_is_an_entry_of_the_queue_like_any_other() -> None:
    """
    It is made at once, without what it inherits: whatever an entry has, it has, too.
    """
    write = row(SCOPE, "k")
    entry, put = QueueEntry(write, b"v"), PutRequest(SettledIds(), write, b"v", None)

    assert {name: getattr(put, name) for name in QueueEntry.__slots__} == {
        name: getattr(entry, name) for name in QueueEntry.__slots__
    }


class TestManyCallers:
    """At the same moment."""

    def test_those_who_wait_share_one_round_trip(self, store: RedisStore) -> None:
        """
        Forty callers that were queued are sent together, and each gets its own answer.
        """
        trips = trips_of(store)
        writes = [row(SCOPE, f"k{n}", operation=f"k{n}") for n in range(40)]

        answers = gathered(store, [lambda write=write: store.put(write, None) for write in writes])

        assert trips == [40]
        assert [write.version for write in writes] == [answer.record.version for answer in answers]

    def test_one_id_may_be_in_a_batch_many_times(self, store: RedisStore) -> None:
        """
        A hot key: one of those who claim it together wins, the others are shown it, all in one round trip.
        """
        trips = trips_of(store)

        answers = gathered(store, [lambda: store.put(row(SCOPE, "hot"), None) for _ in range(20)])

        assert (trips, sum(answer.landed for answer in answers)) == ([20], 1)
        assert len({answer.record.version for answer in answers}) == 1

    def test_a_batch_has_a_greatest_size(self) -> None:
        """
        What is over it goes with the next round trip.
        """

        async def crowd() -> tuple[list[int], list[Any]]:
            store = AsyncRedisStore.from_url(running().url())
            trips = trips_of(store)
            puts = [store.put(row(SCOPE, f"k{n}"), None) for n in range(BATCH_MAX * 2 + 40)]
            answers = await asyncio.gather(*puts)
            await store.close()
            return trips, answers

        trips, answers = asyncio.run(crowd())

        assert max(trips) <= BATCH_MAX
        assert len(trips) <= 10
        assert {answer.landed for answer in answers} == {True}

    def test_one_bad_answer_is_its_own_callers_alone(self, store: RedisStore) -> None:
        """
        A key that something else has written to is an error for whoever asks for it; its neighbours land.
        """
        spoiled = put_claim(store, "spoiled")
        with looking(running()) as client:
            client.delete(key_of(store, spoiled))
            client.rpush(key_of(store, spoiled), "not ours")

        calls = [lambda n=n: store.put(row(SCOPE, "spoiled" if n == 3 else f"k{n}"), None) for n in range(8)]
        answers = gathered(store, calls)

        assert StoreCorrupt is type(answers[3])
        assert [answer.landed for n, answer in enumerate(answers) if n != 3] == [True] * 7

    def test_an_interrupted_leader_takes_nobody_along(self, store: RedisStore) -> None:
        """
        Ctrl-C strikes the caller that leads, after the server has answered: the others are sent again, and recognised.
        """
        writes = [row(SCOPE, f"k{n}") for n in range(8)]
        struck: list[int] = []

        def strike() -> None:
            if not struck:
                struck.append(1)
                raise KeyboardInterrupt

        failpoints.arm("redis.put.after", strike)
        try:
            answers = gathered(store, [lambda write=write: store.put(write, None) for write in writes])
        finally:
            failpoints.disarm()

        [leader] = [n for n, answer in enumerate(answers) if isinstance(answer, KeyboardInterrupt)]
        others = [n for n in range(8) if n != leader]
        assert [writes[n].version for n in others] == [answers[n].record.version for n in others]
        assert writes[leader].version == store.load(writes[leader].id).version


class TestAwaitingCallers:
    """Tasks of one event loop, or of several."""

    def test_a_cancelled_caller_takes_nobody_along(self) -> None:
        """
        Half of a crowd is cancelled as soon as it has asked: what is under way lands, and the other half is answered.
        """

        async def crowd() -> tuple[list[Any], list[Any]]:
            store = AsyncRedisStore.from_url(running().url())
            await on_its_own_connection(store)
            writes = [row(SCOPE, f"k{n}") for n in range(60)]

            async def put(write: Any) -> Any:
                return await store.put(write, None)

            tasks = [asyncio.ensure_future(put(write)) for write in writes]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            found = [await store.load(write.id) for write in writes]
            await store.close()
            return answers, [one.version == write.version for one, write in zip(found, writes, strict=True)]

        answers, landed = asyncio.run(crowd())

        assert [answer.landed for answer in answers[1::2]] == [True] * 30
        assert {asyncio.CancelledError} == {type(answer) for answer in answers[::2]}
        assert landed == [True] * 60

    def test_one_store_serves_two_event_loops(self) -> None:
        """
        Two threads with a loop each share a store: each loop gets its own answers.
        """
        store = AsyncRedisStore.from_url(running().url())

        async def crowd(name: str) -> list[str]:
            puts = [store.put(row(SCOPE, f"{name}{n}", operation=f"{name}{n}"), None) for n in range(40)]
            return [standing.record.operation for standing in await asyncio.gather(*puts)]

        with ThreadPoolExecutor(2) as pool:
            told = list(pool.map(lambda name: asyncio.run(crowd(name)), ("left", "right")))
        asyncio.run(store.close())

        assert [[f"{name}{n}" for n in range(40)] for name in ("left", "right")] == told

    def test_fifty_tasks_share_writes_to_the_socket(self) -> None:
        """
        Fifty operations at once: what a round of the event loop puts is one write, and no put waits for a batch.
        """

        async def crowd() -> tuple[list[int], list[Any], list[int]]:
            store = AsyncRedisStore.from_url(running().url())
            trips, sent = trips_of(store), await on_its_own_connection(store)
            trips.clear()
            gate = AsyncGate(store, scope=SCOPE)
            told = await asyncio.gather(*(gate.run(f"k{n}", lambda n=n: n) for n in range(50)))
            await gate.close()
            await store.close()
            return sent, told, trips

        sent, told, trips = asyncio.run(crowd())

        assert told == list(range(50))
        assert sum(sent) >= 100
        assert len(sent) <= 25
        assert sum(trips) < 50  # A purge comes by from time to time, through the pipeline; puts do not.


class TestACallersClock:
    """A day off, either way."""

    @pytest.mark.requirement("E35")
    @pytest.mark.parametrize("off", [-86_400, 86_400])
    def test_it_is_not_asked(self, store: RedisStore, off: int) -> None:
        """
        The times in a record are the server's, whatever the caller's host believes.
        """
        ended = put_settled(store, "theirs")
        with opened(running().url(prefix=store._server.prefix), environment=_Off(off)) as wrong:
            found = put_settled(wrong, "ours")

        assert abs(found.first_at - ended.first_at) < 60_000_000
        assert abs(found.replay_left - ended.replay_left) < 60_000_000


class _Off(Environment):
    """An environment whose wall clock is wrong."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds

    def wall_us(self) -> int:
        return super().wall_us() + self._seconds * 1_000_000
