"""The rules, through a gate: what every caller may rely on, whichever store is underneath."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from onceward._core.errors import Expired, InDoubt, InFlight, KeyReused, OwnershipLost
from onceward._core.operation import Found
from onceward.runtime import failpoints
from onceward.testing.clock import StillEnvironment
from onceward.testing.store_suite.fixtures import Do
from onceward.testing.store_suite.store_clock import StoreClock

ODD_KEYS = (
    "a",
    "A",
    "0",
    "../../etc",
    "';DROP/**/TABLE/**/records;--",
    "%s{}$1?:x",
    "k" * 255,
    "k" * 254,
    "6f9619ff-8b86-d011-b42d-00cf4fc964ff",
    "charge:order-17",
    '"quoted"',
    "\\",
)


class Crash(BaseException):
    """The process dies here: nothing catches this, and nothing is written any more."""


@pytest.fixture
def crash_before_settling() -> Iterator[None]:
    """Whoever comes to its settle dies there."""

    def die() -> None:
        raise Crash

    failpoints.arm("settle.before", die)
    yield
    failpoints.disarm()


@pytest.fixture
def effects() -> list[str]:
    """What has happened in the outside world."""
    return []


class TestReplaying:
    """The same key again."""

    def test_it_happens_once_and_is_replayed(self, do: Do, gate: Callable[..., Any], effects: list[str]) -> None:
        """
        The second caller gets the first one's answer, fence and time, and nothing runs.
        """
        ours = gate()
        first = do(ours.call("k", lambda: _happen(effects, "one"), request={"amount": 5}))
        again = do(ours.call("k", lambda: _happen(effects, "two"), request={"amount": 5}))

        assert effects == ["one"]
        assert (first.replayed, again.replayed) == (False, True)
        assert (first.value, first.fence, first.first_at, 1) == (
            again.value,
            again.fence,
            again.first_at,
            again.attempt,
        )

    def test_any_text_may_be_a_key(self, do: Do, gate: Callable[..., Any], effects: list[str]) -> None:
        """
        However it was derived: keys that differ are operations that differ, and each replays its own answer.
        """
        ours = gate()
        for number, key in enumerate(ODD_KEYS * 2):
            do(ours.run(key, partial(_happen, effects, str(number))))

        assert [str(number) for number in range(len(ODD_KEYS))] == effects
        assert effects == [do(ours.run(key, lambda: "again")) for key in ODD_KEYS]

    def test_the_same_key_of_two_scopes_is_two_operations(
        self, do: Do, gate: Callable[..., Any], scope: str, effects: list[str]
    ) -> None:
        """
        Two scopes, same key: two rows. The same scope twice: one row.
        """
        one, two = gate(scope=f"{scope}-1"), gate(scope=f"{scope}-2")
        for ours, name in ((one, "one"), (two, "two"), (one, "again"), (two, "again")):
            do(ours.run("k", partial(_happen, effects, name)))

        assert effects == ["one", "two"]
        assert [len(do(ours.records.list())) for ours in (one, two)] == [1, 1]

    def test_another_request_under_the_same_key_is_refused(
        self, do: Do, gate: Callable[..., Any], clock: StoreClock
    ) -> None:
        """
        In flight, once settled, once expired, and as a tombstone: the fingerprint outlives the answer.
        """
        ours = gate(retain=clock.seconds(6))

        def other() -> Any:
            return ours.run("k", lambda: "other", request={"amount": 6})

        with pytest.raises(KeyReused):
            do(ours.run("k", other, request={"amount": 5}, guarantee="repeatable"))
        do(ours.run("k", lambda: "first", request={"amount": 5}))
        with pytest.raises(KeyReused):
            do(other())
        clock.advance(7)
        with pytest.raises(KeyReused):
            do(other())
        do(ours.purge())
        with pytest.raises(KeyReused):
            do(other())


class TestExpiry:
    """Retention is part of the contract."""

    def test_past_retention_it_is_refused_purged_or_not(
        self, do: Do, gate: Callable[..., Any], clock: StoreClock, effects: list[str]
    ) -> None:
        """
        It ran, and the answer is gone: a late retry is told so, and does not run it again.
        """
        ours = gate(retain=clock.seconds(6))
        do(ours.run("k", lambda: _happen(effects, "one")))
        clock.advance(7)
        with pytest.raises(Expired):
            do(ours.run("k", lambda: _happen(effects, "two")))
        do(ours.purge())
        with pytest.raises(Expired):
            do(ours.run("k", lambda: _happen(effects, "three")))

        assert effects == ["one"]

    def test_once_forgotten_it_runs_again_with_a_greater_fence(
        self, do: Do, gate: Callable[..., Any], clock: StoreClock, effects: list[str]
    ) -> None:
        """
        After the tombstone's time the key is free, purged or not; the fence goes on from where it was.
        """
        ours = gate(retain=clock.seconds(2), tombstone=clock.seconds(2))
        fences = []
        for purges in (False, True, False):
            fences.append(do(ours.call("k", lambda: _happen(effects, "again"))).fence)
            clock.advance(5)
            if purges:
                do(ours.purge())

        assert effects == ["again"] * 3
        assert sorted(set(fences)) == fences


class TestHolders:
    """Somebody has it, had it, or died with it."""

    def test_while_it_runs_others_are_told(self, do: Do, gate: Callable[..., Any], effects: list[str]) -> None:
        """
        A second caller that does not want to wait hears that it is in flight, and for how long.
        """
        ours = gate()
        with pytest.raises(InFlight) as told:
            do(ours.run("k", lambda: ours.run("k", lambda: _happen(effects, "two"), in_flight="refuse")))

        assert effects == []
        assert told.value.retry_after_seconds is not None

    @pytest.mark.usefixtures("crash_before_settling")
    def test_a_holder_that_died_leaves_doubt(
        self, do: Do, gate: Callable[..., Any], clock: StoreClock, effects: list[str]
    ) -> None:
        """
        While its lease runs it is in flight; after it, a blind effect is in doubt until somebody decides.
        """
        ours = gate(lease=clock.seconds(10))
        with pytest.raises(Crash):
            do(ours.run("k", lambda: _happen(effects, "one")))
        failpoints.disarm()
        with pytest.raises(InFlight):
            do(ours.run("k", lambda: _happen(effects, "two"), in_flight="refuse"))
        clock.advance(11)
        with pytest.raises(InDoubt):
            do(ours.run("k", lambda: _happen(effects, "three")))
        do(ours.purge())
        do(ours.reconcile("k", Found("it was charged")))

        assert do(ours.run("k", lambda: _happen(effects, "four"))) == "it was charged"
        assert effects == ["one"]

    @pytest.mark.usefixtures("crash_before_settling")
    def test_a_repeatable_effect_is_taken_over(
        self, do: Do, gate: Callable[..., Any], clock: StoreClock, effects: list[str]
    ) -> None:
        """
        Harmless to run again: the next caller after the lease runs it, as the second attempt, under a greater fence.
        """
        ours = gate(lease=clock.seconds(4), guarantee="repeatable")
        with pytest.raises(Crash):
            do(ours.run("k", lambda: _happen(effects, "one")))
        failpoints.disarm()
        [died] = do(ours.records.list())
        clock.advance(5)
        outcome = do(ours.call("k", lambda: _happen(effects, "two")))

        assert effects == ["one", "two"]
        assert (outcome.attempt, died.fence < outcome.fence) == (2, True)

    def test_a_holder_that_was_overtaken_changes_nothing(
        self, do: Do, gate: Callable[..., Any], clock: StoreClock
    ) -> None:
        """
        It is told, and handed the winner's answer, which is what everybody gets from then on.
        """
        if not clock.still:
            pytest.skip("a lease that lapses under a living holder needs a clock that can be moved")
        # A gate with a clock of its own: it does not notice that time passes, and so does not renew.
        slow = gate(lease=10, guarantee="repeatable", environment=StillEnvironment(seed="slow"))
        quick = gate(guarantee="repeatable")

        def overtaken() -> Any:
            clock.advance(11)
            return quick.run("k", lambda: "the winner's")

        def late() -> Any:
            return _then(overtaken(), "too late")

        with pytest.raises(OwnershipLost) as told:
            do(slow.run("k", late))

        assert told.value.outcome.value == "the winner's"
        assert do(quick.run("k", lambda: "again")) == "the winner's"


def _happen(effects: list[str], name: str) -> str:
    effects.append(name)
    return name


def _then(first: Any, value: str) -> Any:
    """`value`, after `first` (which an awaiting gate has still to await)."""

    async def awaiting() -> str:
        await first
        return value

    return awaiting() if hasattr(first, "__await__") else value
