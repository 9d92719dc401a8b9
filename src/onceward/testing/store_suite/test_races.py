"""Races: however many put at once, each place has one winner, and everybody is told of it."""

from __future__ import annotations

from typing import Any

from onceward._core.record import Record
from onceward.stores import Selection
from onceward.testing.store_suite.fixtures import Do, Steps, Together
from onceward.testing.store_suite.rows import reclaimed, row, settled, without_durations
from onceward.testing.store_suite.store_under_test import StoreUnderTest

THREADS, TASKS = 16, 50

PUTS_MAX = 1_000
"""Of one racer, and more than it can need: each put that is lost is another's win. So a broken store cannot hang it."""


def _crowd(place: StoreUnderTest) -> range:
    return range(THREADS if place.colour == "blocking" else TASKS)


def _put(store: Any, write: Any, expect: bytes | None) -> Steps:
    """Steps of one racer that puts once."""
    return (yield store.put(write, expect))


class TestRacesForOnePlace:
    """Many writers, one id."""

    def test_of_many_claims_of_one_key_one_lands(
        self, do: Do, store: Any, together: Together, scope: str, place: StoreUnderTest
    ) -> None:
        """
        One wins, and every other is shown the winner.
        """
        claims = [row(scope, operation=f"racer {n}") for n in _crowd(place)]

        standings = together(*(_put(store, claim, None) for claim in claims))

        [winner] = [claim for claim, standing in zip(claims, standings, strict=True) if standing.landed]
        assert {(winner.version, winner.operation)} == {(s.record.version, s.record.operation) for s in standings}
        assert winner.version == do(store.load(winner.id)).version

    def test_of_many_changes_from_one_version_one_lands(
        self, do: Do, store: Any, together: Together, scope: str, place: StoreUnderTest
    ) -> None:
        """
        All read the same record, all own it, all put their own ending: one lands, and the others are shown it.
        """
        held = do(store.put(row(scope), None)).record
        endings = [settled(held, result=b"%d" % n) for n in _crowd(place)]

        standings = together(*(_put(store, ending, held.version) for ending in endings))

        [winner] = [ending for ending, standing in zip(endings, standings, strict=True) if standing.landed]
        assert {winner.result} == {standing.record.result for standing in standings}
        assert winner.result == do(store.load(held.id)).result

    def test_a_counter_loses_nothing(self, do: Do, store: Any, together: Together, scope: str) -> None:
        """
        Raised by compare-and-swap from many sides, a counter ends at the sum; each claim's fence is a new one.
        """
        racers, times = 10, 10  # Each step lets one of them pass: the work grows with the square of the racers.
        start = do(store.put(row(scope), None)).record

        fences = _joined(together(*(_count(store, start, times) for _ in range(racers))))

        assert 1 + racers * times == do(store.load(start.id)).attempt
        assert sorted(set(fences)) == sorted(fences)
        assert max(fences) == do(store.load(start.id)).fence

    def test_fences_rise_in_the_order_of_the_claims(self, do: Do, store: Any, together: Together, scope: str) -> None:
        """
        Of two claims of one key, the later has the greater fence, whoever made it.
        """
        start = do(store.put(row(scope), None)).record

        for fences in together(*(_count(store, start, 5) for _ in range(4))):
            assert sorted(set(fences)) == fences


class TestRacesSideBySide:
    """Many writers, many ids: what a store that gathers puts into batches must keep apart."""

    def test_many_keys_at_once_all_land_with_their_own_data(
        self, do: Do, store: Any, together: Together, scope: str, place: StoreUnderTest
    ) -> None:
        """
        Each put is answered with its own record, and each record holds its own data.
        """
        claims = [[_labelled(scope, f"k{n}-{m}") for m in range(6)] for n in _crowd(place)]

        answers = _joined(together(*(_put_all(store, own) for own in claims)))
        writes = _joined(claims)

        assert [True] * len(writes) == [answer.landed for answer in answers]
        assert [_label(write) for write in writes] == [_label(answer.record) for answer in answers]
        assert [_label(write) for write in writes] == [_label(do(store.load(write.id))) for write in writes]

    def test_winners_and_losers_in_one_crowd_are_told_apart(
        self, do: Do, store: Any, together: Together, scope: str, place: StoreUnderTest
    ) -> None:
        """
        Puts that land, puts that are refused and puts of the same key, all at once: each gets its own answer.
        """
        taken = do(store.put(_labelled(scope, "taken"), None)).record
        crowd = _crowd(place)
        writes = [_labelled(scope, f"k{n}" if n % 3 else "taken") for n in crowd]

        answers = together(*(_put(store, write, None) for write in writes))

        assert [bool(n % 3) for n in crowd] == [answer.landed for answer in answers]
        assert [write.key for write in writes] == [answer.record.key for answer in answers]
        assert {without_durations(taken)} == {
            without_durations(answer.record) for answer in answers if not answer.landed
        }

    def test_every_way_of_reading_goes_on_meanwhile(
        self, do: Do, store: Any, together: Together, scope: str, place: StoreUnderTest
    ) -> None:
        """
        Loads, scans, extensions and purges among the puts neither fail nor see half a record.
        """
        writers = [_put_all(store, [_labelled(scope, f"k{n}-{m}") for m in range(5)]) for n in range(8)]
        readers = [_look_around(store, scope) for _ in range(4)]

        seen = _joined(together(*writers, *readers)[8:])

        assert [found.key for found in seen if found.fingerprint[1:] != _mark(found.key)] == []
        assert len(do(store.scan(b"", 100, Selection(scope=scope)))) == 40


def _count(store: Any, start: Record, times: int) -> Steps:
    """Raise the record's attempt so many times, by compare-and-swap; the fences that were given out."""
    found, fences, puts = start, list[int](), 0
    while len(fences) < times:
        puts += 1
        assert puts < PUTS_MAX, "somebody must win each round, so nobody needs this many"
        standing = yield store.put(reclaimed(found), found.version)
        found = standing.record
        if standing.landed:
            fences.append(found.fence)
    return fences


def _put_all(store: Any, writes: list[Any]) -> Steps:
    answers = []
    for write in writes:
        answer = yield store.put(write, None)
        answers.append(answer)
    return answers


def _look_around(store: Any, scope: str) -> Steps:
    seen: list[Record] = []
    for _ in range(5):
        seen += yield store.scan(b"", 100, Selection(scope=scope))
        yield store.extend(bytes(32), 1, 1)
        yield store.purge(10)
        found = yield store.load(row(scope, "k0-0").id)
        seen += [found] if found is not None else []
    return seen


def _joined(lists: list[Any]) -> list[Any]:
    return [one for some in lists for one in some]


def _mark(key: str) -> bytes:
    return key.encode().ljust(32, b"!")


def _labelled(scope: str, key: str) -> Any:
    """A row whose every column tells which key it belongs to."""
    return row(scope, key, operation=key, fingerprint=b"\x01" + _mark(key), family=_mark(key), error=_mark(key))


def _label(one: Any) -> tuple[Any, ...]:
    return (one.id, one.key, one.operation, one.family, one.fingerprint, one.version, one.token, one.error)
