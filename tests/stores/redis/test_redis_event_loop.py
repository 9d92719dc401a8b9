"""An event loop that sends its puts by itself: several rounds under way; what goes wrong goes to the pipeline."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis_support import SCOPE, key_of, looking
from test_redis_pipelining import on_its_own_connection

from onceward import AsyncGate
from onceward._core.errors import RecordRefused, StoreCorrupt, StoreFull, StoreUnavailable
from onceward.stores import _redis_event_loop, _redis_line
from onceward.stores._redis_rows import TIME
from onceward.stores.redis import AsyncRedisStore
from onceward.testing.proxy import Proxy
from onceward.testing.store_suite.rows import row, settled
from servers.redis import RedisServer, needed, running, started

needed()

GET = b"$3\r\nGET\r\n"


def played(url: str, play: Callable[[AsyncRedisStore, Any], Awaitable[Any]]) -> Any:
    """Play with a store whose event loop has a connection of its own."""

    async def go() -> Any:
        store = AsyncRedisStore.from_url(url)
        await on_its_own_connection(store)
        lane = store._lanes._lanes[asyncio.get_running_loop()]
        try:
            return await play(store, lane)
        finally:
            await store.close()

    return asyncio.run(go())


class TestTheUsualCourse:
    """Puts of tasks."""

    @pytest.mark.fault("a-batch-waits-for-the-one-before")
    def test_a_second_round_is_sent_while_the_first_is_on_its_way(self) -> None:
        """
        The server's answers are held back: what the next round puts is sent all the same.
        """

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            link.hold()
            first = [store.put(row(SCOPE, f"a{n}"), None) for n in range(5)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            second = [store.put(row(SCOPE, f"b{n}"), None) for n in range(5)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            under_way, unsent = len(lane._asked), len(lane._unsent)
            link.let_go()
            return under_way, unsent, [one.landed for one in await asyncio.gather(*first, *second)]

        with started() as server, Proxy(server.port) as link:
            url = server.url().replace(str(server.port), str(link.port))

            assert played(url, play) == (10, 0, [True] * 10)

    def test_a_crowd_larger_than_the_window_is_answered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        No more than the window is under way; the rest follows.
        """
        monkeypatch.setattr(_redis_event_loop, "WINDOW", 16)
        most = 0

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            nonlocal most
            puts = [store.put(row(SCOPE, f"k{n}"), None) for n in range(500)]
            for put in puts:
                most = max(most, len(lane._asked))
                await put
            return {put.result().landed for put in puts}

        assert (played(running().url(), play), most) == ({True}, 16)

    def test_results_larger_than_a_chunk_arrive_whole(self) -> None:
        """
        Sent in many pieces, and read in many.
        """
        large = bytes(range(256)) * 20_000

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            held = (await store.put(row(SCOPE, "large"), None)).record
            puts = [store.put(settled(held, result=large), held.version)]
            puts += [store.put(row(SCOPE, f"k{n}"), None) for n in range(20)]
            landed = [one.landed for one in await asyncio.gather(*puts)]
            shown = await asyncio.gather(*(store.put(row(SCOPE, "large"), None) for _ in range(3)))
            return landed, [one.record.result == large for one in shown], lane._line is not None

        assert played(running().url(), play) == ([True] * 21, [True] * 3, True)

    @pytest.mark.fault("a-blocked-socket-loses-what-was-left")
    def test_what_the_socket_does_not_take_at_once_is_sent_later(self) -> None:
        """
        The server is stopped until megabytes wait: everything lands, in order, when it goes on.
        """
        large = b"x" * 2_000_000

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            helds = [(await store.put(row(SCOPE, f"k{n}"), None)).record for n in range(6)]
            server.signal(signal.SIGSTOP)
            puts = []
            for held in helds:
                puts.append(store.put(settled(held, result=large), held.version))
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            left = len(lane._left)
            server.signal(signal.SIGCONT)
            told = await asyncio.gather(*puts, return_exceptions=True)
            return left > 0, [getattr(one, "landed", one) for one in told]

        with started() as server:
            assert played(server.url(timeout=20), play) == (True, [True] * 6)


