"""Sources that number their events: gaps and rewinds are seen and told, and never a reason to refuse."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from inbox_support import World, pacspace

from onceward.messaging.inbox.event_numbers import GAPS_MAX


def deliver(inbox: Any, world: World, *numbers: Any) -> list[str | None]:
    """Events with these numbers, in this order; what was noticed about each."""
    found = []
    for number in numbers:
        id = f"e-{world.environment.random(6).hex()}"
        received = inbox.receive("pac", *world.signed(id, {"data": {"sequence": number}}))
        found.append(None if received.anomaly is None else str(received.anomaly))
    return found


def seen(world: World) -> tuple[Any, ...]:
    """What operators are shown: the highest number, what is missing, how often it was rewound."""
    opened = world.open()
    [view] = opened.sources()
    opened.close()
    return view.highest, view.missing, view.rewinds


@pytest.fixture
def numbered(inbox: Any) -> Any:
    """An inbox with a source that numbers its events."""
    inbox.add(pacspace(number_at="member:data.sequence"))
    return inbox


def test_in_order_there_is_nothing_to_tell(numbered: Any, world: World) -> None:
    """
    We begin where the sender is.
    """
    assert deliver(numbered, world, 41, 42, 43, 44) == [None] * 4
    assert seen(world) == (44, (), 0)


def test_a_gap_is_told_and_a_late_event_fills_it(numbered: Any, world: World, caplog: pytest.LogCaptureFixture) -> None:
    """
    Events overtake each other: what is still missing is what is shown.
    """
    with caplog.at_level(logging.WARNING):
        found = deliver(numbered, world, 1, 6, 4, 7)

    assert found == [None, "gap: 2-5 missing", "late: 4", None]
    assert seen(world) == (7, ("2-3", "5"), 0)
    assert "gap: 2-5 missing" in caplog.text
    assert deliver(numbered, world, 2, 3, 5) == ["late: 2", "late: 3", "late: 5"]
    assert seen(world) == (7, (), 0)


def test_a_number_that_was_seen_with_another_event_is_a_rewind(numbered: Any, world: World) -> None:
    """
    The sender started over, or lost its counter. A redelivery of the same event is none.
    """
    headers, body = world.signed("e-1", {"first": True, "data": {"sequence": 1}})
    assert [numbered.receive("pac", headers, body).duplicate for _ in range(2)] == [False, True]

    assert deliver(numbered, world, 2, 1) == [None, "rewind: 1"]
    assert seen(world) == (2, (), 1)


def test_what_is_no_number_is_received_all_the_same(numbered: Any, world: World) -> None:
    """
    The event is signed: it counts, its number does not.
    """
    assert deliver(numbered, world, None, "7", -1, 1.5, True, 2**60, [1]) == [None] * 7
    assert world.count() == 7


def test_a_number_in_a_header_is_ascii_digits(inbox: Any, world: World) -> None:
    """
    As everywhere: one spelling.
    """
    inbox.add(pacspace(number_at="header:X-Sequence"))
    for id, text in {"a": "1", "b": "4", "c": "５", "d": " 9"}.items():
        headers, body = world.signed(id)
        inbox.receive("pac", {**headers, "x-sequence": text}, body)

    assert seen(world) == (4, ("2-3",), 0)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_source_that_leaves_gaps_for_ever_does_not_fill_the_table(
    numbered: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The oldest gap is forgotten first.
    """
    assert GAPS_MAX == 100
    monkeypatch.setattr("onceward.messaging.inbox.event_numbers.GAPS_MAX", 3)
    deliver(numbered, world, *range(1, 13, 2))

    assert seen(world) == (11, ("6", "8", "10"), 0)
