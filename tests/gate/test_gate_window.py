"""Windows: best-effort deduplication of equal requests for a while. Not for money."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onceward import ConfigurationError
from onceward.errors import NothingHappened


@pytest.mark.requirement("D31")
def test_an_equal_request_within_five_minutes_replays(world: Any) -> None:
    """
    300 seconds by default; equal means equal in canonical form.
    """
    window, search = world.gate().window("search"), world.Effect(["hit"])

    window.run({"q": "shoes", "page": 1}, search)
    world.env.advance(200)

    assert window.call({"page": 1, "q": "shoes"}, search).replayed
    assert window.run({"q": "boots", "page": 1}, search) == ["hit"]
    assert search.count == 2


@pytest.mark.requirement("D32")
def test_its_edge_is_sharp(world: Any) -> None:
    """
    At 299.999 s it replays, at 300 s it runs.
    """
    window, search = world.gate().window("search"), world.Effect()
    window.run("shoes", search)

    world.env.advance(299.999)
    assert window.call("shoes", search).replayed
    world.env.advance(0.001)
    assert not window.call("shoes", search).replayed
    assert search.count == 2


@pytest.mark.requirement("D33")
def test_hits_do_not_stretch_it(world: Any) -> None:
    """
    It counts from the first processing, however often it is asked in between.
    """
    window, search = world.gate().window("search"), world.Effect()

    for _ in range(5):
        window.run("shoes", search)
        world.env.advance(60)
    assert search.count == 1
    window.run("shoes", search)

    assert search.count == 2


@pytest.mark.requirement("D34")
def test_entries_past_it_are_removed(world: Any) -> None:
    """
    A thousand different requests do not stay for ever: no tombstones, no rest.
    """
    gate, amount = world.gate(), 50 if world.kind == "sqlite" else 1_000
    window = gate.window("search")
    for number in range(amount):
        window.run({"q": number}, world.Effect(number))
    assert amount == len(gate.rows())

    world.env.advance(300)
    gate.purge()

    assert gate.rows() == []


def test_failed_requests_are_removed_as_well(world: Any) -> None:
    """
    What raised leaves a released row; it may not outlive the window by a month.
    """
    gate = world.gate()
    with pytest.raises(NothingHappened):
        gate.window("search").run("shoes", world.Effect(NothingHappened()))

    world.env.advance(300)
    gate.purge()

    assert gate.rows() == []


@pytest.mark.requirement("D35")
def test_after_it_duplicates_are_accepted(world: Any) -> None:
    """
    By design: the same request runs once per window.
    """
    window, search = world.gate().window("search", 10), world.Effect()

    for _ in range(5):
        window.run("shoes", search)
        world.env.advance(10)

    assert search.count == 5


@pytest.mark.parametrize("seconds", [60, 60.0, timedelta(minutes=1)], ids=repr)
def test_its_length_is_seconds_or_a_timedelta(world: Any, seconds: Any) -> None:
    """
    Both say the same.
    """
    window, search = world.gate().window("search", seconds), world.Effect()
    window.run("shoes", search)
    world.env.advance(59.999)
    window.run("shoes", search)
    assert search.count == 1
    world.env.advance(0.001)
    window.run("shoes", search)

    assert search.count == 2


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True, "60"], ids=repr)
def test_a_length_that_is_none_is_refused(world: Any, seconds: Any) -> None:
    """
    When the window is made.
    """
    with pytest.raises(ConfigurationError):
        world.gate().window("search", seconds)


@pytest.mark.requirement("D37")
def test_money_and_a_window_do_not_go_together(world: Any) -> None:
    """
    Refused when it is declared and when it is called; nothing runs.
    """
    gate, charge = world.gate(), world.Effect()

    with pytest.raises(ConfigurationError, match="money"):
        gate.window("charges", money=True)
    with pytest.raises(ConfigurationError, match="money"):
        gate.window("charges").run({"amount": 12}, charge, money=True)

    assert charge.count == 0


def test_windows_of_other_names_do_not_share(world: Any) -> None:
    """
    The same request in another window is another request.
    """
    gate, search = world.gate(), world.Effect()

    gate.window("search").run("shoes", search)
    gate.window("suggest").run("shoes", search)

    assert search.count == 2
