"""Time: what is written as a duration is read as a duration, on the store's clock and nobody else's."""

# ruff: noqa: SIM300 - `assert expected == actual`, also where the expected value is a constant

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onceward import Expired, InFlight
from onceward._core.record import NOW
from onceward.stores import Selection
from onceward.testing.clock import StillEnvironment
from onceward.testing.conformance.clocks import Clock
from onceward.testing.conformance.fixtures import Do
from onceward.testing.conformance.rows import row, settled

SPANS = ("lease_left", "replay_left", "forget_left")


class TestDurations:
    """Leases, retention and the time until a record is forgotten."""

    def test_what_was_written_is_what_is_left(self, do: Do, store: Any, scope: str, clock: Clock) -> None:
        """
        Right after the write all of it is left, in the answer and when it is read.
        """
        write = row(scope, lease=clock.us(1_000), replay=clock.us(2_000), forget=clock.us(3_000))

        for found in (do(store.put(write, None)).record, do(store.load(write.id))):
            assert clock.near(clock.us(1_000), found.lease_left)
            assert clock.near(clock.us(2_000), found.replay_left)
            assert clock.near(clock.us(3_000), found.forget_left)
            assert clock.near(0, found.age)

    def test_less_is_left_as_time_passes_and_age_grows(self, do: Do, store: Any, scope: str, clock: Clock) -> None:
        """
        Every duration left shrinks by what has passed, and the age grows by it, in every way of reading.
        """
        write = row(scope, lease=clock.us(1_000), replay=clock.us(1_000), forget=clock.us(1_000))
        then = do(store.put(write, None)).record
        clock.pass_(2)

        seen = [do(store.load(write.id)), do(store.put(row(scope), None)).record]
        for now in [*seen, *do(store.scan(b"", 10, Selection(scope=scope)))]:
            assert clock.near(clock.us(1_000) - clock.us(2), now.lease_left)
            assert clock.us(1) <= now.age - then.age
            assert [True] * 3 == [clock.us(1) <= getattr(then, span) - getattr(now, span) for span in SPANS]
            assert then.first_at == now.first_at

    def test_what_has_run_out_is_below_zero(self, do: Do, store: Any, scope: str, clock: Clock) -> None:
        """
        A lease, a retention or a life that is over is not hidden: the record is shown, with nothing left.
        """
        write = row(scope, lease=clock.us(1), replay=clock.us(1), forget=clock.us(1))
        do(store.put(write, None))
        clock.pass_(2)

        found = do(store.load(write.id))

        assert [True] * 3 == [getattr(found, span) <= 0 for span in SPANS]

    def test_no_duration_is_none_for_ever(self, do: Do, store: Any, scope: str, clock: Clock) -> None:
        """
        What was written without an end has none, however much time passes.
        """
        write = row(scope, lease=None, replay=None, forget=None)
        do(store.put(write, None))
        clock.pass_(2)

        assert [None] * 3 == [getattr(do(store.load(write.id)), span) for span in SPANS]

    def test_a_new_write_starts_its_durations_anew(self, do: Do, store: Any, scope: str, clock: Clock) -> None:
        """
        A renewed lease is a whole lease again.
        """
        held = do(store.put(row(scope, lease=clock.us(1_000)), None)).record
        clock.pass_(2)
        renewal = row(scope, token=held.token, lease=clock.us(2_000), first_at=held.first_at)

        assert clock.near(clock.us(2_000), do(store.put(renewal, held.version)).record.lease_left)


class TestInstants:
    """When it began and when it was settled: for showing."""

    def test_now_is_the_stores_now(self, do: Do, store: Any, scope: str, clock: Clock) -> None:
        """
        An instant of NOW is replaced by the store's clock, at the moment of that write.
        """
        held = do(store.put(row(scope), None)).record
        clock.pass_(2)
        ended = do(store.put(settled(held), held.version)).record

        assert held.first_at == ended.first_at
        assert clock.us(1) <= ended.settled_at - ended.first_at
        assert clock.near(clock.us(2), ended.settled_at - ended.first_at)
        assert (None, ended.settled_at) == (held.settled_at, do(store.load(held.id)).settled_at)

    def test_an_instant_that_was_read_is_kept(self, do: Do, store: Any, scope: str, clock: Clock) -> None:
        """
        Written back, an instant stays what it was, and the age is still counted from it.
        """
        held = do(store.put(row(scope), None)).record
        clock.pass_(2)
        again = row(scope, first_at=held.first_at, settled_at=held.first_at + 1)

        found = do(store.put(again, held.version)).record

        assert (held.first_at, held.first_at + 1) == (found.first_at, found.settled_at)
        assert clock.us(1) <= found.age

    def test_now_written_over_an_older_record_is_now(self, do: Do, store: Any, scope: str, clock: Clock) -> None:
        """
        A claim that starts over does not inherit when the one before it began.
        """
        held = do(store.put(row(scope), None)).record
        clock.pass_(2)

        found = do(store.put(row(scope, first_at=NOW), held.version)).record

        assert clock.us(1) <= found.first_at - held.first_at
        assert clock.near(0, found.age)


class TestACallersClock:
    """A caller whose clock is wrong."""

    @pytest.mark.parametrize("skew", [timedelta(days=-400), timedelta(days=400)], ids=["behind", "ahead"])
    def test_it_plays_no_role(
        self, do: Do, gate: Callable[..., Any], scope: str, clock: Clock, skew: timedelta
    ) -> None:
        """
        A caller more than a year behind or ahead replays within retention and is refused after it, as everybody is.
        """
        skewed = StillEnvironment(seed="caller")
        skewed.jump(skew)
        fair, wrong = gate(retain=clock.seconds(6)), gate(retain=clock.seconds(6), environment=skewed)

        first = do(wrong.call("k", lambda: "first"))
        replayed = do(fair.call("k", lambda: "second"))
        clock.pass_(7)

        assert ("first", True) == (replayed.value, replayed.replayed)
        assert (first.first_at, first.fence) == (replayed.first_at, replayed.fence)
        with pytest.raises(Expired):
            do(wrong.call("k", lambda: "third"))

    def test_it_cannot_end_a_lease(self, do: Do, gate: Callable[..., Any], clock: Clock) -> None:
        """
        While a lease runs on the store's clock, a caller whose own clock says that it is over waits all the same.
        """
        ahead = StillEnvironment(seed="caller")
        ahead.jump(timedelta(days=400))
        fair, wrong = gate(lease=clock.seconds(1_000)), gate(environment=ahead)

        with pytest.raises(InFlight):
            do(fair.run("k", lambda: wrong.run("k", lambda: "stolen", in_flight="refuse")))
