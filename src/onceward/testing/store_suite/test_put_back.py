"""Putting back what the store forgot, and erasing so that it stays erased."""

from __future__ import annotations

from typing import Any

import pytest

from onceward._core.record import Record, State, Write, record_from_write
from onceward.stores import Selection
from onceward.testing.store_suite.fixtures import Do, Steps, Together
from onceward.testing.store_suite.rows import (
    HOUR_US,
    doubted,
    random_token,
    released,
    row,
    settled,
    without_durations,
)

ROUNDS = 20
PUTS_MAX = 100


def forgotten(scope: str, key: str = "k") -> Record:
    """A claim that was held, and of which the store knows nothing."""
    return record_from_write(row(scope, key), now=1_700_000_000_000_000, fence=1_700_000_000_000_000)


def mark(write: Write, *, life: int | None = HOUR_US, number: int = 0) -> Write:
    """The mark of an erasure, as a write looks for it: a record whose id begins as the write's does."""
    id = write.id[:1] + bytes((number,)) + random_token() + bytes(14)
    return row("erasure", kind="erasure")._replace(
        id=id, state=State.RELEASED.value, guarantee="repeatable", lease=None, forget=life
    )


class TestPuttingBack:
    """`put_back`: where nothing stands, and nothing was erased."""

    def test_an_ending_is_put_where_nothing_stands(self, do: Do, store: Any, scope: str) -> None:
        """
        What the store forgot stands there again, with the fence that its holder had, and is what is read from then on.
        """
        write = settled(forgotten(scope))

        standing = do(store.put_back(write, (mark(write).id,)))

        assert True is standing.landed
        assert (write.fence, write.version) == (standing.record.fence, standing.record.version)
        assert without_durations(standing.record) == without_durations(do(store.load(write.id)))

    def test_what_stands_there_is_left_alone(self, do: Do, store: Any, scope: str) -> None:
        """
        Somebody has claimed it since: that claim stands, and whoever wanted to put back is shown it.
        """
        write = settled(forgotten(scope))
        claim = do(store.put(row(scope), None)).record

        standing = do(store.put_back(write, (mark(write).id,)))

        assert False is standing.landed
        assert (
            without_durations(claim)
            == without_durations(standing.record)
            == without_durations(do(store.load(write.id)))
        )

    def test_put_back_twice_it_lands_once_and_is_recognised(self, do: Do, store: Any, scope: str) -> None:
        """
        Sent again after its answer was lost, it finds itself.
        """
        write = settled(forgotten(scope))
        do(store.put_back(write, ()))

        again = do(store.put_back(write, ()))

        assert write.version == again.record.version

    @pytest.mark.parametrize("number", [0, 1])
    def test_a_mark_keeps_it_from_landing(self, do: Do, store: Any, scope: str, number: int) -> None:
        """
        Erased stays erased: each of the marks that it looks for is enough, and nothing is left behind.
        """
        write = settled(forgotten(scope))
        marks = [mark(write, number=0), mark(write, number=1)]
        do(store.put(marks[number], None))

        standing = do(store.put_back(write, [one.id for one in marks]))

        assert standing == (False, None)
        assert None is do(store.load(write.id))

    def test_another_mark_does_not(self, do: Do, store: Any, scope: str) -> None:
        """
        What somebody else has erased is no concern of this record.
        """
        write = settled(forgotten(scope))
        do(store.put(mark(write, number=1), None))

        assert True is do(store.put_back(write, (mark(write).id,))).landed

    def test_a_mark_whose_time_is_over_does_not(self, do: Do, store: Any, scope: str) -> None:
        """
        A mark counts for as long as it says, purged or not; and one that is put again counts again.
        """
        write = settled(forgotten(scope))
        over = mark(write, life=0)
        do(store.put(over, None))
        landed = do(store.put_back(write, (over.id,))).landed
        do(store.erase([write.id]))
        stands = do(store.load(over.id))
        do(store.put(over._replace(version=random_token(), forget=HOUR_US), stands.version))

        assert True is landed
        assert False is do(store.put_back(write, (over.id,))).landed

    def test_a_mark_may_be_put_where_none_was_found(self, do: Do, store: Any, scope: str) -> None:
        """
        Looking for a mark that is not there leaves nothing that would be in the way of one.
        """
        write = settled(forgotten(scope))
        later = mark(write)
        do(store.put_back(write, (later.id,)))
        standing = do(store.put(later, None))
        if not standing.landed:
            standing = do(store.put(later, standing.record.version))
        do(store.erase([write.id]))

        assert True is standing.landed
        assert False is do(store.put_back(write, (later.id,))).landed

    def test_a_claim_where_a_mark_stands_lands(self, do: Do, store: Any, scope: str) -> None:
        """
        Whoever was erased may come again: a new claim looks for no mark.
        """
        write = row(scope)
        do(store.put(mark(write), None))

        assert True is do(store.put(write, None)).landed

    def test_with_a_mark_what_stands_there_is_shown_whole(self, do: Do, store: Any, scope: str) -> None:
        """
        Erased, and claimed anew since: whoever wants to put back is shown that claim, with all of its fields.
        """
        write = settled(forgotten(scope))
        erasure = mark(write)
        do(store.put(erasure, None))
        claim = do(store.put(row(scope, holder=b"somebody"), None)).record

        standing = do(store.put_back(write, (erasure.id,)))

        assert False is standing.landed
        assert (claim.version, claim[-4:]) == (standing.record.version, standing.record[-4:])
        assert without_durations(claim) == without_durations(standing.record)

    def test_whoever_marks_and_then_erases_leaves_nothing(
        self, do: Do, store: Any, together: Together, scope: str
    ) -> None:
        """
        Putting back races with an erasure, which puts its mark and then erases what stands: whoever comes first,
        nothing stands there in the end.
        """
        left = []
        for number in range(ROUNDS):
            write = settled(forgotten(scope, f"k{number}"))
            erasure = mark(write)

            together(_put_back(store, write, erasure), _erased(store, write, erasure))

            left.append(do(store.load(write.id)))
        assert left == [None] * ROUNDS


