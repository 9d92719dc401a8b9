"""How long an answer replays, what comes after, and clocks that are moved or wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onceward import Expired
from onceward.errors import RetryAdvice
from onceward.gate.call_factory import PurgeSchedule
from onceward.testing.clock import StillEnvironment

DAY = 86_400


@pytest.mark.requirement("D21", "D19")
def test_by_default_an_answer_replays_for_a_day_and_is_refused_for_a_month_after(world: Any) -> None:
    """
    86,400 seconds from settling, to the microsecond; then it is a tombstone for thirty days; then it is absent.
    """
    gate, charge = world.gate(), world.Effect("ch_1")
    gate.run("charge:1", charge)

    world.env.advance(DAY - 0.000_001)
    assert gate.run("charge:1", charge) == "ch_1"
    world.env.advance(0.000_001)
    with pytest.raises(Expired) as refusal:
        gate.run("charge:1", charge)
    world.env.advance(30 * DAY - 0.000_001)
    with pytest.raises(Expired):
        gate.run("charge:1", charge)
    assert charge.count == 1
    assert RetryAdvice.NEVER is refusal.value.retry

    world.env.advance(0.000_001)
    outcome = gate.call("charge:1", charge)
    assert (charge.count, outcome.replayed, outcome.attempt) == (2, False, 1)


@pytest.mark.requirement("E33", "E34")
@pytest.mark.parametrize("purged", [True, False], ids=["purged", "unpurged"])
def test_with_after_expiry_run_it_runs_again_as_soon_as_the_day_is_over(world: Any, purged: bool) -> None:
    """
    Replayed at 23:59:59, run again at 24:00:01, whether anybody has purged in between or not.
    """
    gate, charge = world.gate(after_expiry="run"), world.Effect()
    first = gate.call("charge:1", charge)

    world.env.advance(timedelta(hours=23, minutes=59, seconds=59))
    assert gate.call("charge:1", charge).replayed
    world.env.advance(2)
    if purged:
        gate.purge()
    again = gate.call("charge:1", charge)

    assert (charge.count, again.replayed, again.attempt) == (2, False, 1)
    assert again.fence > first.fence


def test_with_after_expiry_run_another_request_may_use_the_key_again(world: Any) -> None:
    """
    Absent is absent: nothing is left to compare with.
    """
    gate = world.gate(after_expiry="run")
    gate.run("charge:1", world.Effect(1), request=1)
    world.env.advance(DAY)

    assert gate.run("charge:1", world.Effect(2), request=2) == 2


@pytest.mark.requirement("D76")
def test_every_operation_may_have_its_own_retention(world: Any) -> None:
    """
    Seconds or timedelta, on the gate or per call.
    """
    gate, effect = world.gate(retain=timedelta(days=7)), world.Effect()
    gate.run("week:1", effect)
    gate.run("minute:1", effect, retain=60, after_expiry="run")

    @gate.once(key="hour:{number}", retain=timedelta(hours=1))
    def hourly(number: int) -> Any:
        return effect()

    hourly(1)
    states = []
    for seconds in (59, 2, 3_600, 6 * DAY, DAY):
        world.env.advance(seconds)
        states.append(tuple(gate.get(key).state for key in ("minute:1", "hour:1", "week:1")))

    assert states == [
        ("settled", "settled", "settled"),
        ("absent", "settled", "settled"),
        ("absent", "expired", "settled"),
        ("absent", "expired", "settled"),
        ("absent", "expired", "expired"),
    ]


def test_retention_counts_from_settling_not_from_the_claim(world: Any) -> None:
    """
    A slow operation is not short-changed.
    """
    gate = world.gate(retain=100, lease=60)

    def slow() -> str:
        world.env.advance(50)
        return "done"

    gate.run("job:1", slow)
    world.env.advance(99)

    assert gate.run("job:1", world.Effect()) == "done"


def test_a_replay_does_not_stretch_the_retention(world: Any) -> None:
    """
    However often it is asked for.
    """
    gate, effect = world.gate(retain=100), world.Effect()
    for _ in range(10):
        gate.run("job:1", effect)
        world.env.advance(10)

    with pytest.raises(Expired):
        gate.run("job:1", effect)


def test_a_purge_makes_tombstones_small_and_forgets_what_is_over(world: Any) -> None:
    """
    Shrunk first (the result goes, the refusal stays), deleted in the end; claims and doubts are never touched.
    """
    gate = world.gate()
    gate.run("charge:1", world.Effect("ch_1"))
    with pytest.raises(TimeoutError):
        gate.run("charge:2", world.Effect(TimeoutError()))
    world.crash("charge:3")

    assert gate.purge() == (0, 0)
    world.env.advance(DAY)
    assert gate.purge() == (0, 1)
    assert (gate.get("charge:1").state, gate.get("charge:1").codec) == ("expired", None)
    world.env.advance(30 * DAY)
    assert gate.purge() == (1, 0)
    world.env.advance(1_000 * DAY)

    assert gate.purge() == (0, 0)
    assert {row.key: row.state for row in gate.rows()} == {"charge:2": "in_doubt", "charge:3": "in_doubt"}


def test_a_fence_rises_across_release_expiry_and_purge(world: Any) -> None:
    """
    A resource that refuses the lower fence is never shown an old one again, even when the clock goes back.
    """
    gate, fences = world.gate(after_expiry="run", before=ValueError), []

    def take(operation: Any) -> None:
        fences.append(operation.fence)
        if len(fences) == 1:
            raise ValueError

    with pytest.raises(ValueError):
        gate.run("job:1", take)
    gate.run("job:1", take)
    world.env.advance(DAY)
    gate.run("job:1", take)
    world.env.advance(DAY)
    assert gate.purge().forgotten == 1
    world.env.jump(-3 * DAY)
    gate.run("job:1", take)

    assert sorted({*fences}) == fences
    assert len(fences) == 4


@pytest.mark.requirement("E31")
def test_the_table_stays_bounded_under_steady_use(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A gate purges by itself now and then: rows level off, and nobody has to do anything.
    """
    monkeypatch.setattr(PurgeSchedule, "PURGE_EVERY", 10)
    gate, sizes = world.gate(retain=60, tombstone=60), []

    for number in range(120):
        gate.run(f"job:{number}", world.Effect(number))
        sizes.append(len(gate.rows()))  # First: it waits for a purge, which must not see now this clock, now that.
        world.env.advance(6)

    # Twenty live rows or tombstones (two minutes of six seconds each), and at most ten that wait for the next purge.
    assert max(sizes) <= 31
    assert max(sizes[30:60]) == max(sizes[90:])


