"""
The adapter for the OpenAI Agents SDK, on the SDK itself with a scripted model. Effects are counted outside of it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from awaited_tests import awaited

from onceward._core.errors import ConfigurationError, NothingHappened
from onceward.agents import AgentGate, Tool, tool

pytest.importorskip("agents.tool_context", reason="in make test-agents")  # `agents` alone is this folder, too.

from agents.exceptions import UserError
from agents.mcp import MCPServer, MCPUtil
from mcp import types
from openai_agents_script import Script, says, wants

from agents import (
    Agent,
    FunctionTool,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunState,
    SQLiteSession,
    WebSearchTool,
    function_tool,
    set_tracing_disabled,
    tool_namespace,
)
from onceward.agents.openai_agents import gate_agent, gated, mcp_tools

set_tracing_disabled(True)

DONE = [says("done")]
HAS_ANNOTATIONS = hasattr(FunctionTool, "mcp_annotations")
"""Old versions keep them to themselves: the tool is gated then."""


@pytest.fixture
def gate(tmp_path: Path) -> AgentGate:
    """A gate whose records outlive one object."""
    return again(tmp_path)


def again(tmp_path: Path, **more: Any) -> AgentGate:
    """Another process, as far as the gate is concerned."""
    return AgentGate(f"sqlite:///{tmp_path}/agent.db", scope="test:agents", wait=5, **more)


class World:
    """Where the effects are."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.error: BaseException | None = None

    def tool(self, **options: Any) -> Any:
        """A tool that charges."""

        @function_tool(**options)
        async def charge(order: str) -> str:
            """Charge an order."""
            self.charged.append(order)
            if self.error is not None:
                raise self.error
            return f"charged {order}, {len(self.charged)}"

        return charge


def agent(model: Any, tools: list[Any], **more: Any) -> Agent[Any]:
    return Agent(name="billing", model=model, tools=tools, **more)


@awaited
async def test_the_same_call_after_a_restart_has_one_effect_and_the_first_answer(
    gate: AgentGate, tmp_path: Path
) -> None:
    """A run that starts over from its input, with new ids of the model, is given the answers that it had."""
    world = World()
    for id in ("call_1", "call_2"):
        script = Script([wants("charge", id, order="42")], DONE)
        await Runner.run(agent(script, gated(gate, "order-42", [world.tool()])), "charge 42")

    assert world.charged == ["42"]
    assert "charged 42, 1" in script.read[-1]


@awaited
async def test_without_the_gate_a_restart_charges_twice() -> None:
    """The control."""
    world = World()
    for id in ("call_1", "call_2"):
        await Runner.run(agent(Script([wants("charge", id, order="42")], DONE), [world.tool()]), "charge 42")

    assert world.charged == ["42", "42"]


@awaited
async def test_equal_calls_in_one_run_are_as_many_effects_also_when_it_starts_over(gate: AgentGate) -> None:
    """Two in one answer, and one in the next: three are wanted, and three happen, once each."""
    world = World()
    for attempt in ("a", "b"):
        script = Script(
            [wants("charge", f"{attempt}1", order="42"), wants("charge", f"{attempt}2", order="42")],
            [wants("charge", f"{attempt}3", order="42")],
            DONE,
        )
        await Runner.run(agent(script, gated(gate, "order-42", [world.tool()])), "charge 42 three times")

    assert len(world.charged) == 3
    assert all(f"charged 42, {number}" in script.read[-1] for number in (1, 2, 3))


@pytest.mark.fault("openai-agents-forget-the-session")
@awaited
async def test_an_equal_call_of_a_later_request_in_the_session_is_another_one(gate: AgentGate, tmp_path: Path) -> None:
    """The session has the first call and its answer, so the second request wants another."""
    world, session = World(), SQLiteSession("s", tmp_path / "session.db")
    for id in ("call_1", "call_2"):
        script = Script([wants("charge", id, order="42")], DONE)
        await Runner.run(agent(script, gated(gate, "customer-7", [world.tool()])), "charge 42", session=session)

    assert world.charged == ["42", "42"]


