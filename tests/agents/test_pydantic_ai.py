"""Pydantic AI: every tool call of an agent happens once, whatever its hooks, retries, approvals and restarts do."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="in make test-agents")

from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, ImageUrl, ModelRetry, RunContext, ToolReturn
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import DeferredToolResults, ToolApproved
from pydantic_ai.toolsets import FunctionToolset

from onceward.agents import AgentGate, Tool, tool
from onceward.agents.pydantic_ai import Onceward

CONVERSATION = "order-42"
OLD = tuple(map(int, version("pydantic-ai-slim").split(".")[:2])) < (2, 61)
Calls = Sequence[tuple[str, dict[str, Any]]]


class World:
    """An agent's tools, what they did, and a model that follows a script."""

    def __init__(self, url: str, *, gated: bool) -> None:
        self.url, self.gated = url, gated
        self.charges: list[str] = []
        self.told: list[Any] = []
        self.gates: list[AgentGate] = []
        self.ids: Iterator[str] = (f"call_{number}" for number in itertools.count())

    def agent(self, *tools: Any, turns: Sequence[Calls], more: Sequence[Any] = (), **options: Any) -> Agent[None, Any]:
        """An agent in a new process; `turns` are the calls of each answer, and after the last one it is done."""
        run, kinds = options.pop("run", None), options.pop("kinds", {})
        capabilities = list(more)
        if self.gated:
            gate = AgentGate(self.url, scope="test:agents", tools=kinds, wait=2)
            self.gates.append(gate)
            capabilities.append(Onceward(gate, run, trust_annotations=options.pop("trust_annotations", False)))
        options.pop("trust_annotations", None)
        left = [list(calls) for calls in turns]

        def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            self.told.extend(part for part in messages[-1].parts if isinstance(part, ToolReturnPart))
            calls = left.pop(0) if left else []
            return ModelResponse([self._part(*call) for call in calls] or [TextPart("done")])

        async def stream(messages: list[ModelMessage], info: AgentInfo) -> Any:
            for at, part in enumerate(answer(messages, info).parts):
                if isinstance(part, ToolCallPart):
                    yield {at: DeltaToolCall(part.tool_name, json.dumps(part.args), tool_call_id=part.tool_call_id)}
                elif isinstance(part, TextPart):
                    yield part.content

        return Agent(
            FunctionModel(answer, stream_function=stream),
            tools=tools if tools or "toolsets" in options else [self.charge],
            capabilities=capabilities,
            **options,
        )

    def _part(self, name: str, arguments: dict[str, Any]) -> ToolCallPart:
        """With an id that is new whenever the model answers."""
        return ToolCallPart(name, arguments, tool_call_id=next(self.ids))

    def charge(self, order: str) -> dict[str, str]:
        """A tool that blocks."""
        self.charges.append(order)
        return {"charged": order, "receipt": f"r{len(self.charges)}"}

    def close(self) -> None:
        """The end of all gates."""

        async def close() -> None:
            for gate in self.gates:
                await gate.aclose()

        asyncio.run(close())


@pytest.fixture
def open_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Worlds with the gate, and without it."""
    made: list[World] = []

    def opens(*, gated: bool = True) -> World:
        made.append(World(f"sqlite:///{tmp_path}/agent.db", gated=gated))
        return made[-1]

    yield opens
    for one in made:
        one.close()


CHARGE: Calls = [("charge", {"order": "42"})]


def run(agent: Agent[None, Any], prompt: str | None = "charge 42", **more: Any) -> Any:
    """One run of an agent."""
    return asyncio.run(agent.run(prompt, **{"conversation_id": CONVERSATION, **more}))


def stored(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Messages as a restart reads them."""
    return ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(list(messages)))


def before_tools(result: Any) -> list[ModelMessage]:
    """What a process has stored that died in its first tool calls."""
    return stored(result.all_messages()[:2])