def test_a_purge_that_fails_does_not_take_the_answer_away(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Tidying is nobody's reason to be told that nothing was started.
    """
    monkeypatch.setattr(PurgeSchedule, "PURGE_EVERY", 1)
    gate, store = world.faulty()
    store.fail("purge", 10)

    assert world.hear(lambda: gate.run("charge:1", world.Effect("ch_1"))) == "ch_1"


class TestClocks:
    """The store's clock counts; the caller's plays no role; a jump is survived honestly."""

    @pytest.mark.requirement("E35")
    @pytest.mark.parametrize("skew", [-10 * DAY, 10 * DAY])
    def test_a_skewed_caller_changes_nothing(self, world: Any, skew: int) -> None:
        """
        A caller whose clock is ten days wrong neither shortens nor stretches anything.
        """
        skewed = StillEnvironment(wall_us=world.env.wall_us() + skew * 1_000_000, seed="skewed")
        gate, charge = world.gate(environment=skewed, store_environment=world.env), world.Effect("ch_1")
        first = gate.call("charge:1", charge)

        world.env.advance(DAY - 1)
        assert gate.call("charge:1", charge).replayed
        world.env.advance(1)
        with pytest.raises(Expired):
            gate.run("charge:1", charge)
        assert world.env.wall_us() == first.first_at_us + DAY * 1_000_000

    def test_a_callers_passing_time_does_not_end_a_lease(self, world: Any) -> None:
        """
        A hurried waiter gives up; it does not take over.
        """
        hurried = StillEnvironment(seed="hurried")
        other = world.gate(environment=hurried, store_environment=world.env, guarantee="repeatable")
        effect = world.Effect()

        def slow() -> Any:
            hurried.advance(10 * DAY)
            return world.hear(lambda: other.run("job:1", effect)).code

        assert world.gate(guarantee="repeatable").run("job:1", slow) == "in_flight"
        assert effect.count == 0

    @pytest.mark.parametrize("jump", [-DAY, DAY])
    @pytest.mark.parametrize("guarantee", ["blind", "keyed", "repeatable"])
    def test_a_clock_that_jumps_while_claimed_leaves_an_honest_record(
        self, world: Any, jump: int, guarantee: str
    ) -> None:
        """
        The holder ends normally, and everybody after it gets its answer.
        """
        gate, charge = world.gate(guarantee=guarantee), world.Effect("ch_1")

        def pay() -> Any:
            world.env.jump(jump)
            return charge()

        assert [gate.run("charge:1", pay) for _ in range(2)] == ["ch_1"] * 2
        assert charge.count == 1
        assert 0 < gate.get("charge:1").replay_seconds_left <= DAY

    @pytest.mark.parametrize("jump", [-DAY, DAY])
    def test_a_clock_that_jumps_while_another_waits_never_makes_a_blind_effect_run_twice(
        self, world: Any, jump: int
    ) -> None:
        """
        Forwards the lease seems over, and the other one is told: in doubt. Backwards it waits.
        """
        gate, other, charge, heard = world.gate(), world.gate(), world.Effect("ch_1"), []

        def pay() -> Any:
            world.env.jump(jump)
            heard.append(world.hear(lambda: other.run("charge:1", charge)).code)
            return charge()

        assert gate.run("charge:1", pay) == "ch_1"
        assert ["in_doubt" if jump > 0 else "in_flight"] == heard
        assert (other.run("charge:1", charge), charge.count) == ("ch_1", 1)

    def test_a_clock_that_jumps_back_while_settled_replays_for_longer_and_never_runs(self, world: Any) -> None:
        """
        A day more of the right answer.
        """
        gate, charge = world.gate(), world.Effect("ch_1")
        gate.run("charge:1", charge)
        world.env.jump(-DAY)
        world.env.advance(DAY)

        assert gate.run("charge:1", charge) == "ch_1"
        assert charge.count == 1

    def test_a_clock_that_jumps_forward_while_settled_expires_and_never_runs(self, world: Any) -> None:
        """
        Expired a day early is refused, not run.
        """
        gate, charge = world.gate(), world.Effect("ch_1")
        gate.run("charge:1", charge)
        world.env.jump(DAY)

        with pytest.raises(Expired):
            gate.run("charge:1", charge)
        world.env.jump(-DAY)
        assert (gate.run("charge:1", charge), charge.count) == ("ch_1", 1)

    def test_a_claim_left_by_a_crash_is_over_one_day_after_a_jump_back_at_the_latest(self, world: Any) -> None:
        """
        The jump is waited out; then it is in doubt like any other.
        """
        world.crash("charge:1")
        world.env.jump(-DAY)
        gate = world.gate(wait=0)

        assert world.hear(lambda: gate.run("charge:1", world.Effect())).code == "in_flight"
        world.env.advance(DAY + 60)
        assert world.hear(lambda: gate.run("charge:1", world.Effect())).code == "in_doubt"
