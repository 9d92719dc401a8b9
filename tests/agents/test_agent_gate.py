"""Tool calls go through once, in both colours, and what the model reads instead of a result says what stands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agent_support import Colour, Effects

from onceward import (
    NOT_FOUND,
    Breaker,
    ConfigurationError,
    Found,
    KeyMissing,
    Retry,
    StoreUnavailable,
    current_operation,
)
from onceward.agents import AgentGate, FailedResult, ForModel, Framework, NotFinal, NotKept, Tool, ToolCall
from onceward.errors import KeyInvalid, ScopeMissing

OpenGate = Callable[..., AgentGate]
CALL = ToolCall("order-42", "charge", {"order_id": "42"}, id="call_1")


class TestOnce:
    def test_the_same_call_is_made_once_and_answered_alike(
        self, colour: Colour, open_gate: OpenGate, effects: Effects
    ) -> None:
        """A retry, and a restart on the same store, are given the first answer."""
        answers = [colour.call(open_gate(), CALL, effects) for _ in range(3)]

        assert answers == [{"number": 1}] * 3
        assert effects.count == 1

    def test_both_colours_meet_in_one_store(self, tmp_path: Path, effects: Effects) -> None:
        """One object serves def and async def: what one has done, the other replays. Also in memory."""
        for url in ("memory://", f"sqlite:///{tmp_path}/agent.db"):
            before = effects.count
            gate = AgentGate(url, scope="test:agents")
            first = gate.call(CALL, effects)

            async def again(gate: AgentGate = gate) -> Any:
                async with gate:
                    return await gate.acall(CALL, effects)

            assert asyncio.run(again()) == first
            assert effects.count == before + 1

    @pytest.mark.parametrize(
        "other",
        [
            CALL._replace(run="order-43"),
            CALL._replace(tool="refund"),
            CALL._replace(arguments={"order_id": "43"}),
            CALL._replace(nth=1),
        ],
        ids=["run", "tool", "arguments", "number"],
    )
    def test_run_tool_arguments_and_number_are_the_identity(
        self, colour: Colour, open_gate: OpenGate, effects: Effects, other: ToolCall
    ) -> None:
        """Another one of these is another call."""
        gate = open_gate()
        colour.call(gate, CALL, effects)
        colour.call(gate, other, effects)

        assert effects.count == 2

    @pytest.mark.parametrize("other", [CALL._replace(id="call_2"), CALL._replace(turn=7)], ids=["id", "turn"])
    def test_neither_the_models_id_nor_the_turn_is(
        self, colour: Colour, open_gate: OpenGate, effects: Effects, other: ToolCall
    ) -> None:
        """A model that answers anew gives new ids, and a restart may come to the call a turn earlier."""
        gate = open_gate()
        colour.call(gate, CALL, effects)
        colour.call(gate, other, effects)

        assert effects.count == 1

    def test_a_business_key_wins_over_the_place_in_the_run(
        self, colour: Colour, open_gate: OpenGate, effects: Effects
    ) -> None:
        """Whoever asks, in whatever run: an order is charged once."""
        gate = open_gate(charge=Tool("keyed", key="charge:{order_id}"))
        answers = [colour.call(gate, call, effects) for call in (CALL, CALL._replace(run="another", nth=5))]

        assert answers == [{"number": 1}] * 2
        assert effects.count == 1

    def test_a_read_only_tool_is_never_gated(self, colour: Colour, open_gate: OpenGate, effects: Effects) -> None:
        """It runs every time, and leaves no record."""
        gate = open_gate(charge=Tool("read-only"))
        answers = [colour.call(gate, CALL, effects) for _ in range(2)]

        assert answers == [{"number": 1}, {"number": 2}]
        assert gate.blocking.records.list() == ()

    def test_a_tool_finds_its_operation(self, colour: Colour, open_gate: OpenGate) -> None:
        """A keyed tool sends the same key downstream whenever it is called for the same thing."""
        gate, sent = open_gate(charge=Tool("keyed")), []

        def send() -> None:
            sent.append(current_operation().downstream_key("stripe"))
            raise TimeoutError

        for _ in range(2):
            with pytest.raises(TimeoutError):
                colour.call(gate, CALL, send)

        assert len(sent) == 2
        assert len(set(sent)) == 1


class TestWhatTheModelReads:
    def test_after_a_failure_it_may_have_happened(self, colour: Colour, open_gate: OpenGate, effects: Effects) -> None:
        """A blind tool that raised is not run again, whoever asks; the model is told where to look."""
        gate = open_gate(charge=Tool("blind", check="find_charge"))
        first = colour.call(gate, CALL, effects.failing, tell_errors=True)
        again = colour.call(gate, CALL, effects)

        assert (first.ran, first.in_doubt, first.code) == (True, True, "tool_failed")
        assert "may have happened" in first.text
        assert "find_charge" in first.text
        assert (again.ran, again.in_doubt, again.code) == (False, True, "in_doubt")
        assert "may already have happened" in again.text
        assert "find_charge" in again.text
        assert effects.count == 1

    def test_what_a_tool_raises_is_raised_unless_it_is_to_be_told(
        self, colour: Colour, open_gate: OpenGate, effects: Effects
    ) -> None:
        """The framework keeps its own ways with exceptions."""
        with pytest.raises(TimeoutError, match="no answer came"):
            colour.call(open_gate(), CALL, effects.failing)

    def test_a_failure_that_proves_no_effect_is_told_so(self, colour: Colour, open_gate: OpenGate) -> None:
        """The key is free again, and the text does not speak of doubt."""
        gate = open_gate(charge=Tool("blind", options={"before": ValueError}))

        def refuse() -> None:
            raise ValueError("no such order")

        told = colour.call(gate, CALL, refuse, tell_errors=True)

        assert (told.ran, told.in_doubt) == (True, False)
        assert "no such order" in told.text
        assert "had no effect" in told.text
        assert colour.call(gate, CALL, lambda: "done") == "done"

    def test_other_arguments_under_one_key_are_refused(
        self, colour: Colour, open_gate: OpenGate, effects: Effects
    ) -> None:
        """The first request stands, and the model learns that."""
        gate = open_gate(charge=Tool("keyed", key="charge:{order_id}"))
        colour.call(gate, CALL, effects)
        told = colour.call(gate, CALL._replace(arguments={"order_id": "42", "amount": 7}), effects)

        assert told.code == "key_reused"
        assert "a key stands for one request" in told.text
        assert effects.count == 1

    def test_an_open_breaker_has_its_own_words(self, colour: Colour, open_gate: OpenGate, effects: Effects) -> None:
        """Nothing was done, and nothing is in doubt."""
        breaker = Breaker("bank", threshold=1, recovery=60)
        gate = open_gate(charge=Tool("repeatable", options={"breaker": breaker}))
        with pytest.raises(TimeoutError):
            colour.call(gate, CALL, effects.failing)
        told = colour.call(gate, CALL._replace(nth=1), effects)

        assert (told.code, told.in_doubt, effects.count) == ("circuit_open", False, 1)

    def test_a_call_under_way_elsewhere_has_its_own_words(
        self, colour: Colour, open_gate: OpenGate, effects: Effects
    ) -> None:
        """It is not started anew."""
        held = colour.open_call(open_gate(), CALL)
        told = colour.call(open_gate(charge=Tool("blind", options={"in_flight": "refuse"})), CALL, effects)

        assert told.code == "in_flight"
        assert colour.end(held, "done") == "done"
        assert effects.count == 0

    def test_a_programmers_mistake_is_raised_and_not_told(
        self, colour: Colour, open_gate: OpenGate, effects: Effects
    ) -> None:
        """An agent that is told about a wrong template would end "done", and nobody was charged."""
        gate = open_gate(charge=Tool("keyed", key="charge:{order}"))
        with pytest.raises(KeyMissing, match="order"):
            colour.call(gate, CALL, effects, tell_errors=True)
        with pytest.raises(KeyMissing, match="run"):
            colour.call(open_gate(), CALL._replace(run=""), effects, tell_errors=True)

        assert effects.count == 0

    def test_a_store_that_is_away_is_raised_and_nothing_runs(self, colour: Colour, effects: Effects) -> None:
        """A model can do nothing about it."""
        gate = AgentGate("sqlite:////nowhere/at/all/agent.db", scope="test:agents")
        with pytest.raises((StoreUnavailable, ConfigurationError)):
            colour.call(gate, CALL, effects, tell_errors=True)

        assert effects.count == 0

    def test_a_refusal_is_logged_without_arguments(
        self, colour: Colour, open_gate: OpenGate, effects: Effects, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What a person needs is in the log: the tool, the code and the record's digest."""
        gate = open_gate()
        colour.call(gate, CALL._replace(arguments={"card": "4242"}), effects.failing, tell_errors=True)
        with caplog.at_level(logging.WARNING, "onceward.agents"):
            told = colour.call(gate, CALL._replace(arguments={"card": "4242"}), effects)

        assert "in_doubt" in caplog.text
        assert str(told.error.digest) in caplog.text
        assert "4242" not in caplog.text


