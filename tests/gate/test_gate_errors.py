"""Errors say which operation they are about, and terminal ones are not repeated by a framework's default policy."""

from __future__ import annotations

from typing import Any

import pytest

import onceward
from onceward import Expired, InDoubt, InFlight, KeyReused, NotReplayable, OncewardError, StoreUnavailable
from onceward.errors import RecordedFailure, RetryAdvice

ERRORS = [
    one
    for one in vars(onceward).values()
    if isinstance(one, type) and issubclass(one, OncewardError) and one is not OncewardError
]

NOT_REPEATED = (
    ValueError,
    TypeError,
    ArithmeticError,
    ImportError,
    LookupError,
    NameError,
    SyntaxError,
    RuntimeError,
    ReferenceError,
    StopIteration,
    StopAsyncIteration,
    OSError,
)
"""What LangGraph's `default_retry_on` (1.2.20) does not retry; `ConnectionError` and HTTP errors it does."""


@pytest.mark.fault("a-terminal-refusal-is-a-plain-exception")
@pytest.mark.parametrize("error", ERRORS, ids=lambda one: one.__name__)
def test_a_framework_repeats_what_may_be_repeated_and_nothing_else(error: type[OncewardError]) -> None:
    """
    By the rule of LangGraph's default policy: terminal refusals are not retried, `InFlight` and the like are.
    """
    repeated = issubclass(error, ConnectionError) or not issubclass(error, NOT_REPEATED)

    assert (error.retry is RetryAdvice.SAME_KEY) == repeated


class Unplain:
    """No stored form."""


def failing() -> None:
    raise ValueError("no")


@pytest.mark.fault("a-refusal-does-not-say-what-it-is-about")
@pytest.mark.parametrize("kind", [KeyReused, InDoubt, Expired, NotReplayable, InFlight, RecordedFailure], ids=str)
def test_a_refusal_carries_its_operation_as_data(world: Any, kind: type[OncewardError]) -> None:
    """
    Key (as the caller gave it), digest, fence, name and first time; on a scope that puts its environment in front.
    """
    gate = world.gate(scope="live:acme")
    options: dict[str, Any] = {"name": "charge", "request": 1}
    value: Any = Unplain() if kind is NotReplayable else "ch_1"
    if kind is InDoubt:
        with pytest.raises(ValueError, match="no"):
            gate.run("charge:1", failing, **options)
    elif kind is RecordedFailure:
        with pytest.raises(ValueError, match="no"):
            gate.run("charge:1", failing, remember="all", **options)
    elif kind is not InFlight:
        gate.run("charge:1", world.Effect(value), **options)
    if kind is Expired:
        world.env.advance(25 * 3600)
    if kind is KeyReused:
        options["request"] = 2
    heard: list[Any] = []

    def again() -> str:
        heard.append(
            world.hear(lambda: world.gate(scope="live:acme").run("charge:1", world.Effect(), wait=0, **options))
        )
        return "ch_1"

    if kind is InFlight:
        gate.run("charge:1", again, **options)
    else:
        again()
    found, error = gate.get("charge:1"), heard[0]

    assert isinstance(error, kind)
    assert (error.key, error.operation) == ("charge:1", "charge")
    assert (found.digest, found.fence, found.first_at) == (error.digest, error.fence, error.first_at)
    assert "charge:1" not in str(error)


@pytest.mark.fault("a-quick-look-does-not-say-whose-failure-it-found")
def test_a_stored_failure_carries_the_same_however_it_is_found(world: Any) -> None:
    """
    By the claim that found it first, and by the quick looks of those that come later.
    """
    gate, options = world.gate(scope="live:acme"), {"name": "charge", "remember": "all"}
    with pytest.raises(ValueError, match="no"):
        gate.run("charge:1", failing, **options)
    heard = [world.hear(lambda: gate.run("charge:1", failing, **options)) for _ in range(3)]
    told = [(one.key, one.operation, one.digest, one.fence, one.first_at) for one in heard]

    assert [type(one) for one in heard] == [RecordedFailure] * 3
    assert told == [("charge:1", "charge", *told[0][2:])] * 3


def test_a_store_that_is_away_names_the_operation_that_was_asked_for(world: Any) -> None:
    """
    Its record was not seen, so fence and time are not known.
    """
    gate, store = world.faulty()
    store.fail("claim", times=9)
    with pytest.raises(StoreUnavailable) as raised:
        gate.run("charge:1", world.Effect(), name="charge")

    assert (
        raised.value.key,
        raised.value.operation,
        raised.value.fence,
        raised.value.first_at,
    ) == ("charge:1", "charge", None, None)
