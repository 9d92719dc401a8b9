"""Time: what is written as a duration is read as a duration, on the store's clock and nobody else's."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onceward._core.errors import Expired, InFlight
from onceward._core.record import NOW, State
from onceward.runtime.environment import REAL
from onceward.stores import Selection
from onceward.testing.clock import StillEnvironment
from onceward.testing.skewed import family_of, mark_of
from onceward.testing.store_suite.fixtures import Do
from onceward.testing.store_suite.rows import HOUR_US, row, settled
from onceward.testing.store_suite.store_clock import StoreClock
from onceward.testing.store_suite.store_under_test import StoreUnderTest
from onceward.testing.store_suite.subprocesses import SECONDS_MAX, program_arguments, start_program

MINUTE_US = 60 * 1_000_000
DAY_US = 24 * HOUR_US
SPANS = ("lease_left", "replay_left", "forget_left")


class TestDurations:
    """Leases, retention and the time until a record is forgotten."""

    def test_what_was_written_is_what_is_left(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        Right after the write all of it is left, in the answer and when it is read.
        """
        write = row(scope, lease=clock.us(1_000), replay=clock.us(2_000), forget=clock.us(3_000))

        for found in (do(store.put(write, None)).record, do(store.load(write.id))):
            assert clock.near(clock.us(1_000), found.lease_left)
            assert clock.near(clock.us(2_000), found.replay_left)
            assert clock.near(clock.us(3_000), found.forget_left)
            assert clock.near(0, found.age)

    def test_less_is_left_as_time_passes_and_age_grows(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        Every duration left shrinks by what has passed, and the age grows by it, in every way of reading.
        """
        write = row(scope, lease=clock.us(1_000), replay=clock.us(1_000), forget=clock.us(1_000))
        then = do(store.put(write, None)).record
        clock.advance(2)

        seen = [do(store.load(write.id)), do(store.put(row(scope), None)).record]
        for now in [*seen, *do(store.scan(b"", 10, Selection(scope=scope)))]:
            assert clock.near(clock.us(1_000) - clock.us(2), now.lease_left)
            assert clock.us(1) <= now.age - then.age
            assert [clock.us(1) <= getattr(then, span) - getattr(now, span) for span in SPANS] == [True] * 3
            assert then.first_at == now.first_at

    def test_what_has_run_out_is_below_zero(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        A lease, a retention or a life that is over is not hidden: the record is shown, with nothing left.
        """
        write = row(scope, lease=clock.us(1), replay=clock.us(1), forget=clock.us(1))
        do(store.put(write, None))
        clock.advance(2)

        found = do(store.load(write.id))

        assert [getattr(found, span) <= 0 for span in SPANS] == [True] * 3

    def test_no_duration_is_none_for_ever(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        What was written without an end has none, however much time passes.
        """
        write = row(scope, lease=None, replay=None, forget=None)
        do(store.put(write, None))
        clock.advance(2)

        assert [getattr(do(store.load(write.id)), span) for span in SPANS] == [None] * 3

    def test_a_new_write_starts_its_durations_anew(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        A renewed lease is a whole lease again.
        """
        held = do(store.put(row(scope, lease=clock.us(1_000)), None)).record
        clock.advance(2)
        renewal = row(scope, token=held.token, lease=clock.us(2_000), first_at=held.first_at)

        assert clock.near(clock.us(2_000), do(store.put(renewal, held.version)).record.lease_left)


class TestInstants:
    """When it began and when it was settled: for showing."""

    def test_now_is_the_stores_now(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        An instant of NOW is replaced by the store's clock, at the moment of that write.
        """
        held = do(store.put(row(scope), None)).record
        clock.advance(2)
        ended = do(store.put(settled(held), held.version)).record

        assert held.first_at == ended.first_at
        assert clock.us(1) <= ended.settled_at - ended.first_at
        assert clock.near(clock.us(2), ended.settled_at - ended.first_at)
        assert (None, ended.settled_at) == (held.settled_at, do(store.load(held.id)).settled_at)

    def test_an_instant_that_was_read_is_kept(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        Written back, an instant stays what it was, and the age is still counted from it.
        """
        held = do(store.put(row(scope), None)).record
        clock.advance(2)
        again = row(scope, first_at=held.first_at, settled_at=held.first_at + 1)

        found = do(store.put(again, held.version)).record

        assert (held.first_at, held.first_at + 1) == (found.first_at, found.settled_at)
        assert clock.us(1) <= found.age

    def test_now_written_over_an_older_record_is_now(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        A claim that starts over does not inherit when the one before it began.
        """
        held = do(store.put(row(scope), None)).record
        clock.advance(2)

        found = do(store.put(row(scope, first_at=NOW), held.version)).record

        assert clock.us(1) <= found.first_at - held.first_at
        assert clock.near(0, found.age)


class TestWhoseClockItIs:
    """A server's time is the server's: for stores that do not live on this machine."""

    def test_two_handles_with_clocks_of_their_own_agree(
        self, do: Do, place: StoreUnderTest, opened: Callable[..., Any], scope: str
    ) -> None:
        """
        One is handed a clock that is more than a year behind, the other one that is as much ahead: no instant, no
        lease and no age depends on whose handle wrote or reads.
        """
        _check_is_elsewhere(place)
        handles = []
        for days in (-400, 400):
            environment = StillEnvironment(seed="caller", wall_us=REAL.wall_us() + days * DAY_US)
            handles.append(opened(place._replace(environment=environment)))
        wrote = [do(one.put(row(scope, f"k{n}", lease=HOUR_US), None)).record for n, one in enumerate(handles)]
        read = [do(one.load(held.id)) for one in handles for held in wrote]

        assert abs(wrote[0].first_at - wrote[1].first_at) < MINUTE_US
        assert [abs(HOUR_US - found.lease_left) < MINUTE_US for found in read] == [True] * 4
        assert [abs(found.age) < MINUTE_US for found in read] == [True] * 4

    @pytest.mark.parametrize("days", [-400, 400], ids=["behind", "ahead"])
    def test_a_process_whose_clock_is_wrong_sees_and_writes_the_same(
        self, do: Do, store: Any, place: StoreUnderTest, scope: str, url: str, days: int
    ) -> None:
        """
        Every clock of its machine is more than a year off, as Python tells the time: what it claims begins when the
        store says, and leases, retention, extensions, purges and marks run for as long as everybody else sees them run.
        """
        _check_is_elsewhere(place)
        fair = do(store.put(row(scope, "fair", lease=HOUR_US), None)).record
        step = do(store.put(row(scope, "step", family=family_of(scope)), None)).record
        do(store.put(settled(step, replay=10 * MINUTE_US, forget=10 * MINUTE_US), step.version))
        for name, life in (("refused", HOUR_US), ("allowed", 0)):
            mark = row(scope, name, state=State.RELEASED.value, lease=None, forget=life)
            do(store.put(mark._replace(id=mark_of(row(scope, name)), key=f"mark of {name}"), None))

        program = start_program("skewed", url, scope, str(days * 86_400), *program_arguments(place))
        told = json.loads(program.communicate(timeout=SECONDS_MAX)[0])
        claim, ended, step = (do(store.load(row(scope, key).id)) for key in ("skewed", "ended", "step"))
        hours = {
            **told["hours"],
            "its lease": claim.lease_left,
            "its replay": ended.replay_left,
            "its life": ended.forget_left,
            "the extended replay": None if step is None else step.replay_left,
            "the extended life": None if step is None else step.forget_left,
        }

        assert {name: at for name, at in told["instants"].items() if abs(at - fair.first_at) > MINUTE_US} == {}
        assert {name: left for name, left in hours.items() if left is None or abs(HOUR_US - left) > MINUTE_US} == {}
        assert told["backs"] == [False, True]


def _check_is_elsewhere(place: StoreUnderTest) -> None:
    if place.candidate.kind.local:
        pytest.skip("the store is on this machine, and uses its clock")


class TestACallersClock:
    """A caller whose clock is wrong."""

    @pytest.mark.parametrize("skew", [timedelta(days=-400), timedelta(days=400)], ids=["behind", "ahead"])
    def test_it_plays_no_role(
        self, do: Do, gate: Callable[..., Any], scope: str, clock: StoreClock, skew: timedelta
    ) -> None:
        """
        A caller more than a year behind or ahead replays within retention and is refused after it, as everybody is.
        """
        skewed = StillEnvironment(seed="caller")
        skewed.jump(skew)
        fair, wrong = gate(retain=clock.seconds(6)), gate(retain=clock.seconds(6), environment=skewed)

        first = do(wrong.call("k", lambda: "first"))
        replayed = do(fair.call("k", lambda: "second"))
        clock.advance(7)

        assert (replayed.value, replayed.replayed) == ("first", True)
        assert (first.first_at, first.fence) == (replayed.first_at, replayed.fence)
        with pytest.raises(Expired):
            do(wrong.call("k", lambda: "third"))

    def test_it_cannot_end_a_lease(self, do: Do, gate: Callable[..., Any], clock: StoreClock) -> None:
        """
        While a lease runs on the store's clock, a caller whose own clock says that it is over waits all the same.
        """
        ahead = StillEnvironment(seed="caller")
        ahead.jump(timedelta(days=400))
        fair, wrong = gate(lease=clock.seconds(1_000)), gate(environment=ahead)

        with pytest.raises(InFlight):
            do(fair.run("k", lambda: wrong.run("k", lambda: "stolen", in_flight="refuse")))