def _put_back(store: Any, write: Write, mark: Write) -> Steps:
    return (yield store.put_back(write, (mark.id,)))


def _erased(store: Any, write: Write, mark: Write) -> Steps:
    expect = None
    for _ in range(PUTS_MAX):
        standing = yield store.put(mark, expect)
        if standing.landed:
            break
        expect = None if standing.record is None else standing.record.version
    return (yield store.erase([write.id]))


class TestErasing:
    """`erase`: by id, whatever the state."""

    def test_every_state_is_erased(self, do: Do, store: Any, scope: str) -> None:
        """
        Claimed, settled, released or in doubt: gone, and counted. What was not there is not counted.
        """
        held = [do(store.put(row(scope, f"k{number}"), None)).record for number in range(4)]
        for ending, one in zip((settled, released, doubted), held[1:], strict=True):
            do(store.put(ending(one), one.version))

        erased = do(store.erase([*(one.id for one in held), row(scope, "never").id]))

        assert erased == 4
        assert [do(store.load(one.id)) for one in held] == [None] * 4

    def test_nothing_else_is(self, do: Do, store: Any, scope: str) -> None:
        """
        The others stand as they stood; and to erase nothing is fine.
        """
        ours, theirs = (do(store.put(row(f"{scope}:{whose}"), None)).record for whose in ("ours", "theirs"))

        assert [do(store.erase(ids)) for ids in ([ours.id], [ours.id], [])] == [1, 0, 0]
        assert without_durations(theirs) == without_durations(do(store.load(theirs.id)))

    def test_a_fence_that_was_erased_is_not_given_again(self, do: Do, store: Any, scope: str) -> None:
        """
        A later claim of the same key has a greater fence, also if the erased one was ahead of the clock.
        """
        far = 2**62
        held = do(store.put(row(scope, fence=far), None)).record
        do(store.erase([held.id]))

        assert do(store.put(row(scope), None)).record.fence > held.fence

    def test_what_is_erased_is_in_no_list(self, do: Do, store: Any, scope: str) -> None:
        """
        A scan does not show it any more.
        """
        held = do(store.put(row(scope), None)).record
        do(store.erase([held.id]))

        assert do(store.scan(b"", 10, Selection(scope=scope))) == []
        assert do(store.scan(b"", 10, Selection(scope=scope, unsettled=True))) == []
