"""The usual case runs without a flow; whatever else comes, the flow takes over from there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from line_support import flows_made, struck_at

from onceward import Gate
from onceward.gate import straight_line, straight_line_async
from onceward.stores.memory import MemoryStore

SHAPES: dict[str, Callable[[Any, Any], Any]] = {
    "call": lambda gate, fn: gate.call("charge:1", fn).value,
    "run": lambda gate, fn: gate.run("charge:1", fn),
    "once": lambda gate, fn: gate.once(key="charge:{order}", name="charge")(lambda order: fn())(1),
    "hold": lambda gate, fn: _held(gate.hold("charge:1"), fn),
    "step": lambda gate, fn: gate.plan("order:1").step("charge", fn),
    "window": lambda gate, fn: gate.window("search", 60).run({"q": 1}, fn),
}


def _held(found: Any, fn: Any) -> Any:
    from onceward.gate import Returned

    return found.end(Returned(fn())).value if hasattr(found, "end") else found.value


@pytest.fixture
def flows(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The flows that were made."""
    return flows_made(monkeypatch, "operate", straight_line, straight_line_async)


class TestTheUsualCourse:
    """A claim that lands, a function that returns, a settle that lands; and its replay."""

    @pytest.mark.parametrize("listeners", [0, 1], ids=["unheard", "heard"])
    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.fault("line-is-left-when-somebody-listens")
    def test_needs_no_flow(self, world: Any, flows: list[Any], shape: str, listeners: int) -> None:
        """
        However it is called, and whether or not somebody listens: it runs once, and no flow is made.
        """
        heard: list[Any] = []
        gate = world.gate(listeners=[heard.append] * listeners)
        effect = world.Effect({"id": "ch_1"})

        assert SHAPES[shape](gate, effect) == {"id": "ch_1"}
        assert SHAPES[shape](gate, effect) == {"id": "ch_1"}
        assert effect.count == 1
        assert flows == []
        assert [event.type.value for event in heard] == ["claimed", "settled", "replayed"][: 3 * listeners]

    @pytest.mark.fault("a-quick-look-is-told-to-nobody")
    def test_a_replay_by_a_quick_look_is_told(self, world: Any) -> None:
        """
        A listener hears of every replay, by whichever way it was found, and of which operation.
        """
        heard: list[Any] = []
        world.gate().run("charge:1", world.Effect(), name="charge")
        gate = world.gate(listeners=[heard.append])
        for _ in range(2):
            gate.run("charge:1", world.Effect(), name="charge")

        assert [(event.type.value, event.operation, event.attempt) for event in heard] == [
            ("replayed", "charge", 1)
        ] * 2


class TestAnythingElse:
    """The flow is made once, led to where the line stands, and goes on."""

    @pytest.mark.parametrize(
        ("value", "options"),
        [
            (ValueError("declined"), {"guarantee": "repeatable"}),
            (object(), {}),
            ("x" * 100, {"result_bytes_max": 50}),
            ("kept", {"remember": lambda ended: True}),
        ],
        ids=["raises", "no stored form", "too large", "a function says what to remember"],
    )
    def test_is_left_to_a_flow(self, world: Any, flows: list[Any], value: Any, options: dict[str, Any]) -> None:
        """
        The function ran once, and was not asked again.
        """
        gate, effect = world.gate(), world.Effect(value)
        try:
            gate.run("charge:1", effect, **options)
        except ValueError as error:
            assert error is value

        assert effect.count == 1
        assert len(flows) == 1

    @pytest.mark.parametrize("what", ["claim", "settled"])
    @pytest.mark.parametrize("performs", [False, True], ids=["not sent", "answer lost"])
    def test_a_store_that_is_away_for_a_moment(self, world: Any, flows: list[Any], what: str, performs: bool) -> None:
        """
        A lost claim is taken back, a settle is put again: as a flow does, with the operation that the function had.
        """
        gate, store = world.faulty()
        effect = world.Effect()
        store.fail(what, performs=performs)
        world.hear(lambda: gate.run("charge:1", effect))

        assert gate.run("charge:1", effect) == "done"
        assert effect.count == 1
        assert len(flows) == (2 if what == "claim" and performs else 1)


@pytest.mark.fault("line-forgets-what-was-answered", "line-lets-an-interrupt-through")
@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer is at work already")
def test_interrupted_at_any_line_the_record_is_honest() -> None:
    """
    Ctrl-C between any two lines: a claim is left only where the function ran, and it means doubt when its lease ends.
    """
    number, ended = 0, False
    while not ended:
        number += 1
        effect: list[int] = []
        gate = Gate(MemoryStore(), scope="acme")
        with struck_at(number, straight_line) as passed:
            try:
                gate.run("charge:1", partial(effect.append, 1))
                ended = len(passed) < number
            except KeyboardInterrupt:
                ended = False
        stands = gate.records.get("charge:1")
        state = None if stands is None else stands.state

        assert state in (("settled", "in_doubt", "claimed") if effect else (None, "released")), passed[-1]

    assert number > 30