class TestOnce:
    @pytest.mark.parametrize("gated", [True, False])
    def test_a_restart_finds_the_call_done(self, open_world: Callable[..., World], gated: bool) -> None:
        """A restart from the stored messages, and one from the prompt, read the first answer; ungated, they repeat."""
        world = open_world(gated=gated)
        first = run(world.agent(turns=[CHARGE]))
        run(world.agent(turns=[]), None, message_history=before_tools(first))
        run(world.agent(turns=[CHARGE]))

        assert len(world.charges) == (1 if gated else 3)
        assert [part.content["receipt"] for part in world.told] == (["r1"] * 3 if gated else ["r1", "r2", "r3"])

    @pytest.mark.fault("agents-pydantic-ids-are-trusted")
    def test_the_same_call_wanted_again_is_made_again(self, open_world: Callable[..., World]) -> None:
        """Twice in one answer, again in the next, and again with the same id: four effects; after a restart, none."""
        world = open_world()
        for _ in range(2):
            world.ids = itertools.cycle(["call_1", "call_2"])
            run(world.agent(turns=[[*CHARGE, *CHARGE], CHARGE, CHARGE]))

            assert len(world.charges) == 4
        told = [part.content["receipt"] for part in world.told]
        assert sorted(told[:4]) == ["r1", "r2", "r3", "r4"]  # The two of one answer run side by side.
        assert told[4:] == told[:4]

    def test_another_prompt_is_other_work(self, open_world: Callable[..., World]) -> None:
        """The id of a conversation spans prompts: the same call in the next one is another, and restarts find it."""
        world = open_world()
        first = run(world.agent(turns=[CHARGE]))
        for _ in range(2):
            run(world.agent(turns=[CHARGE]), "once more", message_history=stored(first.all_messages()))

        assert len(world.charges) == 2

    @pytest.mark.fault("agents-pydantic-prompts-are-counted")
    def test_a_shortened_history_does_not_mistake_one_prompt_for_another(
        self, open_world: Callable[..., World]
    ) -> None:
        """Only the last messages are kept: the third prompt is still not the second, and a restart of it is itself."""
        world = open_world()
        history: list[ModelMessage] = []
        for prompt in ("one", "two", "three"):
            history = stored(run(world.agent(turns=[CHARGE]), prompt, message_history=history).all_messages())[-4:]
        before = history
        for _ in range(2):
            run(world.agent(turns=[CHARGE]), "four", message_history=before)

        assert len(world.charges) == 4

    def test_the_application_may_name_the_run(self, open_world: Callable[..., World]) -> None:
        """A text, or a function of the context, wins over the conversation; no conversation is needed then."""
        world = open_world()
        for name in ("job-1", lambda ctx: f"job-{len(ctx.messages) // 2}"):
            run(world.agent(turns=[CHARGE], run=name), conversation_id=None)
        assert len(world.charges) == 1

        run(world.agent(turns=[CHARGE], run="job-2"))
        assert len(world.charges) == 2

    def test_a_conversation_with_a_new_id_is_told(self, open_world: Callable[..., World]) -> None:
        """Without an id that survives, a warning says what to do; with one from the messages, there is none."""
        world = open_world()
        with pytest.warns(UserWarning, match="conversation_id="):
            first = run(world.agent(turns=[CHARGE]), conversation_id=None)
        run(world.agent(turns=[CHARGE]), "more", conversation_id=None, message_history=stored(first.all_messages()))

        assert len(world.charges) == 2


