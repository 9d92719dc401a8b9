"""A policy around a declared function knows its key and its guarantee."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import pytest

from onceward import InDoubt, OutcomeUnknown, Retry, stop_of
from onceward._core.stops import GivenUp, Stop
from onceward.testing import no_sleeping


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    with no_sleeping():
        yield


class Charge:
    """A function of either colour that fails so many times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    def do(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise TimeoutError
        return "ch_1"

    def declared(self, world: Any, **options: Any) -> Callable[..., Any]:
        """Under `once`, as a user writes it."""
        if world.awaits:

            async def awaiting(order: int) -> str:
                return self.do()

            return world.gate().gate.once(key="charge:{order}", **options)(awaiting)  # type: ignore[no-any-return]

        def blocking(order: int) -> str:
            return self.do()

        return world.gate().gate.once(key="charge:{order}", **options)(blocking)  # type: ignore[no-any-return]


@pytest.mark.parametrize("guarantee", ["keyed", "repeatable"])
@pytest.mark.fault("a-policy-does-not-know-a-declared-functions-guarantee")
def test_an_unknown_outcome_of_a_declared_function_is_tried_again(world: Any, guarantee: str) -> None:
    """
    Its guarantee says that it may be: three calls under one key, and the answer.
    """
    charge = Charge(failures=2)
    policy = Retry(environment=world.env)
    declared = policy(charge.declared(world, guarantee=guarantee))
    answer = world.hear(lambda: world.do(declared(order=1)))

    assert (answer, charge.calls) == ("ch_1", 3)


def test_a_blind_one_is_not(world: Any) -> None:
    """
    One call, and the outcome is unknown; asked again, the gate says so.
    """
    charge = Charge(failures=1)
    declared = charge.declared(world)
    policy = Retry(environment=world.env)
    with pytest.raises(OutcomeUnknown) as raised:
        world.do(policy(declared)(order=1))
    with pytest.raises(InDoubt):
        world.do(policy(declared)(order=1))

    assert (charge.calls, raised.value.key) == (1, "charge:1")


@pytest.mark.fault("a-policy-does-not-know-a-declared-functions-key")
def test_what_was_given_up_is_known_by_its_key(world: Any) -> None:
    """
    The stop and the dead letter carry the key of the operation.
    """
    kept: list[str | None] = []

    class Letters:
        def put(self, stop: Stop, call: GivenUp) -> None:
            kept.append(call.key)

    charge = Charge(failures=9)
    policy = Retry(dead=Letters(), environment=world.env)
    with pytest.raises(TimeoutError) as raised:
        world.do(policy(charge.declared(world, guarantee="keyed"))(order=1))
    stop = stop_of(raised.value)

    assert stop is not None
    assert (stop.key, kept, charge.calls) == ("charge:1", ["charge:1"], 3)


@pytest.mark.fault("a-decorator-passes-for-the-function-that-it-wraps")
def test_a_decorator_around_a_declared_function_is_another_function(world: Any) -> None:
    """
    It may do more than the function does: nothing is known of it, and it is not tried again.
    """
    charge, mails = Charge(failures=1), []
    declared = charge.declared(world, guarantee="keyed")
    if world.awaits:

        @wraps(declared)
        async def outer(order: int) -> Any:
            mails.append(order)
            return await declared(order=order)
    else:

        @wraps(declared)
        def outer(order: int) -> Any:
            mails.append(order)
            return declared(order=order)

    with pytest.raises(OutcomeUnknown):
        world.do(Retry(environment=world.env)(outer)(order=1))

    assert mails == [1]


def test_a_method_is_known_as_well(world: Any) -> None:
    """
    With the object that it belongs to.
    """
    if world.awaits:
        pytest.skip("the blocking colour shows it: what is published is the same")
    calls: list[int] = []

    class Till:
        @world.gate().gate.once(key="charge:{order}", guarantee="keyed")  # type: ignore[untyped-decorator]
        def charge(self, order: int) -> str:
            calls.append(order)
            if len(calls) < 3:
                raise TimeoutError
            return "ch_1"

    assert Retry(environment=world.env).call(Till().charge, 1) == "ch_1"
    assert calls == [1, 1, 1]