class TestLooks:
    """Tasks that ask for records which were seen settled: each looks, and one time serves all of a round."""

    @pytest.mark.fault("a-row-is-newer-than-its-time")
    def test_one_time_is_asked_for_after_all_rows(self) -> None:
        """
        Four looks and a claim in one round: the time is the last that is asked for, and it is asked for once.
        """
        written: list[bytes] = []

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            await _settle(store, "a", "b", "c", "d")
            write = lane._write
            lane._write = lambda line, data: (written.append(data), write(line, data))
            puts = [store.put(row(SCOPE, key), None) for key in "abecd"]
            lane._flush()
            assert [(data.count(GET), data.count(TIME), data.endswith(TIME)) for data in written] == [(4, 1, True)]
            return [(one.landed, one.record.state) for one in await asyncio.gather(*puts)]

        shown = played(running().url(), play)

        assert shown == [(False, "settled")] * 2 + [(True, "claimed")] + [(False, "settled")] * 2

    def test_what_is_gone_is_claimed(self) -> None:
        """
        The look finds nothing, so the put follows; whoever looked beside it is shown its record.
        """

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            [first, _] = await _settle(store, "a", "b")
            with looking(running()) as client:
                client.delete(key_of(store, first))
            puts = [store.put(row(SCOPE, key), None) for key in "ab"]
            return [(one.landed, one.record.state) for one in await asyncio.gather(*puts)]

        assert played(running().url(), play) == [(True, "claimed"), (False, "settled")]

    @pytest.mark.fault("who-looked-is-left-when-the-line-breaks")
    @pytest.mark.parametrize("rows", [0, 1, 3])
    def test_whoever_waits_for_the_time_is_not_lost(self, rows: int) -> None:
        """
        The connection goes after some rows have come, and before the time: everybody is answered.
        """

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            await _settle(store, "a", "b", "c")
            puts = [store.put(row(SCOPE, key), None) for key in "abc"]
            lane._flush()
            for _ in range(rows):
                lane._read_unusual(lane._asked[0], None)
            waiting = len(lane._looked)
            lane.drop()
            done, _ = await asyncio.wait(puts, timeout=30)
            return waiting, [one.result().record.state for one in puts if one in done]

        assert played(running().url(), play) == (rows, ["settled"] * 3)

    def test_a_time_that_is_refused_is_asked_for_elsewhere(self) -> None:
        """
        An error in the place of the time: the pipeline reads the records, and nobody hears of it.
        """

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            await _settle(store, "a", "b")
            puts = [store.put(row(SCOPE, key), None) for key in "ab"]
            lane._unsent.append(b"*2\r\n$4\r\nTIME\r\n$1\r\nx\r\n")
            lane._looks = False
            lane._asked.append(None)
            return [one.record.state for one in await asyncio.gather(*puts)]

        assert played(running().url(), play) == ["settled"] * 2


async def _settle(store: AsyncRedisStore, *keys: str) -> list[Any]:
    """Records that the store has seen settled."""
    found = []
    for key in keys:
        held = (await store.put(row(SCOPE, key), None)).record
        assert held is not None
        found.append((await store.put(settled(held), held.version)).record)
    return found