@pytest.mark.parametrize("given", ["session", "items", "function"])
@awaited
async def test_a_history_that_the_run_does_not_begin_with_can_be_given(
    gate: AgentGate, tmp_path: Path, given: str
) -> None:
    """A session that shows the model only its last item still counts, given as `history=`."""
    world, session = World(), SQLiteSession("s", tmp_path / "session.db")
    script = Script([wants("charge", "call_1", order="42")], DONE)
    await Runner.run(agent(script, gated(gate, "customer-7", [world.tool()])), "charge 42", session=session)

    items = await session.get_items()
    history: Any = {"session": session, "items": items, "function": lambda context: session}[given]
    script = Script([wants("charge", "call_2", order="42")], DONE)
    await Runner.run(agent(script, gated(gate, "customer-7", [world.tool()], history=history)), "charge 42 again")

    assert world.charged == ["42", "42"]


class TestApprovals:
    """A run that waits for approval is stored as a `RunState`, and resumed by whoever comes."""

    @staticmethod
    async def waiting(tools: list[Any], *answers: Any) -> str:
        """A state with a call that waits for approval."""
        result = await Runner.run(agent(Script(*answers), tools), "charge 42")
        assert len(result.interruptions) == 1
        return result.to_state().to_string()

    @staticmethod
    async def approved(tools: list[Any], text: str) -> Any:
        """The run after its approval."""
        resumed = agent(Script(DONE), tools)
        state = await RunState.from_string(resumed, text)
        state.approve(state.get_interruptions()[0])
        return await Runner.run(resumed, state)

    @awaited
    async def test_an_approval_that_is_applied_twice_has_one_effect(self, gate: AgentGate, tmp_path: Path) -> None:
        """Two people press the button, in two processes; both read the same answer."""
        world = World()
        text = await self.waiting(
            gated(gate, "order-42", [world.tool(needs_approval=True)]), [wants("charge", "c1", order="42")]
        )
        first = await self.approved(gated(gate, "order-42", [world.tool(needs_approval=True)]), text)
        async with again(tmp_path) as other:
            second = await self.approved(gated(other, "order-42", [world.tool(needs_approval=True)]), text)

        assert world.charged == ["42"]
        assert [str(one.output) for one in first.new_items if one.type == "tool_call_output_item"] == [
            str(one.output) for one in second.new_items if one.type == "tool_call_output_item"
        ]

    @awaited
    async def test_without_the_gate_it_has_two(self) -> None:
        """The control."""
        world = World()
        text = await self.waiting([world.tool(needs_approval=True)], [wants("charge", "c1", order="42")])
        for _ in range(2):
            await self.approved([world.tool(needs_approval=True)], text)

        assert world.charged == ["42", "42"]

    @pytest.mark.fault("openai-agents-count-in-memory")
    @awaited
    async def test_a_wanted_second_charge_is_not_lost_when_the_state_is_resumed(
        self, gate: AgentGate, tmp_path: Path
    ) -> None:
        """The first was made before the state was stored; another process sees it there, and makes the second."""
        world, asked = World(), iter([False, True, True, True, True, True])

        async def needs(*_: Any) -> bool:
            return next(asked)

        text = await self.waiting(
            gated(gate, "order-42", [world.tool(needs_approval=needs)]),
            [wants("charge", "c1", order="42")],
            [wants("charge", "c2", order="42")],
        )
        assert world.charged == ["42"]

        for _ in range(2):
            async with again(tmp_path) as other:
                await self.approved(gated(other, "order-42", [world.tool(needs_approval=needs)]), text)

        assert world.charged == ["42", "42"]

    @awaited
    async def test_a_call_in_doubt_stays_in_doubt_when_the_state_is_resumed(
        self, gate: AgentGate, tmp_path: Path
    ) -> None:
        """The model was told that it may have happened, and asks again, approved by somebody in another process."""
        world, asked = World(), iter([False, True, True, True])
        world.error = ConnectionError("reset")

        async def needs(*_: Any) -> bool:
            return next(asked)

        text = await self.waiting(
            gated(gate, "order-42", [world.tool(needs_approval=needs)]),
            [wants("charge", "c1", order="42")],
            [wants("charge", "c2", order="42")],
        )
        world.error = None
        async with again(tmp_path) as other:
            result = await self.approved(gated(other, "order-42", [world.tool(needs_approval=needs)]), text)

        assert world.charged == ["42"]
        assert "may already have happened" in str(result.to_input_list())