class TestColours:
    @pytest.mark.parametrize("gated", [True, False])
    @pytest.mark.parametrize("way", ["run_sync", "run_stream", "iter", "async tool", "output tool"])
    def test_every_way_to_run_an_agent_is_gated(self, open_world: Callable[..., World], way: str, gated: bool) -> None:
        """Blocking, streaming, step by step; tools that block and that await; agents that answer by a tool."""
        world = open_world(gated=gated)

        class Done(BaseModel):
            ok: bool

        async def charge(order: str) -> dict[str, str]:
            await asyncio.sleep(0)
            return world.charge(order)

        async def work(agent: Agent[None, Any]) -> Any:
            if way == "run_stream":
                async with agent.run_stream("charge 42", conversation_id=CONVERSATION) as result:
                    return await result.get_output()
            if way == "iter":
                async with agent.iter("charge 42", conversation_id=CONVERSATION) as going:
                    async for _ in going:
                        pass
                assert going.result is not None
                return going.result.output
            return (await agent.run("charge 42", conversation_id=CONVERSATION)).output

        for _ in range(2):
            by_tool = way == "output tool"
            agent = world.agent(
                charge if way == "async tool" else world.charge,
                turns=[CHARGE, [("final_result", {"ok": True})]] if by_tool else [CHARGE],
                **({"output_type": Done} if by_tool else {}),
            )
            if way == "run_sync":
                asyncio.set_event_loop(loop := asyncio.new_event_loop())
                output = agent.run_sync("charge 42", conversation_id=CONVERSATION).output
                loop.close()
                asyncio.set_event_loop(None)
            else:
                output = asyncio.run(work(agent))
            assert output == (Done(ok=True) if by_tool else "done")

        assert len(world.charges) == (1 if gated else 2)


class Receipt(BaseModel):
    """A result with a type."""

    order: str
    amount: float = 1.5


@dataclass
class Row:
    """Another."""

    order: str
    parts: tuple[int, ...] = (1, 2)


RESULTS = [
    None,
    "text",
    7,
    [1, {"a": None}],
    Receipt(order="42"),
    Row("42"),
    [Receipt(order="1"), Row("2")],
    pytest.param(b"\x00\xff", marks=pytest.mark.skipif(OLD, reason="older ones put it in quotes"), id="bytes"),
    BinaryContent(b"\x00\xffpng", media_type="image/png"),
    ImageUrl("https://example.com/a.png"),
    {"picture": BinaryContent(b"pdf", media_type="application/pdf"), "n": 1},
    ToolReturn({"charged": "42"}, content="see above", metadata={"trace": 7}),
    ToolReturn(Receipt(order="42"), content=["look:", BinaryContent(b"\xffpng", media_type="image/png")]),
    {"framework": "pydantic-ai", "result": 1},
    {"return": 1},
]


class TestResults:
    @pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
    def test_every_answer_is_the_first_one(self, open_world: Callable[..., World], result: Any) -> None:
        """A replay is equal to the first answer, and the model reads what it would read without the gate."""
        read: list[Any] = []
        runs: list[str] = []

        def charge(order: str) -> Any:
            runs.append(order)
            return result

        for gated in (False, True, True):
            messages = run(open_world(gated=gated).agent(charge, turns=[CHARGE])).all_messages()
            part = messages[2].parts[0]
            rest = json.loads(ModelMessagesTypeAdapter.dump_json([messages[2]]))[0]["parts"][1:]
            read.append((part.model_response_str(), part.metadata, [more["content"] for more in rest]))
            read.append([(file.kind, file.media_type, getattr(file, "data", None)) for file in part.files])

        assert len(runs) == 2  # The third was a replay.
        assert read[2:4] == read[4:6] == read[0:2]

    def test_what_cannot_be_kept_is_given_once_and_then_refused(self, open_world: Callable[..., World]) -> None:
        """A result with an object in its metadata reaches the agent; a restart is told that it happened."""
        world, thing = open_world(), object()

        def charge(order: str) -> Any:
            world.charge(order)
            return ToolReturn("fine", metadata=thing)

        first = run(world.agent(charge, turns=[CHARGE]))
        assert first.all_messages()[2].parts[0].metadata is thing
        run(world.agent(charge, turns=[]), None, message_history=first.all_messages()[:2])

        assert len(world.charges) == 1
        assert "was done before, and its result was not stored" in str(world.told[-1].content)


