"""Hypothesis strategies: what is drawn is what it is said to be, and a schedule finds what doubles."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from onceward import Gate, KeyReused
from onceward.errors import ConfigurationError
from onceward.keys import canonical, parse_json
from onceward.testing.once_scenes import Arrival
from onceward.testing.once_story import DoubledEffect
from onceward.testing.sandbox import Sandbox
from onceward.testing.strategies import (
    RequestPair,
    bodies,
    body_texts,
    changed_bodies,
    equal_bodies,
    keys,
    request_pairs,
    schedules,
)


@settings(max_examples=60)
@given(data=st.data(), body=bodies())
def test_equal_is_equal_and_changed_is_changed(data: st.DataObject, body: Any) -> None:
    """
    By the form that requests are compared by; texts are read back as the same request.
    """
    form = canonical(body)

    assert canonical(data.draw(equal_bodies(body))) == form
    assert canonical(parse_json(data.draw(body_texts(body)))) == form
    assert canonical(data.draw(changed_bodies(body))) != form


@pytest.mark.fault("strategies-changed-is-equal")
@settings(max_examples=40)
@given(pair=request_pairs())
def test_the_gate_replays_an_equal_request_and_refuses_a_changed_one(pair: RequestPair) -> None:
    """
    Whatever the key, whatever the body.
    """
    gate: Gate = Sandbox().gate()
    gate.run(pair.first.key, lambda: "first", request=pair.first.body)
    try:
        answer = gate.run(pair.second.key, lambda: "second", request=pair.second.body)
    except KeyReused:
        answer = "refused"

    assert answer == ("first" if pair.equal else "refused")


@given(key=keys())
def test_every_key_is_one(key: str) -> None:
    """
    The gate takes it.
    """
    assert Sandbox().gate().run(key, lambda: 1) == 1


def charging(guarantee: Any) -> tuple[Sandbox, Any]:
    """A world, and a function in it."""
    sandbox = Sandbox()
    gate = sandbox.gate(guarantee=guarantee)
    return sandbox, lambda: gate.run("charge", lambda: sandbox.effects.record("charge"))


@given(schedule=schedules())
@settings(max_examples=40)
def test_no_schedule_doubles_what_is_behind_a_gate(schedule: list[Arrival]) -> None:
    """
    Whatever dies where, and however late the retries are.
    """
    sandbox, charge = charging("blind")

    sandbox.assert_once.under(schedule, charge)
    sandbox.close()


def test_a_schedule_that_doubles_is_found_and_made_small() -> None:
    """
    Three calls are left of it: one that dies after its effect, and two that wait, until its lease is over.
    """
    drawn: list[list[Arrival]] = []

    @settings(max_examples=200, derandomize=True, database=None, phases=[Phase.generate, Phase.shrink])
    @given(schedule=schedules())
    def check(schedule: list[Arrival]) -> None:
        sandbox, charge = charging("repeatable")
        drawn.append(schedule)
        sandbox.assert_once.under(schedule, charge)

    with pytest.raises(DoubledEffect):
        check()
    assert drawn[-1] == [Arrival(0.0, "effect.after"), Arrival(), Arrival()]


def test_failpoints_that_are_none_are_refused() -> None:
    """
    Before anything is drawn.
    """
    with pytest.raises(ConfigurationError, match=r"Did you mean call.after"):
        schedules(points=["call.afte"])


def test_a_schedule_is_played_by_hand_too() -> None:
    """
    What the gate says at each call is what a caller would be told.
    """
    sandbox, charge = charging("blind")
    late, crash = [Arrival(), Arrival(90_000)], [Arrival(0, "call.after"), Arrival(), Arrival(61)]

    assert [sandbox.assert_once.under(one, charge).refused for one in ([Arrival()], late, crash)] == [0, 1, 2]


def test_without_hypothesis_it_is_said_what_to_install() -> None:
    """
    The rest of `onceward.testing` does not need it.
    """
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "import onceward.testing.sandbox\n"
        "try:\n    import onceward.testing.strategies\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout == "onceward.testing.strategies needs Hypothesis: pip install hypothesis\n"