@dataclass
class Message:
    """A framework's own result."""

    text: str
    id: str | None
    failed: bool = False
    asks: bool = False


def _dump(message: Any) -> Any:
    if not isinstance(message, Message):
        return NotKept(message)
    if message.asks:
        raise NotFinal(message)
    if message.failed:
        raise FailedResult(message, message.text)
    return {"text": message.text}


class Interrupt(Exception):
    """Control flow of a framework."""


FRAMEWORK = Framework(
    "toy",
    dump=_dump,
    load=lambda stored, call: Message(stored["text"], call.id),
    plain=lambda value, call: Message(f"plain {value}", call.id),
    control_flow=(Interrupt,),
)


class TestTheSeam:
    def test_a_result_comes_back_in_the_frameworks_type(self, colour: Colour, open_gate: OpenGate) -> None:
        """With the id of the call that asks now."""
        gate = open_gate()
        first = colour.call(gate, CALL, lambda: Message("done", "call_1"), framework=FRAMEWORK)
        again = colour.call(gate, CALL._replace(id="call_9"), lambda: Message("no", ""), framework=FRAMEWORK)

        assert (first, again) == (Message("done", "call_1"), Message("done", "call_9"))

    @pytest.mark.fault("agents-failed-result-is-stored")
    def test_an_error_that_became_a_result_is_no_success(self, colour: Colour, open_gate: OpenGate) -> None:
        """It is told in our words, never stored, and never replayed as an answer."""
        gate = open_gate()
        failed = Message("Error: time out. Please try again.", "call_1", failed=True)
        first = colour.call(gate, CALL, lambda: failed, framework=FRAMEWORK)
        again = colour.call(gate, CALL, lambda: Message("done", ""), framework=FRAMEWORK)

        assert isinstance(first, ForModel)
        assert isinstance(again, ForModel)
        assert (first.in_doubt, again.code) == (True, "in_doubt")

    @pytest.mark.fault("agents-not-final-is-doubt")
    def test_a_result_that_is_not_final_releases(self, colour: Colour, open_gate: OpenGate) -> None:
        """It asks for something first; the call comes again, and runs."""
        gate, asking = open_gate(), Message("who are you?", "call_1", asks=True)

        assert colour.call(gate, CALL, lambda: asking, framework=FRAMEWORK) is asking
        assert colour.call(gate, CALL, lambda: Message("done", ""), framework=FRAMEWORK) == Message("done", "call_1")

    def test_control_flow_passes_through_and_releases(self, colour: Colour, open_gate: OpenGate) -> None:
        """Also where errors are to be told: an interrupt is none."""
        gate = open_gate()

        def interrupt() -> None:
            raise Interrupt

        for _ in range(2):
            with pytest.raises(Interrupt):
                colour.call(gate, CALL, interrupt, framework=FRAMEWORK, tell_errors=True)

    def test_a_result_that_cannot_be_kept_is_returned_once(self, colour: Colour, open_gate: OpenGate) -> None:
        """The very object the first time; after that, the model is told that it was done."""
        gate, command = open_gate(), object()

        assert colour.call(gate, CALL, lambda: command, framework=FRAMEWORK) is command
        assert colour.call(gate, CALL, lambda: command, framework=FRAMEWORK).code == "not_replayable"

    def test_what_a_person_reconciled_is_a_result(self, colour: Colour, open_gate: OpenGate, effects: Effects) -> None:
        """Plain data, which `plain` makes the framework's own."""
        gate = open_gate()
        told = colour.call(gate, CALL, effects.failing, framework=FRAMEWORK, tell_errors=True)
        assert isinstance(told, ForModel)
        [record] = gate.blocking.records.in_doubt()
        gate.blocking.reconcile(record.key.removeprefix("test:"), Found({"charge": 7}))

        assert colour.call(gate, CALL, effects, framework=FRAMEWORK) == Message("plain {'charge': 7}", "call_1")
        assert effects.count == 1

    @pytest.mark.parametrize(("found", "ran"), [(Found("it is there"), 1), (NOT_FOUND, 2)])
    def test_a_probe_is_given_the_call(
        self, colour: Colour, open_gate: OpenGate, effects: Effects, found: Any, ran: int
    ) -> None:
        """It finds out what the attempt before has done."""
        asked: list[ToolCall] = []

        def find(call: ToolCall) -> Any:
            asked.append(call)
            return found

        gate = open_gate(charge=Tool("probed", probe=find))
        with pytest.raises(TimeoutError):
            colour.call(gate, CALL, effects.failing)
        answer = colour.call(gate, CALL, effects)

        assert asked == [CALL]
        assert effects.count == ran
        assert answer == ("it is there" if ran == 1 else {"number": 2})

    def test_a_held_call_ends_as_a_call_does(self, colour: Colour, open_gate: OpenGate, effects: Effects) -> None:
        """For frameworks that say before and after, and make the call themselves."""
        gate = open_gate(look=Tool("read-only"))
        held = colour.open_call(gate, CALL, framework=FRAMEWORK)
        ended = colour.end(held, Message("done", "call_1"))
        again = colour.open_call(gate, CALL, framework=FRAMEWORK)
        other = colour.open_call(gate, CALL._replace(nth=1), framework=FRAMEWORK)
        failed = colour.fail(other, TimeoutError("late"), tell_errors=True)

        assert (ended, again) == (Message("done", "call_1"),) * 2
        assert (failed.ran, failed.in_doubt) == (True, True)
        assert colour.open_call(gate, CALL._replace(tool="look")) is None

    def test_a_held_call_that_is_not_final_releases(self, colour: Colour, open_gate: OpenGate) -> None:
        """As in a call."""
        gate, asking = open_gate(), Message("who?", "call_1", asks=True)
        held = colour.open_call(gate, CALL, framework=FRAMEWORK)

        assert colour.end(held, asking) is asking
        assert colour.call(gate, CALL, lambda: Message("done", ""), framework=FRAMEWORK) == Message("done", "call_1")