class TestControlFlow:
    @pytest.mark.parametrize("gated", [True, False])
    @pytest.mark.parametrize("how", ["asks", "declared", "changed"])
    def test_an_approval_that_is_applied_twice_gives_one_effect(
        self, open_world: Callable[..., World], how: str, gated: bool
    ) -> None:
        """Waiting for approval leaves no doubt; the same approval again is the same call. Also with other arguments."""
        world = open_world(gated=gated)

        def charge(ctx: RunContext[None], order: str) -> Any:
            if how != "declared" and not ctx.tool_call_approved:
                raise ApprovalRequired
            return world.charge(order)

        def agent(turns: Sequence[Calls]) -> Agent[None, Any]:
            tools = FunctionToolset[None]()
            tools.add_function(charge, requires_approval=how == "declared")
            return world.agent(turns=turns, toolsets=[tools], output_type=[str, DeferredToolRequests])

        asked = run(agent([CHARGE]))
        (waiting,) = asked.output.approvals
        said = ToolApproved(override_args={"order": "43"}) if how == "changed" else True
        for _ in range(2):
            results = DeferredToolResults(approvals={waiting.tool_call_id: said})
            run(agent([]), None, message_history=stored(asked.all_messages()), deferred_tool_results=results)

        assert world.charges == ["43" if how == "changed" else "42"] * (1 if gated else 2)

    @pytest.mark.parametrize("error", [ModelRetry("which order?"), ToolFailed("no such order"), CallDeferred()])
    def test_a_tool_that_answers_with_an_error_may_be_called_again(
        self, open_world: Callable[..., World], error: Exception
    ) -> None:
        """A wish for a retry, a failure that the tool reports, a deferred call: nothing happened, the call is free."""
        world, tries = open_world(), []

        def charge(order: str) -> Any:
            tries.append(order)
            if len(tries) == 1:
                raise error
            return world.charge(order)

        deferred = isinstance(error, CallDeferred)
        agent = world.agent(charge, turns=[CHARGE, CHARGE], output_type=[str, DeferredToolRequests])
        first = run(agent)
        if deferred:
            run(world.agent(charge, turns=[]), None, message_history=stored(first.all_messages())[:2])

        assert len(world.charges) == 1
        assert world.told[-1].content["receipt"] == "r1"

    @pytest.mark.fault("agents-pydantic-time-outs-release")
    @pytest.mark.parametrize("gated", [True, False])
    def test_a_time_out_is_no_answer(self, open_world: Callable[..., World], gated: bool) -> None:
        """The framework makes "try again" of a time-out. The tool may have acted: that is what the model reads."""
        world = open_world(gated=gated)

        async def charge(order: str) -> Any:
            world.charge(order)
            if len(world.charges) == 1:
                await asyncio.Event().wait()

        tools = FunctionToolset[None]()
        tools.add_function(charge, timeout=0.01)
        run(world.agent(turns=[CHARGE, CHARGE], toolsets=[tools]))

        assert len(world.charges) == (1 if gated else 2)
        if gated:
            assert all("may" in part.content and "have happened" in part.content for part in world.told)
            assert [part.outcome for part in world.told] == ["failed", "failed"]
            assert "try again" not in str(world.told).lower()

    @pytest.mark.parametrize("gated", [True, False])
    def test_a_tool_that_raises_leaves_doubt(self, open_world: Callable[..., World], gated: bool) -> None:
        """The error ends the run as ever. A restart is told that it may have happened, however often it asks."""
        world = open_world(gated=gated)

        def charge(order: str) -> Any:
            world.charge(order)
            raise OSError("connection reset")

        with pytest.raises(OSError, match="connection reset"):
            run(world.agent(charge, turns=[CHARGE]))
        if gated:
            run(world.agent(charge, turns=[CHARGE, CHARGE]))
            assert ["may already have happened" in part.content for part in world.told] == [True, True]
        else:
            with pytest.raises(OSError, match="connection reset"):
                run(world.agent(charge, turns=[CHARGE]))

        assert len(world.charges) == (1 if gated else 2)

    @pytest.mark.skipif(OLD, reason="older ones refuse a prompt after interrupted calls")
    @pytest.mark.fault("agents-pydantic-go-on-is-new-work")
    def test_go_on_means_the_calls_that_were_interrupted(self, open_world: Callable[..., World]) -> None:
        """A prompt after interrupted calls continues their run: the charge that may have happened is not made again."""
        world = open_world()

        def charge(order: str) -> Any:
            world.charge(order)
            raise OSError("connection reset")

        first = world.agent(charge, turns=[CHARGE])

        async def interrupted() -> list[ModelMessage]:
            async with first.iter("charge 42", conversation_id=CONVERSATION) as going:
                with pytest.raises(OSError, match="connection reset"):
                    async for _ in going:
                        pass
                return stored(going.all_messages())

        history = asyncio.run(interrupted())
        run(world.agent(turns=[CHARGE]), "go on", message_history=history)

        assert len(world.charges) == 1
        assert "may already have happened" in world.told[-1].content

    def test_a_cancelled_run_leaves_its_call_to_its_end(self, open_world: Callable[..., World]) -> None:
        """Whoever cancels an agent does not leave doubt: the call ends behind a shield, and a restart finds it."""
        world = open_world()

        async def main() -> Any:
            began, go = asyncio.Event(), asyncio.Event()

            async def charge(order: str) -> Any:
                began.set()
                await go.wait()
                return world.charge(order)

            task = asyncio.ensure_future(
                world.agent(charge, turns=[CHARGE]).run("charge 42", conversation_id=CONVERSATION)
            )
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go.set()
            await world.gates[0].aclose()
            await world.agent(charge, turns=[CHARGE]).run("charge 42", conversation_id=CONVERSATION)

        asyncio.run(main())
        assert len(world.charges) == 1
        assert world.told[-1].content["receipt"] == "r1"

    def test_arguments_that_are_invalid_are_never_claimed(self, open_world: Callable[..., World]) -> None:
        """The framework refuses them before the gate sees them: no record, and the corrected call runs."""
        world = open_world()
        run(world.agent(turns=[[("charge", {"order": 5})], [("charge", {"nothing": 1})], CHARGE], retries=3))

        assert world.charges == ["42"]
        assert len(world.gates[0].blocking.records.list()) == 1


