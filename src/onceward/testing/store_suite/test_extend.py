"""Extending: the settled records of a family live longer together, and nothing else is touched."""

from __future__ import annotations

from typing import Any

from onceward._core.record import Record
from onceward.testing.store_suite.fixtures import Do
from onceward.testing.store_suite.rows import random_token, row, settled, without_durations
from onceward.testing.store_suite.store_clock import StoreClock


def _settled(do: Do, store: Any, scope: str, key: str, family: bytes | None, **ends: Any) -> Record:
    held = do(store.put(row(scope, key, kind="step", family=family), None)).record
    found: Record = do(store.put(settled(held, **ends), held.version)).record
    return found


class TestExtend:
    """A plan that is touched keeps its steps."""

    def test_every_living_settled_record_of_the_family_is_given_the_time(
        self, do: Do, store: Any, scope: str, clock: StoreClock
    ) -> None:
        """
        All of the family get the same new life, however much was left of theirs; says how many there were.
        """
        family = random_token() * 2
        steps = [
            _settled(do, store, scope, f"s{n}", family, replay=clock.us(1_000 + n), forget=clock.us(2_000 + n))
            for n in range(3)
        ]

        assert do(store.extend(family, clock.us(5_000), clock.us(6_000))) == 3
        for found in (do(store.load(step.id)) for step in steps):
            assert clock.near(clock.us(5_000), found.replay_left)
            assert clock.near(clock.us(6_000), found.forget_left)

    def test_a_life_is_never_shortened(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        Given less than it has, a record keeps what it has.
        """
        family = random_token() * 2
        step = _settled(do, store, scope, "s", family, replay=clock.us(2_000), forget=clock.us(3_000))
        do(store.extend(family, clock.us(100), clock.us(200)))

        found = do(store.load(step.id))

        assert clock.near(clock.us(2_000), found.replay_left)
        assert clock.near(clock.us(3_000), found.forget_left)

    def test_what_is_kept_for_ever_still_is(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        A record that is never to be forgotten is not given an end by it.
        """
        family = random_token() * 2
        step = _settled(do, store, scope, "s", family, replay=clock.us(1_000), forget=None)
        do(store.extend(family, clock.us(5_000), clock.us(6_000)))

        assert None is do(store.load(step.id)).forget_left

    def test_what_has_expired_stays_expired(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        A stored answer that was already refused to somebody does not come back.
        """
        family = random_token() * 2
        step = _settled(do, store, scope, "s", family, replay=clock.us(1), forget=clock.us(1_000))
        clock.advance(2)

        assert do(store.extend(family, clock.us(5_000), clock.us(6_000))) == 0
        assert do(store.load(step.id)).replay_left <= 0

    def test_what_is_not_settled_is_left_alone(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        A claim of the family keeps its lease, and its version: its holder must not be overtaken by a touch.
        """
        family = random_token() * 2
        held = do(store.put(row(scope, "s", family=family, lease=clock.us(1_000)), None)).record

        assert do(store.extend(family, clock.us(5_000), clock.us(6_000))) == 0
        found = do(store.load(held.id))
        assert without_durations(held) == without_durations(found)
        assert clock.near(clock.us(1_000), found.lease_left)

    def test_other_families_and_strangers_are_left_alone(
        self, do: Do, store: Any, scope: str, clock: StoreClock
    ) -> None:
        """
        Only records of that very family live longer.
        """
        ends = {"replay": clock.us(1_000), "forget": clock.us(2_000)}
        others = [
            _settled(do, store, scope, "other", random_token() * 2, **ends),
            _settled(do, store, scope, "none", None, **ends),
        ]

        assert do(store.extend(random_token() * 2, clock.us(5_000), clock.us(6_000))) == 0
        for found in (do(store.load(other.id)) for other in others):
            assert clock.near(clock.us(1_000), found.replay_left)
            assert clock.near(clock.us(2_000), found.forget_left)

    def test_only_the_times_change(self, do: Do, store: Any, scope: str, clock: StoreClock) -> None:
        """
        Result, fence and everything else of an extended record stay as they are.
        """
        family = random_token() * 2
        step = _settled(do, store, scope, "s", family)
        do(store.extend(family, clock.us(100_000), clock.us(200_000)))

        assert without_durations(step) == without_durations(do(store.load(step.id)))._replace(version=step.version)