class TestShield:
    @pytest.mark.fault("agents-no-shield")
    def test_a_caller_who_leaves_does_not_stop_the_call(self, effects: Effects) -> None:
        """It runs to its end, and the next equal call is given its answer."""

        async def scenario() -> Any:
            begun, go_on = asyncio.Event(), asyncio.Event()

            async def charge() -> dict[str, int]:
                begun.set()
                await go_on.wait()
                return effects()

            async with AgentGate("memory://", scope="test:agents", wait=5) as gate:
                first = asyncio.ensure_future(gate.acall(CALL, charge))
                await begun.wait()
                first.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await first
                second = asyncio.ensure_future(gate.acall(CALL, effects))
                await asyncio.sleep(0)
                go_on.set()
                return await second

        assert asyncio.run(scenario()) == {"number": 1}
        assert effects.count == 1

    def test_without_it_the_call_is_cancelled_and_in_doubt(self, effects: Effects) -> None:
        """The choice is spoken: shield=False."""

        async def scenario() -> Any:
            begun = asyncio.Event()

            async def charge() -> None:
                begun.set()
                await asyncio.Event().wait()

            async with AgentGate("memory://", scope="test:agents", wait=5) as gate:
                first = asyncio.ensure_future(gate.acall(CALL, charge, shield=False))
                await begun.wait()
                first.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await first
                return await gate.acall(CALL, effects)

        assert asyncio.run(scenario()).code == "in_doubt"
        assert effects.count == 0


class TestSetUp:
    def test_a_retry_policy_is_an_option_like_any_other(
        self, colour: Colour, open_gate: OpenGate, effects: Effects
    ) -> None:
        """Several attempts under one claim, where the tool's kind allows it."""
        gate = open_gate(charge=Tool("repeatable", options={"retry": Retry(attempts=3, base=0.001, cap=0.001)}))
        with pytest.raises(TimeoutError):
            colour.call(gate, CALL, effects.failing)

        assert effects.count == 3

    def test_mistakes_are_refused_at_once(self) -> None:
        """Before any store is opened."""
        with pytest.raises(ScopeMissing):
            AgentGate("memory://", scope="")
        with pytest.raises(ConfigurationError, match="URL"):
            AgentGate(object(), scope="test:a")  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="default="):
            AgentGate("memory://", scope="test:a", guarantee="keyed")
        with pytest.raises(ConfigurationError, match="must be a Tool"):
            AgentGate("memory://", scope="test:a", tools={"charge": "keyed"})  # type: ignore[dict-item]
        with pytest.raises(KeyInvalid, match="1,000"):
            AgentGate("memory://", scope="test:a").run("")