class TestOtherCapabilities:
    @pytest.mark.fault("agents-pydantic-hooks-are-inside")
    def test_a_hook_that_rejects_a_result_does_not_make_the_call_free(self, open_world: Callable[..., World]) -> None:
        """The tool had its effect, and then a hook of another capability asks for a retry: one effect, and a replay."""
        world = open_world()

        class Strict(AbstractCapability[Any]):
            seen = 0

            async def after_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, result: Any) -> Any:
                self.seen += 1
                if self.seen == 1:
                    raise ModelRetry("look at that again")
                return {**result, "checked": True}

        run(world.agent(turns=[CHARGE, CHARGE], more=[Strict()]))

        assert len(world.charges) == 1
        assert world.told[-1].content == {"charged": "42", "receipt": "r1", "checked": True}

    @pytest.mark.fault("agents-pydantic-hooks-are-inside", "agents-text-of-an-error-is-an-answer")
    def test_an_error_that_a_hook_makes_text_of_is_not_stored_as_a_success(
        self, open_world: Callable[..., World]
    ) -> None:
        """The first model reads the hook's text, as its author wants; asking again, and a restart, meet the doubt."""
        world = open_world()

        def charge(order: str) -> Any:
            world.charge(order)
            raise OSError("connection reset")

        class Kind(AbstractCapability[Any]):
            async def on_tool_execute_error(
                self, ctx: Any, *, call: Any, tool_def: Any, args: Any, error: Exception
            ) -> Any:
                return "something went wrong"

        first = run(world.agent(charge, turns=[CHARGE, CHARGE], more=[Kind()]))
        run(world.agent(charge, turns=[], more=[Kind()]), None, message_history=before_tools(first))

        assert len(world.charges) == 1
        assert world.told[0].content == "something went wrong"
        assert ["may already have happened" in part.content for part in world.told[1:]] == [True, True]

    @pytest.mark.parametrize("gated", [True, False])
    def test_a_capability_that_calls_a_tool_again_finds_the_record(
        self, open_world: Callable[..., World], gated: bool
    ) -> None:
        """Retries around the tools, wherever they are listed, are given the record: no second effect, and an end."""
        world = open_world(gated=gated)

        def charge(order: str) -> Any:
            world.charge(order)
            raise OSError("connection reset")

        class Again(AbstractCapability[Any]):
            async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
                for _ in range(2):
                    try:
                        return await handler(args)
                    except OSError:
                        pass
                return await handler(args)

        if gated:
            run(world.agent(charge, turns=[CHARGE], more=[Again()]))
            assert "may already have happened" in world.told[-1].content
        else:
            with pytest.raises(OSError, match="connection reset"):
                run(world.agent(charge, turns=[CHARGE], more=[Again()]))
        assert len(world.charges) == (1 if gated else 3)

    def test_calls_that_a_tool_makes_are_gated_and_numbered(self, open_world: Callable[..., World]) -> None:
        """Two equal calls from inside another tool are two, though no message has them; a restart makes none anew."""
        world = open_world()

        async def batch(ctx: RunContext[None]) -> Any:
            assert ctx.tool_manager is not None
            calls = [ToolCallPart("charge", {"order": "42"}) for _ in range(2)]
            return [(await ctx.tool_manager.handle_call(call))["receipt"] for call in calls]

        for _ in range(2):
            run(world.agent(batch, world.charge, turns=[[("batch", {})]], kinds={"batch": Tool("read-only")}))
            assert world.told[-1].content == ["r1", "r2"]
        assert len(world.charges) == 2


