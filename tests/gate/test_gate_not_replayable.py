"""Could not store is not did not happen: it ran, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceward import NotReplayable
from onceward.errors import RetryAdvice


class Opaque:
    """Nothing that could be stored."""


def refused_for_ever(world: Any, gate: Any, key: str, effect: Any) -> None:
    for _ in range(2):
        with pytest.raises(NotReplayable) as refusal:
            gate.run(key, effect)
        world.env.advance(3_600)
    assert effect.count == 1
    assert RetryAdvice.NEVER is refusal.value.retry


def test_a_result_larger_than_agreed_is_given_to_its_caller_and_refused_to_later_ones(world: Any) -> None:
    """
    It ran once and never runs again; at the limit itself it is kept.
    """
    gate = world.gate(result_bytes_max=10)
    fits, large = world.Effect("x" * 8), world.Effect("x" * 9)

    assert [gate.run("report:1", fits) for _ in range(2)] == ["x" * 8] * 2
    outcome = gate.call("report:2", large)

    assert (outcome.value, outcome.replayable, outcome.replayed) == ("x" * 9, False, False)
    refused_for_ever(world, gate, "report:2", large)


def test_a_result_that_cannot_be_stored_is_given_as_it_is(world: Any) -> None:
    """
    The first caller gets the very object.
    """
    gate, effect = world.gate(), world.Effect(Opaque())

    assert gate.run("make:1", effect) is effect.value
    refused_for_ever(world, gate, "make:1", effect)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1: 2}, {"a": {"b": Opaque()}}, "\ud800", 10**5_000],
    ids=lambda v: str(type(v)),
)
def test_what_json_does_not_know_is_not_bent_into_it(world: Any, value: Any) -> None:
    """
    NaN, keys that are not text, half characters and endless numbers are not stored as something else.
    """
    gate, effect = world.gate(), world.Effect(value)

    assert not gate.call("make:1", effect).replayable
    refused_for_ever(world, gate, "make:1", effect)


def test_a_value_that_raises_when_it_is_looked_at_has_happened(world: Any) -> None:
    """
    Whatever a result does while it is being stored, the effect took place.
    """

    class Hostile(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise RuntimeError("do not look")

    gate, effect = world.gate(), world.Effect([Hostile(a=1)])

    assert not gate.call("make:1", effect).replayable
    refused_for_ever(world, gate, "make:1", effect)


def test_a_value_that_contains_itself_has_happened(world: Any) -> None:
    """
    A cycle has no stored form.
    """
    loop: list[Any] = []
    loop.append(loop)
    gate, effect = world.gate(), world.Effect(loop)

    assert not gate.call("make:1", effect).replayable
    refused_for_ever(world, gate, "make:1", effect)


def test_an_open_stream_is_handed_on_and_not_consumed(world: Any, tmp_path: Path) -> None:
    """
    A file belongs to its first reader; a second one is refused. (A generator has not run, and is no result at all.)
    """
    (tmp_path / "report").write_text("1\n2\n")
    gate, effect = world.gate(), world.Effect()
    with (tmp_path / "report").open() as effect.value:
        assert list(gate.run("stream:1", effect)) == ["1\n", "2\n"]
    refused_for_ever(world, gate, "stream:1", effect)


def test_it_expires_like_any_other(world: Any) -> None:
    """
    Past its retention it is a tombstone: still refused.
    """
    gate, effect = world.gate(), world.Effect(Opaque())
    gate.run("make:1", effect)
    world.env.advance(86_400)

    assert world.hear(lambda: gate.run("make:1", effect)).code == "expired"
    assert effect.count == 1


def test_its_record_says_executed_without_a_result(world: Any) -> None:
    """
    Settled, without a codec: a stored null would have one.
    """
    gate = world.gate()
    gate.run("make:1", world.Effect(Opaque()))
    gate.run("make:2", world.Effect(None))

    assert (gate.get("make:1").state, gate.get("make:1").codec) == ("settled", None)
    assert (gate.get("make:2").state, gate.get("make:2").codec) == ("settled", "json/1")
