"""Fences: the number that a claim is given only ever rises for its key, whatever happened to the one before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onceward.testing.store_suite.fixtures import Do, purge_all
from onceward.testing.store_suite.rows import reclaimed, released, row, settled
from onceward.testing.store_suite.store_clock import StoreClock


class TestRising:
    """Claims are written with `rise`."""

    def test_a_fence_is_never_below_the_stores_clock(self, do: Do, store: Any, scope: str) -> None:
        """
        The first fence of a key is the store's clock in microseconds: above all that were given out before.
        """
        found = do(store.put(row(scope), None)).record

        assert found.first_at <= found.fence
        assert found.fence == do(store.load(found.id)).fence

    def test_a_fence_is_never_below_what_is_asked_for(self, do: Do, store: Any, scope: str) -> None:
        """
        The claimant names the least fence it can do with; a clock that is behind it does not matter.
        """
        assert do(store.put(row(scope, fence=2**61), None)).record.fence == 2**61

    def test_it_rises_with_every_claim(self, do: Do, store: Any, scope: str) -> None:
        """
        Claimed, released and claimed again within the same instant: three claims, three fences, in order.
        """
        found = do(store.put(row(scope), None)).record
        fences = [found.fence]
        for _ in range(3):
            free = do(store.put(released(found), found.version)).record
            found = do(store.put(reclaimed(free), free.version)).record
            fences.append(found.fence)

        assert sorted(set(fences)) == fences

    def test_it_stays_where_it_is_in_every_other_write(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        Settling, releasing and renewing are the same holder's: the fence is its own, and does not move.
        """
        held = do(store.put(row(scope), None)).record
        clock.advance(2)
        ended = do(store.put(settled(held), held.version)).record

        assert held.fence == ended.fence == do(store.load(held.id)).fence


class TestAfterAPurge:
    """The row is gone; what it knew of fences must not be."""

    def test_no_fence_is_given_out_again(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        A key that was released, forgotten and purged gets a greater fence than it ever had.
        """
        fence = _claimed_and_purged(do, store, scope, clock)

        assert fence < do(store.put(row(scope), None)).record.fence

    def test_not_even_a_fence_ahead_of_the_clock(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        A fence that was ahead of the clock is remembered when its row is purged.
        """
        fence = _claimed_and_purged(do, store, scope, clock, fence=2**52)

        assert fence < do(store.put(row(scope), None)).record.fence

    def test_not_even_if_the_clock_is_set_back(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        The clock goes back by sixty days after the purge: the next fence is greater all the same.
        """
        if not clock.still:
            pytest.skip("a server's clock cannot be set back from here")
        fence = _claimed_and_purged(do, store, scope, clock)
        clock.environment.jump(timedelta(days=-60))

        assert fence < do(store.put(row(scope), None)).record.fence

    def test_not_to_anybody_who_opens_the_store_afterwards(
        self, do: Do, store: Any, another: Any, scope: str, clock: StoreClock
    ) -> None:
        """
        The purge was somebody else's: what it remembered is the store's, and not the process's.
        """
        fence = _claimed_and_purged(do, store, scope, clock, fence=2**52)

        assert fence < do(another.put(row(scope), None)).record.fence


def _claimed_and_purged(do: Do, store: Any, scope: str, clock: StoreClock, fence: int = 1) -> int:
    """Claim, release, forget and purge the key; says which fence it had."""
    held = do(store.put(row(scope, fence=fence), None)).record
    do(store.put(released(held, forget=clock.us(1)), held.version))
    clock.advance(2)
    purge_all(do, store)

    assert None is do(store.load(held.id))
    return int(held.fence)
