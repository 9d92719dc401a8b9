"""`gate.hold`: work that is more than one function call, under the same rules as `gate.call`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from onceward import InDoubt, InFlight, KeyReused, Outcome, OwnershipLost, StoreUnavailable
from onceward.errors import IllegalMove, NothingHappened, Unrecorded
from onceward.gate import Raised, Returned
from onceward.gate.running_operation import current_operation
from onceward.runtime import failpoints


@pytest.fixture
def gate(world: Any) -> Iterator[Any]:
    yield world.gate(in_flight="refuse")
    failpoints.disarm()


def held(gate: Any, key: str = "k", **options: Any) -> Any:
    found = gate.hold(key, **options)

    assert not isinstance(found, Outcome)
    return found


def test_what_is_ended_well_is_replayed(gate: Any) -> None:
    """
    The same record as after `call`: either replays what the other stored.
    """
    fresh = held(gate, request={"n": 1}).end(Returned({"id": 7}))
    again = gate.hold("k", request={"n": 1})
    called = gate.call("k", lambda: {"id": 8}, request={"n": 1})

    assert isinstance(again, Outcome)
    assert [(one.value, one.replayed) for one in (fresh, again, called)] == [
        ({"id": 7}, False),
        ({"id": 7}, True),
        ({"id": 7}, True),
    ]


def test_while_it_is_held_nobody_else_gets_in(gate: Any) -> None:
    """
    A second caller is refused, and so is another request under the key.
    """
    holding = held(gate, request=1)

    with pytest.raises(InFlight):
        gate.hold("k", request=1)
    with pytest.raises(KeyReused):
        gate.hold("k", request=2)
    assert holding.end(Returned("done")).value == "done"


def test_the_operation_runs_from_claim_to_end(gate: Any) -> None:
    """
    Whoever asks which operation is running is told, as in a function that a gate calls.
    """
    if not gate.world.awaits:
        holding = gate.gate.hold("k")
        while_it_runs = current_operation()
        holding.end(Returned(None))

        assert (holding.operation, None) == (while_it_runs, current_operation(None))
        return

    async def main() -> tuple[Any, Any, Any]:
        holding = await gate.gate.hold("k")
        while_it_runs = current_operation()
        await holding.end(Returned(None))
        return holding.operation, while_it_runs, current_operation(None)

    operation, while_it_runs, afterwards = gate.world.do(main())

    assert (operation, None) == (while_it_runs, afterwards)


def test_a_failure_is_judged_as_ever(gate: Any) -> None:
    """
    What is raised comes out of `end`; a blind one leaves doubt, one that says that nothing happened frees the key.
    """
    with pytest.raises(NothingHappened):
        held(gate).end(Raised(NothingHappened()))
    with pytest.raises(ValueError, match="broken"):
        held(gate).end(Raised(ValueError("broken")))
    with pytest.raises(InDoubt):
        gate.hold("k")


def test_it_ends_once(gate: Any) -> None:
    """
    A second ending is refused, and changes nothing.
    """
    holding = held(gate)
    holding.end(Returned("first"))

    with pytest.raises(IllegalMove):
        holding.end(Returned("second"))
    assert gate.run("k", lambda: "third") == "first"


def test_its_lease_is_renewed(gate: Any) -> None:
    """
    However long it takes, as long as the holder lives.
    """
    holding = held(gate, lease=30)
    for _ in range(4):
        gate.world.env.advance(15)
        gate.sweep()

    assert holding.end(Returned("done")).value == "done"


def test_a_holder_that_slept_is_told_that_it_was_overtaken(gate: Any) -> None:
    """
    And its end changes nothing.
    """
    slow = held(gate, guarantee="repeatable", lease=30)
    gate.world.env.advance(31)
    gate.run("k", lambda: "winner", guarantee="repeatable")

    with pytest.raises(OwnershipLost) as told:
        slow.end(Returned("late"))
    assert "winner" == told.value.outcome.value == gate.run("k", lambda: "other")


def test_what_cannot_be_recorded_is_handed_back_with_the_error(gate: Any) -> None:
    """
    It ran, and the store is away until the lease is over.
    """

    def away() -> None:
        raise StoreUnavailable

    holding = held(gate)
    failpoints.arm("settle.before", away)

    with pytest.raises(Unrecorded) as told:
        holding.end(Returned("done"))
    assert told.value.value == "done"


def test_a_step_can_be_held_too(gate: Any) -> None:
    """
    Beside the plan's other steps, and replayed by `step`.
    """
    holding = gate.plan("p").hold("one", request=1)
    holding.end(Returned("done"))
    assert gate.plan("p").step("one", lambda: "again", request=1) == "done"


def test_both_sides_of_the_work_are_failpoints(gate: Any) -> None:
    """
    A test can strike just before it begins and just after it has ended, as with a function.
    """
    struck: list[str] = []
    for name in ("call.before", "call.after"):
        failpoints.arm(name, lambda name=name: struck.append(name))
    held(gate).end(Returned(None))

    assert struck == ["call.before", "call.after"]


@pytest.mark.fault("a-cancelled-hold-keeps-its-claim")
def test_a_hold_that_is_cancelled_during_its_claim_is_taken_back(world: Any) -> None:
    """
    The claim has landed, and nobody was told of it: the key is free again at once, not when the lease is over.
    """
    if not world.awaits:
        pytest.skip("only an awaiting gate has an event loop")
    gate, store = world.faulty()

    async def cancelled() -> None:
        task = asyncio.current_task()
        assert task is not None
        store.after = lambda number, doing: task.cancel() if doing == "claim" else None
        with pytest.raises(asyncio.CancelledError):
            await gate.gate.hold("k")

    world.do(cancelled())

    assert gate.get("k").state == "released"
    assert gate.run("k", lambda: "done") == "done"


@pytest.mark.fault("what-fails-before-the-work-keeps-the-claim")
def test_a_hold_that_fails_before_its_work_is_taken_back(gate: Any) -> None:
    """
    Whoever held it never learned so, and has done nothing.
    """

    def fails() -> None:
        raise ZeroDivisionError

    failpoints.arm("call.before", fails)
    with pytest.raises(ZeroDivisionError):
        gate.hold("k")
    failpoints.disarm()

    assert gate.get("k").state == "released"
