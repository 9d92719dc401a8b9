"""What stands on the server: expiry only where a record may go, indexes that follow, fences that never come back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis_support import SCOPE, indexes, key_of, looking, opened, put_claim, put_settled

from onceward.stores import Selection
from onceward.stores.redis import RedisStore
from onceward.testing.store_suite.rows import HOUR_US, doubted, reclaimed, released, row, settled
from servers.redis import needed, running

needed()


@pytest.fixture
def store() -> Iterator[RedisStore]:
    """A store of this test's own."""
    with opened(running().url()) as made:
        yield made


@pytest.fixture
def client() -> Iterator[Any]:
    """A plain client of the same server."""
    with looking(running()) as made:
        yield made


class TestExpiry:
    """The server may drop a record by itself only when nothing can depend on it any more."""

    def test_only_what_has_ended_expires_and_only_after_its_time(self, store: RedisStore, client: Any) -> None:
        """
        A claim and a doubt stay for ever; a settled or released record goes a minute after it is forgotten.
        """
        claimed = put_claim(store, "claimed", forget=1)
        held = put_claim(store, "doubt")
        in_doubt = store.put(doubted(held)._replace(forget=1), held.version).record
        ended = put_settled(store, "ended", replay=HOUR_US, forget=HOUR_US)
        held = put_claim(store, "free")
        free = store.put(released(held, forget=HOUR_US), held.version).record
        kept = put_settled(store, "kept", replay=None, forget=None)

        left = [client.pttl(key_of(store, found)) for found in (claimed, in_doubt, ended, free, kept)]

        assert [left[0], left[1], left[4]] == [-1, -1, -1]
        assert [3_600_000 < one <= 3_661_000 for one in left[2:4]] == [True, True]

    def test_a_record_that_is_claimed_again_expires_no_more(self, store: RedisStore, client: Any) -> None:
        """
        A claim over a released record has no end that somebody else set.
        """
        held = put_claim(store)
        free = store.put(released(held), held.version).record
        again = store.put(reclaimed(free), free.version).record

        assert client.pttl(key_of(store, again)) == -1
        assert indexes(client, store) == {"ids": 1, "open": 1, "families": 0, "forget": 0, "replay": 0}

    def test_a_life_without_a_sensible_end_is_kept(self, store: RedisStore, client: Any) -> None:
        """
        Ten thousand years from now is for ever.
        """
        ended = put_settled(store, forget=10_000 * 365 * 24 * HOUR_US)

        assert client.pttl(key_of(store, ended)) == -1

    def test_more_time_for_a_family_moves_its_expiry(self, store: RedisStore, client: Any) -> None:
        """
        A step that is extended is not dropped at its old time.
        """
        held = put_claim(store, "step", family=bytes(32))
        ended = store.put(settled(held, replay=HOUR_US, forget=HOUR_US), held.version).record
        store.extend(bytes(32), 5 * HOUR_US, 6 * HOUR_US)

        assert 6 * 3_600_000 < client.pttl(key_of(store, ended)) <= 6 * 3_600_000 + 61_000


class TestAfterTheServerDroppedARecord:
    """Nobody purged it: its time had come, and the server has let go of it."""

    def test_its_traces_are_tidied_and_not_counted(self, store: RedisStore, client: Any) -> None:
        """
        A purge finds nothing to delete, and the indexes are empty afterwards.
        """
        held = put_claim(store, family=bytes(32))
        ended = store.put(settled(held, replay=1, forget=1), held.version).record
        client.delete(key_of(store, ended))
        time.sleep(0.01)

        assert store.scan(b"", 10, Selection()) == []
        assert tuple(store.purge(10)) == (0, 0)
        assert indexes(client, store) == {"ids": 0, "open": 0, "families": 0, "forget": 0, "replay": 0}

    @pytest.mark.parametrize("fence", [1, 2**52, 2**60 + 1])
    def test_its_fence_is_not_given_out_again(self, store: RedisStore, client: Any, fence: int) -> None:
        """
        Not even one that was ahead of the clock, or beyond what a double can count.
        """
        held = put_claim(store, fence=fence)
        ended = store.put(released(held, forget=1), held.version).record
        client.delete(key_of(store, ended))
        again = put_claim(store)

        assert max(fence, held.fence) < again.fence
        if fence > 1:
            assert fence + 1 == again.fence

    def test_it_may_be_claimed_as_if_it_had_never_been(self, store: RedisStore, client: Any) -> None:
        """
        What is absent can be put, and stands in the indexes once.
        """
        ended = put_settled(store)
        client.delete(key_of(store, ended))

        assert True is store.put(row(SCOPE, "k"), None).landed
        assert len(store.scan(b"", 10, Selection())) == 1
        assert len(store.scan(b"", 10, Selection(unsettled=True))) == 1


class TestTheIndexes:
    """They follow every move."""

    def test_a_whole_life_leaves_nothing_behind_but_the_fence_of_its_shard(
        self, store: RedisStore, client: Any
    ) -> None:
        """
        Claimed, settled, shrunk, forgotten: in the end there is what an empty store has, and one number in it, which
        keeps fences rising.
        """
        sizes = []
        empty = sorted(client.scan_iter(match=f"{{{store._server.prefix}:*"))
        held = put_claim(store, family=bytes(32))
        sizes.append(indexes(client, store))
        store.put(settled(held, replay=1, forget=150_000), held.version)
        sizes.append(indexes(client, store))
        time.sleep(0.01)
        shrunk = store.purge(10)
        sizes.append(indexes(client, store))
        time.sleep(0.2)
        forgotten = store.purge(10)
        sizes.append(indexes(client, store))

        assert [tuple(shrunk), tuple(forgotten)] == [(0, 1), (1, 0)]
        assert sizes == [
            {"ids": 1, "open": 1, "families": 1, "forget": 0, "replay": 0},
            {"ids": 1, "open": 0, "families": 1, "forget": 1, "replay": 1},
            {"ids": 1, "open": 0, "families": 1, "forget": 1, "replay": 0},
            {"ids": 0, "open": 0, "families": 0, "forget": 0, "replay": 0},
        ]
        assert sorted(client.scan_iter(match=f"{{{store._server.prefix}:*")) == empty
        assert client.get(key_of(store, held)[:-32] + b"shard") == b"16 %d" % held.fence

    def test_a_purge_does_all_it_may_although_the_server_has_dropped_some(self, store: RedisStore, client: Any) -> None:
        """
        Traces of dropped records at the head of the index do not keep a purge from what stands behind them.
        """
        gone = [put_settled(store, f"gone{n}", replay=1, forget=1) for n in range(30)]
        for found in gone:
            client.delete(key_of(store, found))
        for n in range(5):
            put_settled(store, f"k{n}", replay=1, forget=1)
        time.sleep(0.01)

        assert [store.purge(2).forgotten for _ in range(4)] == [2, 2, 1, 0]