class TestErrors:
    """What a tool raises, and what the model reads."""

    @pytest.mark.fault("openai-agents-store-the-error-text")
    @awaited
    async def test_an_error_is_not_stored_as_a_success(self, gate: AgentGate) -> None:
        """The SDK would make a text of it; here it is seen, and the call is in doubt, also for the next attempt."""
        world = World()
        world.error = ConnectionError("reset")
        script = Script([wants("charge", "c1", order="42")], [wants("charge", "c2", order="42")], DONE)
        await Runner.run(agent(script, gated(gate, "order-42", [world.tool()])), "charge 42")

        assert world.charged == ["42"]
        assert "failed (ConnectionError: reset), but may have happened" in script.read[1]
        assert "may already have happened" in script.read[2]
        assert "try again" not in script.read[2].lower()

    @awaited
    async def test_without_the_gate_the_model_is_invited_to_repeat_it(self) -> None:
        """The control."""
        world = World()
        world.error = ConnectionError("reset")
        script = Script([wants("charge", "c1", order="42")], [wants("charge", "c2", order="42")], DONE)
        await Runner.run(agent(script, [world.tool()]), "charge 42")

        assert world.charged == ["42", "42"]
        assert "try again" in script.read[1].lower()

    @awaited
    async def test_a_handler_of_the_application_words_failures_that_had_no_effect(self, gate: AgentGate) -> None:
        """It is kept for those; for doubt it is not asked."""
        world = World()
        charge = world.tool(failure_error_function=lambda context, error: f"mine: {error}")
        world.error = NothingHappened("closed")
        script = Script([wants("charge", "c1", order="42")], DONE)
        await Runner.run(agent(script, gated(gate, "one", [charge])), "charge 42")
        world.error = ConnectionError("reset")
        doubtful = Script([wants("charge", "c1", order="42")], DONE)
        await Runner.run(agent(doubtful, gated(gate, "two", [charge])), "charge 42")

        assert "mine: closed" in script.read[-1]
        assert "mine" not in doubtful.read[-1]
        assert "but may have happened" in doubtful.read[-1]

    @awaited
    async def test_the_formatter_of_a_run_is_kept_as_well(self, gate: AgentGate) -> None:
        """`RunConfig(tool_error_formatter=...)` is a handler of the application, too; old versions do not ask it."""
        world = World()
        world.error = NothingHappened("closed")
        script = Script([wants("charge", "c1", order="42")], DONE)
        config = RunConfig(tool_error_formatter=lambda told: f"formatted {told.error}")
        await Runner.run(agent(script, gated(gate, "one", [world.tool()])), "charge 42", run_config=config)

        from agents.run_config import ToolErrorFormatterArgs

        asked = "error" in ToolErrorFormatterArgs.__dataclass_fields__
        assert ("formatted closed" if asked else "had no effect") in script.read[-1]
        assert "try again" not in script.read[-1].lower()

    @awaited
    async def test_where_the_tool_has_no_handler_its_error_ends_the_run(self, gate: AgentGate) -> None:
        """`failure_error_function=None` means that the application sees it; the call is in doubt all the same."""
        world = World()
        world.error = ConnectionError("reset")
        charge = world.tool(failure_error_function=None)
        with pytest.raises(UserError, match="reset"):
            await Runner.run(agent(Script([wants("charge", "c1", order="42")]), gated(gate, "o", [charge])), "go")
        script = Script([wants("charge", "c2", order="42")], DONE)
        await Runner.run(agent(script, gated(gate, "o", [charge])), "go")

        assert world.charged == ["42"]
        assert "may already have happened" in script.read[-1]

    @awaited
    async def test_invalid_arguments_leave_nothing_behind(self, gate: AgentGate) -> None:
        """They are the model's mistake: it reads that, and the tool is not in doubt."""
        world = World()
        script = Script([wants("charge", "c1", wrong="42")], DONE)
        await Runner.run(agent(script, gated(gate, "order-42", [world.tool()])), "charge 42")

        assert world.charged == []
        assert "had no effect" in script.read[-1]
        assert await gate.awaiting.records.in_doubt() == ()

    @awaited
    async def test_arguments_that_lack_what_the_key_is_made_of_are_the_models_mistake(self, tmp_path: Path) -> None:
        """It reads which one is missing."""
        world = World()
        script = Script([wants("charge", "c1", wrong="42")], DONE)
        async with again(tmp_path, tools={"charge": Tool("keyed", key="charge:{order}")}) as gate:
            await Runner.run(agent(script, gated(gate, "order-42", [world.tool()])), "charge 42")

        assert world.charged == []
        assert "order is missing" in script.read[-1]

    @awaited
    async def test_an_error_like_that_of_the_arguments_after_the_effect_is_doubt(self, gate: AgentGate) -> None:
        """Whether the function was entered is seen, and not guessed from the words."""
        from agents import ModelBehaviorError

        world = World()
        world.error = ModelBehaviorError("Invalid JSON input for tool charge: after the effect")
        script = Script([wants("charge", "c1", order="42")], [wants("charge", "c2", order="42")], DONE)
        await Runner.run(agent(script, gated(gate, "order-42", [world.tool()])), "charge 42")

        assert world.charged == ["42"]
        assert "may already have happened" in script.read[-1]


