"""
Anthropic's tool runner and loops of one's own, on the SDK over a transport that answers from a script.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.tools import (
    BetaAbstractMemoryTool,
    BetaAsyncFunctionTool,
    BetaFunctionTool,
    ToolError,
    beta_async_tool,
    beta_tool,
)
from pydantic import BaseModel

from onceward._core.errors import NothingHappened
from onceward.agents import AgentGate, Tool
from onceward.agents.anthropic import atool_results, gated, tool_results

QUESTION = {"role": "user", "content": "charge 42"}
ORDER = {"order": "42"}


def use(id: str, name: str = "charge", **input: Any) -> dict[str, Any]:
    """A call that the model wants."""
    return {"type": "tool_use", "id": id, "name": name, "input": input or ORDER}


class Script:
    """A transport: each answer of the model in turn, and what it read."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self._answers = list(answers)
        self.read: list[Any] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """The next answer; at the end the model is done."""
        self.read.append(json.loads(request.content)["messages"])
        content = self._answers.pop(0) if self._answers else [{"type": "text", "text": "done"}]
        reason = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        body = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
        return httpx2.Response(200, json=body | {"stop_reason": reason, "stop_sequence": None, "usage": usage})

    def results(self) -> list[Any]:
        """The results that the model read. Each request has what is new: the rest of the thread is Anthropic's."""
        blocks = [block for messages in self.read for one in messages for block in one["content"]]
        return [block for block in blocks if isinstance(block, dict) and block["type"] == "tool_result"]


class World:
    """Where the effects are, and runners of either colour."""

    def __init__(self, path: Path, awaits: bool) -> None:
        self.path, self.awaits = path, awaits
        self.charged: list[str] = []
        self.error: BaseException | None = None

    def effect(self, order: str) -> str:
        """Charge an order."""
        self.charged.append(order)
        if self.error is not None:
            raise self.error
        return f"charged {order}, {len(self.charged)}"

    def tool(self) -> Any:
        """The tool for the runner."""
        if not self.awaits:

            def charge(order: str) -> str:
                """Charge an order."""
                return self.effect(order)

            return beta_tool(charge)

        async def awaiting_charge(order: str) -> str:
            """Charge an order."""
            return self.effect(order)

        return beta_async_tool(name="charge")(awaiting_charge)

    def gate(self, **more: Any) -> AgentGate:
        """The gate of another process."""
        return AgentGate(f"sqlite:///{self.path}/agent.db", scope="test:agents", wait=5, **more)

    def run(self, script: Script, messages: list[Any], tools: list[Any], *, gate: bool = True, **more: Any) -> None:
        """A runner in a process of its own, until it is done."""
        opened = self.gate(**more)
        asked: Any = {"model": "m", "max_tokens": 10, "messages": messages}

        async def awaiting() -> None:
            http = httpx2.AsyncClient(transport=httpx2.MockTransport(script))
            async with (
                opened,
                AsyncAnthropic(api_key="none", base_url="http://model.invalid", http_client=http) as client,
            ):
                given = gated(opened, "order-42", tools, messages) if gate else tools
                await client.beta.messages.tool_runner(tools=given, **asked).until_done()

        if self.awaits:
            asyncio.run(awaiting())
            return
        http = httpx2.Client(transport=httpx2.MockTransport(script))
        with opened, Anthropic(api_key="none", base_url="http://model.invalid", http_client=http) as client:
            given = gated(opened, "order-42", tools, messages) if gate else tools
            client.beta.messages.tool_runner(tools=given, **asked).until_done()

    def results(self, messages: list[Any], **functions: Callable[..., Any]) -> list[dict[str, Any]]:
        """What a loop of one's own is given, in a process of its own."""
        gate, functions = self.gate(), functions or {"charge": self.effect}

        async def awaiting() -> list[dict[str, Any]]:
            async with gate:
                return await atool_results(gate, "order-42", messages, functions)

        if self.awaits:
            return asyncio.run(awaiting())
        with gate:
            return tool_results(gate, "order-42", messages, functions)


