"""Which calls are the same: the key of a call, its number among equal ones, and runs without a history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agent_support import Colour, Effects
from hypothesis import given
from hypothesis import strategies as st

from onceward.agents import AgentGate, ForModel, NotFinal, PastCall, Tool, ToolCall, number_in_history
from onceward.agents.tool_call import key_of_call
from onceward.agents.tools import BLIND
from onceward.errors import KeyInvalid

OpenGate = Callable[..., AgentGate]


class TestTheKey:
    def test_it_never_changes(self) -> None:
        """Golden: a change would make every stored call another one."""
        call = ToolCall("order-42", "charge", {"order_id": "o-17", "cents": 1250}, nth=1)

        assert key_of_call(call, BLIND) == "4be4a6700171a46334f167936f1a56d8bad2d7b08e68570cfbd35f5e822c6027"

    def test_arguments_count_by_their_canonical_form(self) -> None:
        """Order of members, and 1 or 1.0: stores bring numbers back as floats."""
        one = ToolCall("r", "t", {"a": 1, "b": [1.0]})
        other = ToolCall("r", "t", {"b": [1], "a": 1.0})

        assert key_of_call(one, BLIND) == key_of_call(other, BLIND)

    def test_parts_do_not_run_together(self) -> None:
        """("a", "bc") and ("ab", "c") are two calls."""
        assert key_of_call(ToolCall("a", "bc", 0), BLIND) != key_of_call(ToolCall("ab", "c", 0), BLIND)

    def test_a_key_that_was_sent_along_is_taken_as_it_is(self) -> None:
        """As MCP clients do; a template of ours still wins."""
        call = ToolCall("", "charge", {"order_id": "1"}, key="from-the-client")

        assert key_of_call(call, BLIND) == "from-the-client"
        assert key_of_call(call, Tool("keyed", key="charge:{order_id}")) == "charge:1"

    def test_a_template_takes_no_null(self) -> None:
        """An optional argument that was left out would give every such call one key."""
        with pytest.raises(KeyInvalid, match="order_id"):
            key_of_call(ToolCall("r", "charge", {"order_id": None}), Tool("keyed", key="charge:{order_id}"))


DONE, OPEN = True, False


def _calls(*pairs: tuple[str, bool]) -> list[PastCall]:
    return [PastCall(*pair) for pair in pairs]


class TestNumbersFromHistory:
    @pytest.mark.parametrize(
        ("answers", "id", "number"),
        [
            ([_calls(("a", OPEN))], "a", 0),
            ([_calls(("a", OPEN), ("b", OPEN))], "b", 1),
            ([_calls(("a", DONE)), _calls(("b", OPEN))], "b", 1),
            ([_calls(("a", OPEN)), _calls(("b", OPEN))], "b", 0),
            ([_calls(("a", OPEN), ("b", DONE)), _calls(("c", OPEN))], "c", 0),
            ([_calls(("a", OPEN), ("b", DONE)), _calls(("c", OPEN), ("d", OPEN))], "d", 2),
            ([_calls(("a", DONE)), _calls(("b", DONE))], "unknown", 2),
            ([_calls(("a", OPEN))], "unknown", 0),
            ([], "a", 0),
        ],
    )
    def test_a_call_without_an_answer_keeps_its_number(
        self, answers: list[list[PastCall]], id: str, number: int
    ) -> None:
        """An equal call later on is that one again; two in one answer of the model are two."""
        assert number_in_history(answers, id) == number

    @given(st.lists(st.lists(st.booleans(), max_size=3), max_size=6))
    def test_calls_of_one_answer_never_share_a_number(self, shape: list[list[bool]]) -> None:
        """Two intended equal calls are two effects, whatever came before."""
        ids = iter(range(100))
        answers = [[PastCall(str(next(ids)), done) for done in calls] for calls in shape]
        for place, calls in enumerate(answers):
            numbers = [number_in_history(answers[: place + 1], one.id) for one in calls]

            assert len(set(numbers)) == len(numbers)


class TestRuns:
    """Where a framework keeps no history: the test of the issue, in every combination."""

    def test_equal_calls_of_one_process_are_several(
        self, colour: Colour, open_gate: OpenGate, effects: Effects
    ) -> None:
        """Each is wanted; and the same id is the same call."""
        run = open_gate().run("r")
        answers = [colour.run(run, "mail", {"to": "a"}, effects, id=id) for id in (None, None, "x", "x")]

        assert [answer["number"] for answer in answers] == [1, 2, 3, 3]

    @pytest.mark.requirement("B45")
    def test_a_loop_that_starts_over_is_given_its_answers(
        self, colour: Colour, open_gate: OpenGate, effects: Effects
    ) -> None:
        """Nothing was saved, so the restart begins from its input and makes the same calls: no second effect."""
        for _ in range(3):
            run = open_gate().run("r")
            answers = [colour.run(run, "mail", {"to": "a"}, effects) for _ in range(2)]

            assert [answer["number"] for answer in answers] == [1, 2]
        assert effects.count == 2

    @pytest.mark.fault("agents-delivered-is-not-read")
    def test_a_call_wanted_again_after_its_answer_was_delivered_is_another(
        self, colour: Colour, open_gate: OpenGate, effects: Effects
    ) -> None:
        """Across a restart: the same call wanted twice gives two effects."""
        for number in range(1, 12):
            run = open_gate().run("r")
            answer = colour.run(run, "mail", {"to": "a"}, effects)
            colour.delivered(run)

            assert answer == {"number": number}

    @pytest.mark.fault("agents-unanswered-takes-a-number")
    def test_a_call_that_came_to_no_answer_is_the_same_again(
        self, colour: Colour, open_gate: OpenGate, effects: Effects
    ) -> None:
        """ "Try again" of a model meets the same doubt, in this process and in the next."""
        run = open_gate().run("r")
        told = [colour.run(run, "mail", {"to": "a"}, fn) for fn in (effects.failing, effects, effects)]
        colour.delivered(run)
        told.append(colour.run(open_gate().run("r"), "mail", {"to": "a"}, effects))

        assert all(isinstance(one, ForModel) for one in told)
        assert effects.count == 1

    @pytest.mark.fault("agents-not-final-takes-a-number")
    def test_a_result_that_is_not_final_leaves_its_number(
        self, colour: Colour, open_gate: OpenGate, effects: Effects
    ) -> None:
        """It asks for input; the call that follows is this one, also for a process that starts over."""

        def asks() -> None:
            raise NotFinal("who are you?")

        run = open_gate().run("r")
        asked = colour.run(run, "mail", {}, asks, id="a")
        answer = colour.run(run, "mail", {}, effects, id="b")
        again = colour.run(open_gate().run("r"), "mail", {}, effects)

        assert (asked, answer, again) == ("who are you?", {"number": 1}, {"number": 1})

    def test_an_exception_that_is_raised_leaves_its_number(
        self, colour: Colour, open_gate: OpenGate, effects: Effects
    ) -> None:
        """As one that is told."""
        run = open_gate().run("r")
        with pytest.raises(TimeoutError):
            colour.run(run, "mail", {}, effects.failing, tell_errors=False)

        assert colour.run(run, "mail", {}, effects).code == "in_doubt"

    @pytest.mark.requirement("B45")
    def test_another_run_is_another_piece_of_work(self, colour: Colour, open_gate: OpenGate, effects: Effects) -> None:
        """Its calls happen, whatever the run before has done."""
        gate = open_gate()
        for name in ("march", "april"):
            colour.run(gate.run(name), "mail", {"to": "a"}, effects)

        assert effects.count == 2

    def test_a_read_only_tool_takes_no_number(self, colour: Colour, open_gate: OpenGate, effects: Effects) -> None:
        """It is run, and nothing is kept."""
        gate = open_gate(look=Tool("read-only"))
        answers = [colour.run(gate.run("r"), "look", {}, effects) for _ in range(2)]

        assert answers == [{"number": 1}, {"number": 2}]
        assert gate.blocking.records.list() == ()

    def test_looking_for_the_number_grows_slowly(self, colour: Colour, open_gate: OpenGate, effects: Effects) -> None:
        """A thousand delivered calls cost the next process about twenty looks, not a thousand."""
        gate, looked = open_gate(), []
        for nth in (*range(40), *range(40, 200)):
            gate.mark_delivered(ToolCall("r", "mail", {}, nth))
        store: Any = gate.blocking.store
        load = store.load
        store.load = lambda id: looked.append(id) or load(id)

        assert gate.delivered_before("r", "mail", {}) == 200
        assert len(looked) <= 20