@pytest.mark.fault("openai-agents-time-outs-count-as-answers")
@awaited
async def test_a_tool_that_times_out_is_waited_for_by_the_next_call(gate: AgentGate) -> None:
    """The SDK stops waiting, the call goes on; the next equal call is given its answer, and is no second charge."""
    charged, free = [], asyncio.Event()

    @function_tool(timeout=0.01)
    async def charge(order: str) -> str:
        """Charge an order."""
        charged.append(order)
        await free.wait()
        return "charged"

    def let_it_end(read: Any) -> list[Any]:
        free.set()
        return [wants("charge", "c2", order="42")]

    script = Script([wants("charge", "c1", order="42")], let_it_end, DONE)
    await Runner.run(agent(script, gated(gate, "order-42", [charge])), "charge 42")

    await gate.aclose()  # Which waits for calls that nobody waits for.

    assert charged == ["42"]
    assert "took longer than allowed, and may have happened or still happen" in script.read[1]


class TestSettingUp:
    """What is said when the tools are gated."""

    @pytest.mark.parametrize("run", ["", None])
    @awaited
    async def test_without_a_run_it_says_how_to_name_one(self, gate: AgentGate, run: Any) -> None:
        """The SDK has none that survives a crash."""
        with pytest.raises(ConfigurationError, match="name the run after the piece of work"):
            gated(gate, run, [])

    @awaited
    async def test_a_run_may_be_a_function_of_the_context(self, gate: AgentGate) -> None:
        """One agent for all orders: the run is in the context of each."""
        world = World()
        tools = gated(gate, lambda context: str(context.context["order"]), [world.tool()])
        for order in ("1", "2", "1"):
            script = Script([wants("charge", f"c{order}", order="same")], DONE)
            await Runner.run(agent(script, tools), "charge", context={"order": order})

        assert len(world.charged) == 2

    @awaited
    async def test_a_whole_agent_can_be_gated(self, gate: AgentGate) -> None:
        """`gate_agent` copies it."""
        world = World()
        for id in ("c1", "c2"):
            plain = agent(Script([wants("charge", id, order="42")], DONE), [world.tool()])
            await Runner.run(gate_agent(plain, gate, "order-42"), "charge 42")

        assert world.charged == ["42"]

    @awaited
    async def test_tools_that_openai_runs_pass_and_those_that_run_here_are_refused(self, gate: AgentGate) -> None:
        """A shell is not gated behind anybody's back."""
        from agents import LocalShellTool

        hosted = WebSearchTool()
        passed = gated(gate, "run", [hosted])

        assert passed == [hosted]
        with pytest.raises(ConfigurationError, match="leave it out"):
            gated(gate, "run", [LocalShellTool(executor=lambda request: "")])

    @awaited
    async def test_a_tool_says_what_it_is_with_a_decorator(self, gate: AgentGate) -> None:
        """Below the SDK's own; one that only reads is left as it is."""

        @function_tool
        @tool("read-only")
        async def look(order: str) -> str:
            """Look."""
            return order

        assert gated(gate, "run", [look]) == [look]


