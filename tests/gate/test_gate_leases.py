"""Holding on while it runs, and being overtaken when the lease ran out."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from onceward import InFlight, OwnershipLost
from onceward.errors import NothingHappened, RetryAdvice


class TestRenewal:
    """While its function runs, a claim is renewed at a third of the lease, up to a ceiling."""

    def test_a_slow_function_keeps_its_claim(self, world: Any) -> None:
        """
        Ten leases long: others find it in flight, and it settles.
        """
        gate, other, heard = world.gate(lease=60, guarantee="repeatable"), world.gate(wait=0), []

        def slow(operation: Any) -> str:
            for _ in range(30):
                world.env.advance(20)
                gate.sweep()
                heard.append(world.hear(lambda: other.run("job:1", world.Effect(), guarantee="repeatable")))
            assert not operation.lost
            return "done"

        assert gate.run("job:1", slow) == "done"
        assert {InFlight} == {type(error) for error in heard}
        assert [other.run("job:1", world.Effect(), guarantee="repeatable")] == ["done"]

    def test_nothing_is_renewed_before_a_third_of_the_lease(self, world: Any) -> None:
        """
        A renewal is a write: not more of them than needed.
        """
        gate, store = world.faulty(lease=60)

        def slow() -> None:
            for seconds in (0, 10, 9.9, 0.1, 0, 19.9):
                world.env.advance(seconds)
                gate.sweep()

        gate.run("job:1", slow)

        assert store.calls.count("renew") == 1

    def test_the_ceiling_ends_it(self, world: Any) -> None:
        """
        A function that never ends does not hold its key for ever.
        """
        gate, other, heard = world.gate(lease=60, lease_max=180), world.gate(wait=0), []

        def endless() -> None:
            for _ in range(12):
                world.env.advance(20)
                gate.sweep()
                heard.append(world.hear(lambda: other.run("job:1", world.Effect())).code)

        gate.run("job:1", endless)

        # Renewed for the last time when 120 s had passed; that lease is over after 180 s.
        assert heard == ["in_flight"] * 8 + ["in_doubt"] * 4

    def test_a_renewal_that_fails_is_tried_again(self, world: Any) -> None:
        """
        The store was away for a moment: two more chances before the lease runs out.
        """
        gate, store = world.faulty(lease=60)
        store.fail("renew", 1)

        def slow(operation: Any) -> tuple[bool, float]:
            world.env.advance(20)
            gate.sweep()
            world.env.advance(20)
            gate.sweep()
            return operation.lost, gate.get("job:1").lease_seconds_left

        assert gate.run("job:1", slow) == [False, 60]

    def test_a_renewal_whose_answer_was_lost_does_not_look_like_a_takeover(self, world: Any) -> None:
        """
        The renewal landed; only its answer did not come. The claim is still this holder's.
        """
        gate, store = world.faulty(lease=60)
        store.fail("renew", 1, performs=True)

        def slow(operation: Any) -> tuple[bool, float]:
            for _ in range(2):
                world.env.advance(20)
                gate.sweep()
            return operation.lost, gate.get("job:1").lease_seconds_left

        assert gate.run("job:1", slow) == [False, 60]

    def test_two_sweeps_at_once_do_not_take_each_other_for_a_takeover(self, world: Any) -> None:
        """
        A renewal moved on by another renewal of the same holder is no loss.
        """
        gate, store = world.faulty(lease=60)
        once: list[bool] = []

        def between(number: int, what: str) -> None:
            if what == "renew" and not once:
                once.append(True)
                gate.sweep()

        store.before = between

        def slow(operation: Any) -> bool:
            world.env.advance(20)
            gate.sweep()
            return bool(operation.lost)

        assert gate.run("job:1", slow) is False

    def test_a_settle_that_meets_its_own_renewal_is_put_again(self, world: Any) -> None:
        """
        The version moved, the token did not.
        """
        gate = world.gate(lease=60)

        def slow() -> str:
            world.env.advance(20)
            gate.sweep()
            assert gate.get("job:1").lease_seconds_left == 60
            return "done"

        assert [gate.run("job:1", slow) for _ in range(2)] == ["done"] * 2

    def test_the_thread_of_a_blocking_gate_renews_by_itself(self, threads: Any) -> None:
        """
        With a lease of a fifth of a second and a function that takes longer: nobody else gets in.
        """
        gate, renewed = threads.gate(lease=0.2), threading.Event()
        gate.gate.listen(lambda event: renewed.set() if event.type.value == "renewed" else None)

        assert gate.run("job:1", lambda: renewed.wait(20))
        assert gate.get("job:1").state == "settled"

    def test_the_timer_of_an_awaiting_gate_renews_by_itself(self, tasks: Any) -> None:
        """
        The same for tasks.
        """
        from onceward import AsyncGate

        async def main() -> bool:
            renewed = asyncio.Event()
            async with AsyncGate(tasks.store(), scope="acme", lease=0.2) as gate:
                gate.listen(lambda event: renewed.set() if event.type.value == "renewed" else None)
                return bool(await gate.run("job:1", lambda: asyncio.wait_for(renewed.wait(), 20)))

        assert asyncio.run(main())


class TestTheLateFinisher:
    """A holder that was overtaken changes nothing, is told so, and is handed the winner's answer."""

    def overtaken(self, world: Any, ending: Any, *, by: Any, lose: bool = False, **options: Any) -> Any:
        gate, other = world.gate(**options), world.gate(**options)

        def slow(operation: Any) -> Any:
            world.env.advance(61)
            world.hear(lambda: other.run("job:1", by))
            if lose:
                gate.sweep()
                assert operation.lost
            return ending()

        return world.hear(lambda: gate.run("job:1", slow))

    @pytest.mark.parametrize("lose", [False, True], ids=["unaware", "aware"])
    @pytest.mark.parametrize("guarantee", ["repeatable", "keyed"])
    def test_its_result_is_not_stored(self, world: Any, guarantee: str, lose: bool) -> None:
        """
        The winner's answer stands, and the loser gets it with the error.
        """
        error = self.overtaken(world, world.Effect("late"), by=world.Effect("won"), guarantee=guarantee, lose=lose)

        assert (OwnershipLost, RetryAdvice.SAME_KEY) == (type(error), error.retry)
        assert (error.outcome.value, error.outcome.replayed, error.outcome.attempt) == ("won", True, 2)
        assert world.gate().run("job:1", world.Effect()) == "won"

    @pytest.mark.parametrize("kind", [KeyError, NothingHappened, TimeoutError])
    def test_its_failure_is_not_stored_either(self, world: Any, kind: type[Exception]) -> None:
        """
        A late failure must not release, fail or cast doubt on the winner's answer.
        """
        ending = kind()
        error = self.overtaken(world, world.Effect(ending), by=world.Effect("won"), guarantee="repeatable")

        assert (OwnershipLost, "won") == (type(error), error.outcome.value)
        assert error.__cause__ is ending
        assert world.gate().get("job:1").state == "settled"

    def test_while_the_winner_still_runs_there_is_no_answer_yet(self, world: Any) -> None:
        """
        The late one is told to ask again, and the winner settles undisturbed.
        """
        slow, winner, late = world.gate(guarantee="repeatable"), world.gate(guarantee="repeatable"), []
        finish = threading.Event()

        def second() -> str:
            finish.set()
            return "won"

        def first() -> str:
            world.env.advance(61)
            # The winner has claimed, and is not done.
            world.crash("job:1", guarantee="repeatable")
            return "late"

        late.append(world.hear(lambda: slow.run("job:1", first)))
        world.env.advance(61)

        assert (OwnershipLost, None) == (type(late[0]), late[0].outcome)
        assert winner.run("job:1", second) == "won"

    def test_without_a_takeover_a_lapsed_lease_still_settles(self, world: Any) -> None:
        """
        Late but alone: what it brings is the truth, and ends the doubt.
        """
        gate, other, heard = world.gate(), world.gate(), []

        def slow() -> str:
            world.env.advance(600)
            heard.append(world.hear(lambda: other.run("job:1", world.Effect())).code)
            return "late"

        assert gate.run("job:1", slow) == "late"
        assert heard == ["in_doubt"]
        assert other.run("job:1", world.Effect()) == "late"

    def test_a_resource_can_refuse_the_lower_fence(self, world: Any) -> None:
        """
        The late one's write comes after the winner's, and is told apart by its fence.
        """
        gate, other = world.gate(guarantee="keyed"), world.gate(guarantee="keyed")
        shelf: dict[str, Any] = {"fence": 0}

        def write(fence: int, value: str) -> None:
            if fence > shelf["fence"]:
                shelf.update(fence=fence, value=value)

        def slow(operation: Any) -> None:
            world.env.advance(61)
            other.run("job:1", lambda operation: write(operation.fence, "won"))
            write(operation.fence, "late")

        world.hear(lambda: gate.run("job:1", slow))

        assert shelf["value"] == "won"
