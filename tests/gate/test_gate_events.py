"""What listeners are told: everything, about digests only, and for free when nobody listens."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import pytest

from onceward import NOT_FOUND, Found, OncewardError
from onceward._core import finish_flow
from onceward._core.key_lint import lint_key
from onceward.errors import NothingHappened
from onceward.gate import Event, EventType

SECRET = "ann.smith@example.com"


def told(gate: Any) -> list[Event]:
    """The events of a gate from now on."""
    events: list[Event] = []
    gate.gate.listen(events.append)
    return events


def happenings(events: list[Event]) -> list[str]:
    return [event.type.value for event in events]


def test_a_run_and_a_replay_are_told(world: Any) -> None:
    """
    Claimed, settled, replayed; with the record's digest, scope, operation, attempt and fence.
    """
    gate = world.gate()
    events = told(gate)

    outcome = gate.call("charge:1", world.Effect(), name="charge")
    gate.run("charge:1", world.Effect())

    assert happenings(events) == ["claimed", "settled", "replayed"]
    assert Event(EventType.SETTLED, gate.get("charge:1").digest, "acme", "charge", 1, outcome.fence) == events[
        1
    ]._replace(detail="")
    assert len({event.digest for event in events}) == 1


@pytest.mark.parametrize(
    ("value", "options", "last"),
    [
        (NothingHappened, {}, "released"),
        (TimeoutError, {}, "in_doubt"),
        (TimeoutError, {"guarantee": "repeatable"}, "released"),
        (ValueError, {"remember": "all"}, "settled"),
        (object(), {}, "not_replayable"),
        ("busy", {"remember": lambda ended: False}, "released"),
    ],
    ids=["released", "in_doubt", "repeatable", "remembered", "not_replayable", "not-remembered"],
)
def test_every_ending_is_told(world: Any, value: Any, options: dict[str, Any], last: str) -> None:
    """
    What became of the record, in its own words.
    """
    gate = world.gate()
    events = told(gate)
    with suppress(OncewardError, TimeoutError, ValueError):
        gate.run("charge:1", world.Effect(value() if isinstance(value, type) else value), **options)

    assert ["claimed", last] == happenings(events)


@pytest.mark.parametrize(
    ("prepare", "detail"),
    [("reused", "reused"), ("in_doubt", "in_doubt"), ("expired", "expired"), ("not_replayable", "not_replayable")],
)
def test_every_refusal_is_told_with_its_reason(world: Any, prepare: str, detail: str) -> None:
    """
    Reused, in doubt, expired, not replayable.
    """
    gate = world.gate()
    value = {"in_doubt": TimeoutError(), "not_replayable": object()}.get(prepare, 1)
    with suppress(TimeoutError):
        gate.run("charge:1", world.Effect(value))
    if prepare == "expired":
        world.env.advance(86_400)
    events = told(gate)

    with pytest.raises(OncewardError):
        gate.run("charge:1", world.Effect(), request=2 if prepare == "reused" else None)

    assert [(EventType.REFUSED, detail)] == [(event.type, event.detail) for event in events]


def test_waiting_and_giving_up_are_told(world: Any) -> None:
    """
    Once each, however often it looked.
    """
    gate, other = world.gate(), world.gate(wait=5)
    events = told(other)

    gate.run("charge:1", lambda: world.hear(lambda: other.run("charge:1", world.Effect())).code)

    assert happenings(events) == ["waiting", "refused"]


def test_a_takeover_is_told_to_the_late_one(world: Any) -> None:
    """
    Overtaken; and nothing is said to have settled.
    """
    gate, other = world.gate(guarantee="repeatable"), world.gate(guarantee="repeatable")
    events = told(gate)

    def slow() -> None:
        world.env.advance(61)
        other.run("charge:1", world.Effect())

    world.hear(lambda: gate.run("charge:1", slow))

    assert happenings(events) == ["claimed", "overtaken"]


def test_a_decision_is_told(world: Any) -> None:
    """
    By a person and by a probe.
    """
    gate = world.gate()
    events = told(gate)
    for key in ("charge:1", "charge:2"):
        world.crash(key, guarantee="probed", probe=lambda operation: NOT_FOUND)
    world.env.advance(61)

    gate.reconcile("charge:1", Found(1))
    gate.run("charge:2", world.Effect(), guarantee="probed", probe=lambda operation: Found(2))

    assert happenings(events) == ["reconciled", "claimed", "reconciled", "settled"]


def test_a_store_that_is_away_is_told(world: Any) -> None:
    """
    One event per try, so that an alert can be set on it.
    """
    gate, store = world.faulty()
    events = told(gate)
    store.fail("settled", 2)
    gate.run("charge:1", world.Effect())

    assert happenings(events) == ["claimed", "store_retried", "store_retried", "settled"]


def test_a_renewal_is_told(world: Any) -> None:
    """
    With the operation it is for.
    """
    gate = world.gate()
    events = told(gate)

    def slow() -> None:
        world.env.advance(20)
        gate.sweep()

    gate.run("charge:1", slow)

    assert happenings(events) == ["claimed", "renewed", "settled"]


def test_when_nobody_listens_no_event_is_made(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Not even to be thrown away.
    """

    def never(*_: Any) -> None:
        raise AssertionError("an event was made")

    monkeypatch.setattr(finish_flow, "Event", never)
    gate = world.gate()
    gate.run("charge:1", world.Effect())
    gate.run("charge:1", world.Effect())
    world.hear(lambda: gate.run("charge:1", world.Effect(), request=2))
    world.hear(lambda: gate.run("charge:2", world.Effect(NothingHappened())))


