"""Declared when declared: what cannot work is refused before anything runs."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from onceward import AsyncGate, ConfigurationError, Gate, Operation
from onceward.errors import ScopeMissing

NAN = float("nan")


def test_a_gate_needs_a_scope() -> None:
    """
    Nobody said who is calling: nothing is opened.
    """
    for made in (Gate, AsyncGate):
        for scope in (None, ""):
            with pytest.raises(ScopeMissing):
                made("memory://", scope=scope)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            made("memory://")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["lease", "lease_max", "wait", "keyed_for", "retain", "tombstone"])
@pytest.mark.parametrize(
    "value", [-1, -0.001, NAN, float("inf"), float("-inf"), True, "60", None, timedelta(-1), 1e300, 10**30], ids=repr
)
def test_a_duration_is_a_positive_finite_number_of_seconds(name: str, value: Any) -> None:
    """
    On the gate, per call and per declared function alike.
    """
    gate = Gate("memory://", scope="acme")
    for declare in (
        lambda: Gate("memory://", scope="acme", **{name: value}),
        lambda: gate.run("charge:1", int, **{name: value}),
        lambda: gate.once(key="charge:{order}", **{name: value})(lambda order: order),
        lambda: gate.plan("p", **{name: value}),
        lambda: gate.sequence("s", **{name: value}),
    ):
        with pytest.raises(ConfigurationError, match=name):
            declare()
    assert gate.records.list() == ()


def test_an_integer_too_large_for_any_clock_is_refused_like_other_long_durations() -> None:
    """
    Also where it is too large to be a float.
    """
    with pytest.raises(ConfigurationError):
        Gate("memory://", scope="acme", wait=10**400)


@pytest.mark.parametrize("name", ["lease", "lease_max", "keyed_for", "retain", "tombstone"])
@pytest.mark.parametrize("value", [0, 0.0, timedelta(0)], ids=repr)
def test_zero_is_no_duration_except_for_waiting(name: str, value: Any) -> None:
    """
    Not waiting at all is a choice; holding for no time is none.
    """
    with pytest.raises(ConfigurationError, match=name):
        Gate("memory://", scope="acme", **{name: value})

    assert Gate("memory://", scope="acme", wait=value)._call_factory.terms.wait == 0


def test_seconds_and_timedelta_say_the_same() -> None:
    """
    Whole numbers, fractions and timedeltas, down to the microsecond.
    """
    said = [
        Gate("memory://", scope="a", retain=value)._call_factory.terms.retain for value in (90, 90.0, timedelta(0, 90))
    ]

    assert said == [90_000_000] * 3
    assert Gate("memory://", scope="a", wait=timedelta(microseconds=1_500))._call_factory.terms.wait == 1_500


@pytest.mark.parametrize(
    "options",
    [
        {"lease": 86_401},
        {"lease": 0.0001},
        {"lease_max": 86_401},
        {"lease": 100, "lease_max": 50},
        {"lease": 3_601},
    ],
    ids=str,
)
def test_a_lease_is_neither_too_long_nor_too_short(options: dict[str, Any]) -> None:
    """
    Between a millisecond and a day, and not longer than its own ceiling.
    """
    with pytest.raises(ConfigurationError, match="lease"):
        Gate("memory://", scope="acme", **options)


def test_a_boolean_is_refused_also_after_its_number_was_taken(world: Any) -> None:
    """
    True equals 1 in Python; what was agreed for one call says nothing about the other.
    """
    gate = world.gate()
    gate.run("charge:1", world.Effect(), wait=1)

    with pytest.raises(ConfigurationError):
        gate.run("charge:1", world.Effect(), wait=True)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"guarantee": "certain"}, "guarantee"),
        ({"in_flight": "queue"}, "in_flight"),
        ({"after_expiry": "forget"}, "after_expiry"),
        ({"result_bytes_max": -1}, "result_bytes_max"),
        ({"result_bytes_max": True}, "result_bytes_max"),
        ({"relaxed_settle": "yes"}, "relaxed_settle"),
        ({"leese": 60}, "leese"),
        ({"ttl": 60}, "ttl"),
        ({"before": Exception}, "before=Exception"),
        ({"before": (ValueError, BaseException)}, "before=BaseException"),
        ({"before": ValueError()}, "before"),
        ({"before": [ValueError]}, "before"),
        ({"before": "ValueError"}, "before"),
    ],
    ids=str,
)
def test_an_unknown_choice_or_option_is_refused_and_named(options: dict[str, Any], word: str) -> None:
    """
    A typo in an option must not silently mean the default.
    """
    gate = Gate("memory://", scope="acme")
    for declare in (
        lambda: Gate("memory://", scope="acme", **options),
        lambda: gate.run("charge:1", int, **options),
        lambda: gate.once(key="charge:{order}", **options)(lambda order: order),
        lambda: gate.plan("p", **options),
    ):
        with pytest.raises(ConfigurationError, match=word):
            declare()


async def awaits() -> None:
    """An async function."""


class Awaits:
    async def __call__(self) -> None:
        """An object that is called like an async function."""


@pytest.mark.parametrize("fn", [awaits, Awaits(), partial(awaits), Awaits().__call__], ids=lambda fn: str(type(fn)))
def test_an_async_function_under_a_blocking_gate_is_refused(fn: Any) -> None:
    """
    In every way to hand it over; it would never run.
    """
    gate = Gate("memory://", scope="acme")
    for call in (
        lambda: gate.run("charge:1", fn),
        lambda: gate.plan("p").step("s", fn),
        lambda: gate.sequence("s").run(1, fn),
        lambda: gate.window("w").run({}, fn),
    ):
        with pytest.raises(ConfigurationError, match="AsyncGate"):
            call()

    assert gate.records.list() == ()


def test_an_async_function_is_refused_when_it_is_declared() -> None:
    """
    At the decorator, not at the first call.
    """

    async def pay(order: str) -> None:
        """Never called."""

    with pytest.raises(ConfigurationError, match="AsyncGate"):
        Gate("memory://", scope="acme").once(key="charge:{order}")(pay)


def test_an_async_probe_under_a_blocking_gate_is_refused() -> None:
    """
    Its answer would never come: that can be seen beforehand.
    """

    async def probe(operation: Operation) -> None:
        """Never called."""

    with pytest.raises(ConfigurationError):
        Gate("memory://", scope="acme").run("charge:1", int, guarantee="probed", probe=probe)


@pytest.mark.parametrize(
    "options", [{"guarantee": "probed"}, {"probe": lambda operation: None}], ids=["probed", "probe"]
)
def test_probed_and_its_probe_go_together(options: dict[str, Any]) -> None:
    """
    Neither without the other.
    """
    gate = Gate("memory://", scope="acme")
    for declare in (
        lambda: gate.run("charge:1", int, **options),
        lambda: gate.once(key="charge:{order}", **options)(lambda order: order),
    ):
        with pytest.raises(ConfigurationError, match="probe"):
            declare()


@pytest.mark.parametrize("options", [{"guarantee": "atomic"}, {"connection": "connection"}], ids=str)
def test_atomic_and_its_connection_go_together(options: dict[str, Any]) -> None:
    """
    Neither without the other; and atomic is not a gate's default.
    """
    gate = Gate("memory://", scope="acme")

    with pytest.raises(ConfigurationError, match="connection"):
        gate.once(key="charge:{order}", **options)(lambda order, connection: order)
    with pytest.raises(ConfigurationError, match=r"gate\.atomic"):
        gate.run("charge:1", int, guarantee="atomic")
    with pytest.raises(ConfigurationError, match="connection"):
        Gate("memory://", scope="acme", guarantee="atomic")


@pytest.mark.parametrize(
    ("fn", "key", "word"),
    [
        (lambda *orders: orders, "charge:{orders}", r"\*args"),
        (lambda order, **more: order, "charge:{order}", r"\*\*kwargs"),
        (lambda order: order, "charge:{oder}", "oder"),
        (lambda order: order, "charge", "no field"),
        (lambda order: order, "charge:{order.id}", "plain name"),
        (lambda order: order, "charge:{order", "cannot be read"),
        (lambda order, item: order, "charge:{order}{item}", "separator"),
        (lambda timestamp: timestamp, "charge:{timestamp}", "timestamp"),
        (lambda order, attempt: order, "charge:{order}:{attempt}", "attempt"),
        (lambda order, retry_count: order, "charge:{order}:{retry_count}", "retry_count"),
        (lambda order: order, lambda now: now, "now"),
        (lambda order: order, 17, "recipe"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_key_that_could_not_work_is_refused_at_the_decorator(fn: Any, key: Any, word: str) -> None:
    """
    Unknown fields, no fields, ingredients that change with every attempt, arguments without names.
    """
    with pytest.raises(ConfigurationError, match=word):
        Gate("memory://", scope="acme").once(key=key)(fn)


def test_what_is_excluded_must_be_there() -> None:
    """
    A misspelt exclusion would leave the argument in the request.
    """
    with pytest.raises(ConfigurationError, match="trace"):
        Gate("memory://", scope="acme").once(key="charge:{order}", exclude=("trace",))(lambda order: order)


def test_a_function_with_several_arguments_is_refused_with_advice() -> None:
    """
    A gate calls it with nothing or with the operation.
    """
    with pytest.raises(ConfigurationError, match=r"@gate\.once"):
        Gate("memory://", scope="acme").run("charge:1", lambda order, amount: None)


def test_what_cannot_be_called_is_refused() -> None:
    """
    A result is not a function.
    """
    with pytest.raises(ConfigurationError, match="cannot be called"):
        Gate("memory://", scope="acme").run("charge:1", {"id": 1})  # type: ignore[arg-type]