class TestTrouble:
    """Told as it is told without a connection of one's own."""

    def test_a_full_server_refuses_claims_and_takes_endings(self) -> None:
        """
        The error of the server, in our words.
        """

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            held = (await store.put(row(SCOPE, "held"), None)).record
            with looking(server) as client:
                client.config_set("maxmemory", 1)
            with pytest.raises(StoreFull):
                await store.put(row(SCOPE, "new"), None)
            return (await store.put(settled(held), held.version)).landed

        with started() as server:
            assert played(server.url(), play) is True

    def test_scripts_that_the_server_forgot_are_taught_again(self) -> None:
        """
        SCRIPT FLUSH under a crowd.
        """

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            with looking(server) as client:
                client.script_flush()
            puts = [store.put(row(SCOPE, f"k{n}"), None) for n in range(50)]
            return {one.landed for one in await asyncio.gather(*puts)}

        with started() as server:
            assert played(server.url(), play) == {True}

    @pytest.mark.fault("what-was-under-way-is-left-when-the-line-breaks")
    def test_a_connection_that_breaks_loses_nobody(self) -> None:
        """
        The server hangs up while fifty puts are under way: each lands once, and each caller is answered.
        """

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            writes = [row(SCOPE, f"k{n}") for n in range(50)]
            puts = [store.put(write, None) for write in writes]
            with looking(server) as client:
                client.client_kill_filter(_type="normal", skipme=True)
            told = await asyncio.gather(*puts, return_exceptions=True)
            shown = [one if isinstance(one, BaseException) else one.record.version for one in told]
            return shown == [write.version for write in writes]

        with started() as server:
            assert played(server.url(), play) is True

    def test_a_server_that_is_killed_is_away_and_comes_back(self) -> None:
        """
        Everybody hears of it, nobody hangs; then the loop gets a connection again.
        """

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            server.kill()
            told = await asyncio.gather(
                *(store.put(row(SCOPE, f"k{n}"), None) for n in range(20)), return_exceptions=True
            )
            server.start()
            await on_its_own_connection(store)
            return {type(one) for one in told}, (await store.put(row(SCOPE, "after"), None)).landed

        with started() as server:
            assert played(server.url(timeout=2), play) == ({StoreUnavailable}, True)

    @pytest.mark.fault("a-silent-server-is-waited-for-on-the-loop")
    def test_a_silent_server_is_given_up(self) -> None:
        """
        Stopped: callers hear after the timeout that what they sent may have landed.
        """

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            server.signal(signal.SIGSTOP)
            try:
                puts = [store.put(row(SCOPE, f"k{n}"), None) for n in range(3)]
                done, late = await asyncio.wait(puts, timeout=60)
            finally:
                server.signal(signal.SIGCONT)
            told = {type(one.exception()) for one in done}
            return told, len(late), (await store.put(row(SCOPE, "after"), None)).landed

        with started() as server:
            assert played(server.url(timeout=0.3), play) == ({StoreUnavailable}, 0, True)

    def test_one_bad_answer_is_its_own_callers_alone(self) -> None:
        """
        Something else under our prefix, and a part that no row can hold.
        """

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            write = row(SCOPE, "spoiled")
            shard = store._server.rows.shard_of(write.id)  # type: ignore[union-attr]
            with looking(running()) as client:
                client.rpush(f"{{{store._server.prefix}:{shard:x}}}:".encode() + write.id, "not ours")
            puts = [store.put(write, None), store.put(row(SCOPE, "long", operation="x" * 70_000), None)]
            puts += [store.put(row(SCOPE, f"k{n}"), None) for n in range(8)]
            told = await asyncio.gather(*puts, return_exceptions=True)
            return [type(one) for one in told[:2]], {one.landed for one in told[2:]}

        assert played(running().url(), play) == ([StoreCorrupt, RecordRefused], {True})

    def test_without_hiredis_a_worker_sends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        redis-py reads the replies, and nothing else changes.
        """
        monkeypatch.setattr(_redis_line, "hiredis", None)

        async def crowd() -> Any:
            async with AsyncGate(running().url(), scope=SCOPE) as gate:
                return await asyncio.gather(*(gate.run(f"k{n}", lambda n=n: n) for n in range(30)))

        assert asyncio.run(crowd()) == list(range(30))


def test_closing_waits_for_what_is_under_way() -> None:
    """
    Fifty puts, and the store is closed at once: they land.
    """

    async def crowd() -> Any:
        store = AsyncRedisStore.from_url(server.url(prefix="shop"))
        await on_its_own_connection(store)
        puts = [store.put(row(SCOPE, f"k{n}"), None) for n in range(50)]
        await store.close()
        return {put.result().landed for put in puts}

    with started() as server:
        assert asyncio.run(crowd()) == {True}
        assert _connections(server) == 0


def _connections(server: RedisServer) -> int:
    with looking(server) as client:
        ours = [one for one in client.client_list() if one["cmd"] != "client|list"]
        return len(ours)


class TestLooksWithoutAClaim:
    """A look at what was seen settled: on the lane, or by the pipeline."""

    @pytest.mark.fault("a-first-call-on-redis-waits-for-a-look")
    @pytest.mark.parametrize("apart", [True, False], ids=["lane", "pipeline"])
    def test_only_what_was_seen_settled_is_looked_at(self, apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Of any other id it is said at once that there is no look; of one that is gone, from the first look on.
        """
        if not apart:
            monkeypatch.setattr(_redis_line, "hiredis", None)

        async def main() -> list[Any]:
            store = AsyncRedisStore.from_url(running().url())
            for number in range(8):
                await store.put(row(SCOPE, f"l{number}"), None)
            held = (await store.put(row(SCOPE, "k"), None)).record
            assert held is not None
            before = store.look(held.id)
            await store.put(settled(held, result=b"7"), held.version)
            looking = [store.look(held.id) for _ in range(5)]
            seen = [await one for one in looking if one is not None]
            await store.erase([held.id])
            gone = store.look(held.id)
            assert gone is not None
            found = [before, [one and one.result for one in seen], await gone, store.look(held.id)]
            await store.close()
            return found

        assert asyncio.run(main()) == [None, [b"7"] * 5, None, None]

    def test_a_look_that_fails_is_no_answer(self) -> None:
        """
        Something else under the record's name: the claim that follows says so.
        """

        async def play(store: AsyncRedisStore, lane: Any) -> Any:
            held = (await store.put(row(SCOPE, "spoilt"), None)).record
            assert held is not None
            await store.put(settled(held), held.version)
            shard = store._server.rows.shard_of(held.id)  # type: ignore[union-attr]
            name = f"{{{store._server.prefix}:{shard:x}}}:".encode() + held.id
            with looking(running()) as client:
                client.delete(name)
                client.rpush(name, "not ours")
            look = store.look(held.id)
            assert look is not None
            return await look

        assert played(running().url(), play) is None