class TestDeclarations:
    @pytest.mark.parametrize("said", ["mapping", "metadata", "decorator", "annotations", "untrusted"])
    def test_a_tool_says_what_it_is(self, open_world: Callable[..., World], said: str) -> None:
        """In the gate's mapping, in its metadata, by the decorator, or by its server, if that is believed."""
        world = open_world()

        def charge(order: str) -> dict[str, str]:
            return world.charge(order)

        tools = FunctionToolset[None]()
        kind = Tool("read-only")
        metadata: dict[str, Any] = {}
        if said == "metadata":
            metadata = {"onceward": kind}
        if said in ("annotations", "untrusted"):
            metadata = {"annotations": {"readOnlyHint": True}}
        tools.add_function(tool("read-only")(charge) if said == "decorator" else charge, metadata=metadata)
        for _ in range(2):
            agent = world.agent(
                turns=[[("mine_charge", {"order": "42"})]],
                toolsets=[tools.prefixed("mine")],
                kinds={"mine_charge": kind} if said == "mapping" else {},
                trust_annotations=said == "annotations",
            )
            run(agent)

        assert len(world.charges) == (1 if said == "untrusted" else 2)

    def test_a_business_key_wins_over_the_run(self, open_world: Callable[..., World]) -> None:
        """The same order in another conversation is the same charge; with other arguments it is refused in words."""
        world = open_world()

        def charge(order: str, amount: int) -> dict[str, str]:
            return world.charge(order)

        for amount in (5, 5, 6):
            turns = [[("charge", {"order": "42", "amount": amount})]]
            kinds = {"charge": Tool("keyed", key="charge:{order}")}
            run(world.agent(charge, turns=turns, kinds=kinds), conversation_id=f"c-{len(world.told)}")

        assert len(world.charges) == 1
        assert "different arguments" in world.told[-1].content
        assert world.told[-1].outcome == "failed"

    def test_a_run_without_a_name_is_refused(self, tmp_path: Path) -> None:
        """The name of a run is checked when the capability is made."""
        gate = AgentGate("memory://", scope="test:agents")
        with pytest.raises(Exception, match="the name of a run is"):
            Onceward(gate, run="")