@awaited
async def test_results_are_what_the_sdk_makes_of_them_and_replayed_as_they_were(gate: AgentGate) -> None:
    """Text, plain data, structured outputs and objects: a replay reads as the first answer did."""
    from agents import ToolOutputText

    made: list[Any] = ["text", {"a": 1}, ToolOutputText(text="block"), [ToolOutputText(text="one")], 1.5, None]
    for number, value in enumerate(made):

        @function_tool
        async def give(value: Any = value) -> Any:
            """Give it."""
            return value

        read = []
        for id in ("c1", "c2"):
            script = Script([wants("give", id)], DONE)
            await Runner.run(agent(script, gated(gate, f"run-{number}", [give])), "go")
            read.append(script.read[-1].replace("c2", "c1"))
        plain = Script([wants("give", "c1")], DONE)
        await Runner.run(agent(plain, [give]), "go")

        assert read == [plain.read[-1]] * 2


@awaited
async def test_blocking_tools_are_gated_as_well(gate: AgentGate) -> None:
    """A `def` runs in a thread of the SDK's."""
    charged = []

    @function_tool
    def charge(order: str) -> str:
        """Charge an order."""
        charged.append(order)
        return json.dumps({"charged": order})

    for id in ("c1", "c2"):
        script = Script([wants("charge", id, order="42")], DONE)
        await Runner.run(agent(script, gated(gate, "order-42", [charge])), "charge 42")

    assert charged == ["42"]
    assert '"charged": "42"' in script.read[-1]


@awaited
async def test_an_agent_as_a_tool_is_not_gated_and_its_own_tools_are(gate: AgentGate) -> None:
    """A crash inside of it must not leave the whole agent in doubt: it goes on, and its tools replay."""
    world = World()
    for id in ("c1", "c2"):
        inner = agent(
            Script([wants("charge", f"inner-{id}", order="42")], DONE), gated(gate, "order-42", [world.tool()])
        )
        helper = inner.as_tool("helper", "Charges.")
        outer = Script([wants("helper", id, input=f"please charge, {id}")], DONE)
        await Runner.run(agent(outer, gated(gate, "order-42", [helper])), "charge 42")

    assert world.charged == ["42"]


@awaited
async def test_tools_of_one_name_in_two_namespaces_are_two(gate: AgentGate, tmp_path: Path) -> None:
    """And each is known again in a session, by the same name."""
    here, there = World(), World()
    session = SQLiteSession("s", tmp_path / "session.db")
    tools = [
        *tool_namespace(name="here", description="Here.", tools=[here.tool()]),
        *tool_namespace(name="there", description="There.", tools=[there.tool()]),
    ]
    for attempt in ("a", "b"):
        calls = [wants("charge", f"{attempt}-{place}", order="42") for place in ("here", "there")]
        for call, place in zip(calls, ("here", "there"), strict=True):
            call.namespace = place
        script = Script(calls, DONE)
        await Runner.run(agent(script, gated(gate, "customer-7", tools)), "charge 42", session=session)

    assert (len(here.charged), len(there.charged)) == (2, 2)