@pytest.fixture(params=["def", "async def"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Both colours."""
    return World(tmp_path, request.param == "async def")


class TestTheRunner:
    """`client.beta.messages.tool_runner`, whose tools are given no id."""

    def test_a_runner_that_starts_over_has_one_effect_and_the_first_answers(self, world: World) -> None:
        """Two equal calls in one answer are two; the same two again are those."""
        for attempt in ("a", "b"):
            script = Script([use(f"{attempt}1"), use(f"{attempt}2")])
            world.run(script, [QUESTION], [world.tool()])

            assert [one["content"] for one in script.results()] == ["charged 42, 1", "charged 42, 2"]
        assert len(world.charged) == 2

    def test_without_the_gate_it_has_twice_as_many(self, world: World) -> None:
        """The control."""
        for _ in range(2):
            world.run(Script([use("a1")]), [QUESTION], [world.tool()], gate=False)

        assert len(world.charged) == 2

    @pytest.mark.fault("anthropic-runner-forgets-the-messages")
    def test_an_equal_call_after_saved_messages_is_another_one(self, world: World) -> None:
        """The messages that the runner starts with have the first call and its result."""
        script = Script([use("a1")])
        world.run(script, [QUESTION], [world.tool()])
        saved = [QUESTION, {"role": "assistant", "content": [use("a1")]}, {"role": "user", "content": script.results()}]
        saved += [{"role": "assistant", "content": "done"}, QUESTION]
        world.run(Script([use("a2")]), saved, [world.tool()])

        assert len(world.charged) == 2

    def test_where_the_conversation_is_elsewhere_delivered_calls_count(self, world: World) -> None:
        """An `AgentRun` in the place of the messages: what was delivered has had its number."""

        def another(delivers: bool) -> None:
            with world.gate() as gate:
                run = gate.run("order-42")
                gated(gate, run, [beta_tool(name="charge")(world.effect)])[0].call(ORDER)
                if delivers:
                    run.delivered()

        for delivers in (False, True, True):
            another(delivers)

        assert len(world.charged) == 2

    def test_an_error_is_doubt_for_every_further_attempt(self, world: World) -> None:
        """The SDK would give the model the error, and the next attempt another effect."""
        world.error = ConnectionError("reset")
        script = Script([use("a1")], [use("a2")])
        world.run(script, [QUESTION], [world.tool()])
        first, second = script.results()

        assert world.charged == ["42"]
        assert "but may have happened" in first["content"]
        assert "may already have happened" in second["content"]
        assert first["is_error"]
        assert second["is_error"]

    def test_the_tools_own_words_stand_where_it_had_no_effect(self, world: World) -> None:
        """A `ToolError` that says that nothing happened."""

        class Closed(ToolError, NothingHappened):
            pass

        world.error = Closed("the shop is closed")
        script = Script([use("a1")])
        world.run(script, [QUESTION], [world.tool()])

        assert script.results()[0]["content"] == "the shop is closed"

    def test_invalid_arguments_leave_nothing_behind(self, world: World) -> None:
        """They never reach the function."""
        script = Script([use("a1", wrong="42")])
        world.run(script, [QUESTION], [world.tool()])

        assert world.charged == []
        assert "Invalid arguments for function charge" in script.results()[0]["content"]
        with world.gate() as gate:
            assert gate.blocking.records.in_doubt() == ()

    @pytest.mark.fault("anthropic-any-validation-error-releases")
    def test_a_validation_error_after_the_effect_is_doubt(self, world: World) -> None:
        """The SDK calls it invalid arguments, too; but the function was entered."""

        class Receipt(BaseModel):
            number: int

        def broken(order: str) -> str:
            """Charge an order."""
            world.effect(order)
            return str(Receipt.model_validate({}))

        async def awaiting_broken(order: str) -> str:
            """Charge an order."""
            return broken(order)

        tool = beta_async_tool(name="charge")(awaiting_broken) if world.awaits else beta_tool(name="charge")(broken)
        script = Script([use("a1")], [use("a2")])
        world.run(script, [QUESTION], [tool])

        assert world.charged == ["42"]
        assert "may already have happened" in script.results()[1]["content"]

    def test_blocks_of_content_are_replayed_as_they_were(self, world: World) -> None:
        """Also those that a generator makes."""

        def blocks(order: str) -> Any:
            world.effect(order)
            return ({"type": "text", "text": text} for text in ("one", "two"))

        async def awaiting_blocks(order: str) -> Any:
            return blocks(order)

        made: Any = beta_async_tool(awaiting_blocks) if world.awaits else beta_tool(blocks)
        read = []
        for id in ("a1", "a1"):
            script = Script([use(id, made.name, order="42")])
            world.run(script, [QUESTION], [made])
            read.append(script.results()[0]["content"])

        assert world.charged == ["42"]
        assert read == [[{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]] * 2

    def test_tools_that_only_read_and_definitions_pass_as_they_are(self, world: World) -> None:
        """They have nothing to be protected from."""
        search = {"type": "web_search_20250305", "name": "web_search"}
        charge = world.tool()
        with world.gate(tools={"charge": Tool("read-only")}) as gate:
            passed = gated(gate, "run", [charge, search])

        assert passed == [charge, search]
        assert isinstance(charge, BetaFunctionTool | BetaAsyncFunctionTool)


def test_memory_is_written_once_and_looked_at_as_it_is(tmp_path: Path) -> None:
    """The memory tool's `view` has no effect, so it is never replayed; what it writes is gated."""
    world = World(tmp_path, awaits=False)
    written: list[str] = []

    class Memory(BetaAbstractMemoryTool):
        def view(self, command: Any) -> str:
            return f"{len(written)} written"

        def create(self, command: Any) -> str:
            written.append(command.path)
            return "created"

        def str_replace(self, command: Any) -> str:
            return ""

        insert = delete = rename = str_replace

    create = {"command": "create", "path": "/memories/a", "file_text": "x"}
    view = {"command": "view", "path": "/memories"}
    for _ in range(2):
        script = Script([use("a1", "memory", **view), use("a2", "memory", **create), use("a3", "memory", **view)])
        world.run(script, [QUESTION], [Memory()])

    assert written == ["/memories/a"]
    assert [one["content"] for one in script.results()] == ["1 written", "created", "1 written"]


class TestALoopOfOnesOwn:
    """`tool_results`: the blocks for the calls of the last answer."""

    def test_a_call_that_is_made_again_has_one_effect(self, world: World) -> None:
        """The model answers anew after a restart, with another id."""
        first = world.results([QUESTION, {"role": "assistant", "content": [use("a1")]}])
        second = world.results([QUESTION, {"role": "assistant", "content": [use("a2")]}])

        assert world.charged == ["42"]
        assert first == [{"type": "tool_result", "tool_use_id": "a1", "content": "charged 42, 1"}]
        assert second == [first[0] | {"tool_use_id": "a2"}]

    def test_a_call_that_is_wanted_again_is_another_one(self, world: World) -> None:
        """The messages have the first and its result."""
        messages: list[Any] = [QUESTION, {"role": "assistant", "content": [use("a1")]}]
        messages.append({"role": "user", "content": world.results(messages)})
        messages.append({"role": "assistant", "content": [use("a2")]})
        world.results(messages)

        assert len(world.charged) == 2

    def test_a_call_in_doubt_keeps_its_number(self, world: World) -> None:
        """An error in the messages is no result."""
        world.error = ConnectionError("reset")
        messages: list[Any] = [QUESTION, {"role": "assistant", "content": [use("a1")]}]
        messages.append({"role": "user", "content": world.results(messages)})
        world.error = None
        messages.append({"role": "assistant", "content": [use("a2")]})
        again = world.results(messages)

        assert world.charged == ["42"]
        assert "may already have happened" in again[0]["content"]
        assert again[0]["is_error"]

    def test_what_can_be_no_call_is_told(self, world: World) -> None:
        """No such tool, or arguments that do not fit."""
        asked = [QUESTION, {"role": "assistant", "content": [use("a1", "unknown"), use("a2", wrong=1)]}]
        unknown, unfit = world.results(asked)

        assert "there is no tool of this name" in unknown["content"]
        assert "its arguments do not fit" in unfit["content"]
        assert world.charged == []
