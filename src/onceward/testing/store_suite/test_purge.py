"""Purging: what may be forgotten goes, what has expired shrinks, and everything else stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onceward._core.record import Record
from onceward.testing.store_suite.fixtures import Do, Steps, Together, purge_all
from onceward.testing.store_suite.rows import (
    HOUR_US,
    doubted,
    reclaimed,
    released,
    row,
    settled,
    without_durations,
)
from onceward.testing.store_suite.store_clock import StoreClock

ROUNDS = 20
ENDS = ("to be deleted", "to be shrunk")


def _ended(do: Do, store: Any, scope: str, key: str, **ends: Any) -> Record:
    held = do(store.put(row(scope, key), None)).record
    found: Record = do(store.put(settled(held, **ends), held.version)).record
    return found


class TestForgetting:
    """Rows past their time to be forgotten."""

    def test_settled_and_released_records_go_when_their_time_has_come(
        self, do: Do, store: Any, scope: str, clock: StoreClock
    ) -> None:
        """
        Not before; and then they are gone as if they had never been.
        """
        ended = _ended(do, store, scope, "settled", replay=clock.us(4), forget=clock.us(8))
        held = do(store.put(row(scope, "released"), None)).record
        free = do(store.put(released(held, forget=clock.us(8)), held.version)).record
        purge_all(do, store)
        both = [do(store.load(found.id)) for found in (ended, free)]
        clock.advance(9)
        purge_all(do, store)

        assert [ended.id, free.id] == [found.id for found in both]
        assert [do(store.load(found.id)) for found in (ended, free)] == [None, None]
        assert True is do(store.put(row(scope, "settled"), None)).landed

    def test_claimed_and_in_doubt_records_are_never_touched(
        self, do: Do, store: Any, scope: str, clock: StoreClock
    ) -> None:
        """
        However old: nobody knows yet what became of them.
        """
        ends: dict[str, Any] = {"lease": clock.us(1), "replay": clock.us(1), "forget": clock.us(1), "error": b"{}"}
        claimed = do(store.put(row(scope, "claimed", **ends), None)).record
        held = do(store.put(row(scope, "in doubt"), None)).record
        in_doubt = do(store.put(doubted(held)._replace(**ends), held.version)).record
        clock.advance(2)
        purge_all(do, store)

        assert [without_durations(claimed), without_durations(in_doubt)] == [
            without_durations(do(store.load(found.id))) for found in (claimed, in_doubt)
        ]

    def test_what_is_kept_for_ever_stays(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        A record without a time to be forgotten is not forgotten, and one without an end to its replay not shrunk.
        """
        kept = _ended(do, store, scope, "kept", replay=None, forget=None)
        clock.advance(2)
        purge_all(do, store)

        assert without_durations(kept) == without_durations(do(store.load(kept.id)))

    def test_one_purge_deletes_no_more_than_its_limit(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        A purge is bounded, says what it did, and goes on where it stopped.
        """
        ids = [_ended(do, store, scope, f"k{n}", replay=clock.us(1), forget=clock.us(1)).id for n in range(5)]
        clock.advance(2)

        done = [do(store.purge(2)).forgotten for _ in range(4)]

        assert done == [2, 2, 1, 0]
        assert [do(store.load(id)) for id in ids] == [None] * 5


class TestShrinking:
    """Rows past their retention: a tombstone stays."""

    def test_an_expired_record_keeps_who_it_was_and_loses_what_it_said(
        self, do: Do, store: Any, scope: str, clock: StoreClock
    ) -> None:
        """
        Result, codec and error go; identity, fingerprint, fence and times stay; the version is a new one.
        """
        ended = _ended(do, store, scope, "k", replay=clock.us(1), forget=clock.us(1_000))
        failed = _ended(do, store, scope, "f", replay=clock.us(1), codec=None, result=None, error=b"{}")
        clock.advance(2)

        assert do(store.purge(10)).shrunk == 2
        for before, after in ((ended, do(store.load(ended.id))), (failed, do(store.load(failed.id)))):
            assert before.version != after.version
            assert len(after.version) == 16
            assert without_durations(before)._replace(codec=None, result=None, error=None) == without_durations(
                after
            )._replace(version=before.version)
            assert after.replay_left <= 0 < after.forget_left

    def test_whoever_read_it_before_cannot_replace_it(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        The version that stood there before the purge is no longer the one to name.
        """
        ended = _ended(do, store, scope, "k", replay=clock.us(1), forget=clock.us(1_000))
        clock.advance(2)
        purge_all(do, store)

        assert False is do(store.put(row(scope, "k"), ended.version)).landed

    def test_a_tombstone_is_not_shrunk_again(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        A purge that finds nothing more to do says so, and leaves the version alone.
        """
        ended = _ended(do, store, scope, "k", replay=clock.us(1), forget=clock.us(1_000))
        clock.advance(2)
        purge_all(do, store)
        tombstone = do(store.load(ended.id))

        assert tuple(do(store.purge(10))) == (0, 0)
        assert tombstone.version == do(store.load(ended.id)).version

    def test_one_purge_shrinks_no_more_than_its_limit(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        Shrinking is bounded too.
        """
        for n in range(5):
            _ended(do, store, scope, f"k{n}", replay=clock.us(1), forget=clock.us(1_000))
        clock.advance(2)

        assert [do(store.purge(2)).shrunk for _ in range(4)] == [2, 2, 1, 0]

    def test_what_still_replays_is_left_alone(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        Within retention a purge changes nothing.
        """
        ended = _ended(do, store, scope, "k", replay=clock.us(1_000), forget=clock.us(2_000))
        purge_all(do, store)

        assert without_durations(ended) == without_durations(do(store.load(ended.id)))


class TestRacing:
    """A purge while somebody claims what it has found."""

    @pytest.mark.parametrize("ends", [{"replay": 0, "forget": 0}, {"replay": 0, "forget": HOUR_US}], ids=ENDS)
    def test_what_is_claimed_meanwhile_is_left_alone(
        self, do: Do, store: Any, scope: str, together: Together, ends: dict[str, int]
    ) -> None:
        """
        Deciding and deleting (or shrinking) are one step: a claim that has landed stands, whoever wins the race.
        """
        lost = []
        for number in range(ROUNDS):
            ended = _ended(do, store, scope, f"k{number}", **ends)
            claim = reclaimed(ended)
            standing, _ = together(_once(store.put, claim, ended.version), _once(store.purge, 100))
            found = do(store.load(ended.id))
            if standing.landed and (found is None or found.version != claim.version):
                lost.append(claim.key)

        assert lost == []


def _once(call: Callable[..., Any], *arguments: Any) -> Steps:
    return (yield call(*arguments))