@awaited
async def test_a_streamed_run_is_gated_as_well(gate: AgentGate) -> None:
    """The same tools, with the SDK's own scripted model, which streams."""
    testing = pytest.importorskip("agents.testing", reason="in newer versions")
    world = World()
    for id in ("c1", "c2"):
        call = testing.function_call("charge", {"order": "42"}, call_id=id)
        model = testing.ScriptedModel([[call], [testing.assistant_message("done")]])
        result = Runner.run_streamed(agent(model, gated(gate, "order-42", [world.tool()])), "charge 42")
        async for _ in result.stream_events():
            pass

    assert world.charged == ["42"]


class Shop(MCPServer):
    """An MCP server in this process: what the SDK makes of its results is the SDK's own."""

    def __init__(self, read_only: bool) -> None:
        super().__init__()
        self.called: list[Any] = []
        self.fails = False
        self._read_only = read_only

    name = "shop"

    async def connect(self) -> None:
        """Always connected."""

    async def cleanup(self) -> None:
        """Nothing to clean."""

    async def list_tools(self, *_: Any, **__: Any) -> list[Any]:
        schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
        hints = {"readOnlyHint": self._read_only}
        return [types.Tool.model_validate({"name": "charge", "inputSchema": schema, "annotations": hints})]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> Any:
        self.called.append(arguments)
        text = "the line broke" if self.fails else f"charged {len(self.called)}"
        return types.CallToolResult.model_validate({"content": [{"type": "text", "text": text}], "isError": self.fails})

    async def list_prompts(self) -> Any:
        raise NotImplementedError

    async def get_prompt(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


class TestMcpServers:
    """`mcp_tools`, because the SDK makes ordinary text of a server's errors."""

    @awaited
    async def test_a_servers_tool_has_one_effect(self, gate: AgentGate) -> None:
        """Annotations are not believed unless that is asked for."""
        shop = Shop(read_only=True)
        for id in ("c1", "c2"):
            script = Script([wants("charge", id, order="42")], DONE)
            await Runner.run(agent(script, await mcp_tools(gate, "order-42", [shop])), "charge 42")

        assert len(shop.called) == 1
        assert "charged 1" in script.read[-1]

    @awaited
    async def test_annotations_are_believed_when_they_are_trusted(self, gate: AgentGate) -> None:
        """A tool that only reads is asked each time."""
        shop = Shop(read_only=True)
        for id in ("c1", "c2"):
            tools = await mcp_tools(gate, "order-42", [shop], trust_annotations=True)
            await Runner.run(agent(Script([wants("charge", id, order="42")], DONE), tools), "charge 42")

        assert len(shop.called) == (2 if HAS_ANNOTATIONS else 1)

    @pytest.mark.fault("openai-agents-store-mcp-errors")
    @awaited
    async def test_an_error_of_the_server_is_not_stored_as_a_success(self, gate: AgentGate) -> None:
        """`isError` is seen before the SDK makes a text of it."""
        shop = Shop(read_only=False)
        shop.fails = True
        script = Script([wants("charge", "c1", order="42")], [wants("charge", "c2", order="42")], DONE)
        await Runner.run(agent(script, await mcp_tools(gate, "order-42", [shop])), "charge 42")

        assert len(shop.called) == 1
        assert "the line broke" in script.read[1]
        assert "but may have happened" in script.read[1]
        assert "may already have happened" in script.read[2]

    @awaited
    async def test_other_ways_to_a_servers_tools_are_refused_with_the_way_out(self, gate: AgentGate) -> None:
        """Where its errors would be taken for results."""
        shop = Shop(read_only=False)
        listed = await MCPUtil.get_all_function_tools([shop], False, RunContextWrapper(None), Agent(name="a"))

        with pytest.raises(ConfigurationError, match="await mcp_tools"):
            gated(gate, "run", listed)
        with pytest.raises(ConfigurationError, match="await mcp_tools"):
            gate_agent(Agent(name="a", mcp_servers=[shop]), gate, "run")