def test_a_listener_that_stopped_is_told_nothing_more(world: Any) -> None:
    """
    Stopping twice is fine.
    """
    gate, events = world.gate(), []
    stop = gate.gate.listen(events.append)
    gate.run("charge:1", world.Effect())
    stop()
    stop()
    gate.run("charge:2", world.Effect())

    assert happenings(events) == ["claimed", "settled"]


@pytest.mark.fault("a-listener-that-stops-keeps-another-from-being-told")
def test_a_listener_that_stops_while_it_is_told_keeps_nobody_from_being_told(world: Any) -> None:
    """
    Whoever listened when something happened is told of it.
    """
    gate, events = world.gate(), []

    def once(event: Event) -> None:
        stop()

    stop = gate.gate.listen(once)
    gate.gate.listen(events.append)
    gate.run("charge:1", world.Effect())

    assert happenings(events) == ["claimed", "settled"]


def test_a_listener_that_raises_changes_nothing(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """
    It is logged; the operation and the other listeners go on.
    """

    def broken(event: Event) -> None:
        raise ZeroDivisionError

    gate, events = world.gate(listeners=[broken]), []
    gate.gate.listen(events.append)

    with caplog.at_level(logging.ERROR, "onceward"):
        assert [gate.run("charge:1", world.Effect()) for _ in range(2)] == ["done", "done"]

    assert happenings(events) == ["claimed", "settled", "replayed"]
    assert len(caplog.records) == 3


@pytest.mark.requirement("D14")
def test_a_key_is_never_shown(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """
    Personal data in a key is flagged by the linter; events, logs, errors and notes show a digest in its place.
    """
    key, shown = f"mail:{SECRET}", []

    def broken(event: Event) -> None:
        shown.append(str(event) + repr(event))
        raise ZeroDivisionError

    gate = world.gate(listeners=[broken], wait=0)

    def hear(call: Any) -> None:
        try:
            call()
        except Exception as error:
            shown.append(str(error) + repr(error) + "".join(getattr(error, "__notes__", ())))

    def pay(operation: Any) -> None:
        shown.append(repr(operation))
        hear(lambda: gate.run(key, world.Effect()))
        raise TimeoutError

    with caplog.at_level(logging.DEBUG):
        hear(lambda: gate.run(key, pay))
        hear(lambda: gate.run(key, world.Effect()))
        hear(lambda: gate.run(key, world.Effect(), request="other"))
        hear(lambda: gate.reconcile(key, Found(1)))
        hear(lambda: gate.reconcile(key, Found(2)))
        hear(lambda: gate.run(key + " ", world.Effect()))
        hear(lambda: world.gate(scope="live:acme").run(f"test:{key}", world.Effect()))
        world.env.advance(86_400)
        hear(lambda: gate.run(key, world.Effect()))
        hear(lambda: gate.plan(key).step(key, world.Effect(TimeoutError())))
        hear(lambda: gate.plan(key).step(key, world.Effect()))
        hear(lambda: gate.sequence(key).run(7, world.Effect()))
        hear(lambda: gate.window(key).run(key, world.Effect(TimeoutError())))

    assert [finding.code for finding in lint_key(key)] == ["K4"]
    assert [finding.code for finding in lint_key("call:+4915112345678")] == ["K4"]
    assert len(shown) > 20
    assert [text for text in (*shown, caplog.text) if SECRET in text] == []
    assert any(gate.get(key).digest in text for text in shown)
