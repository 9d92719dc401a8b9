"""Google ADK: every tool call of an app happens once, whatever its callbacks, confirmations and restarts do."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="in make test-agents")

from google.adk.agents import LlmAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import BaseModel

from onceward.agents import AgentGate, Tool, tool
from onceward.agents.google_adk import OncewardPlugin

pytestmark = [
    pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

CONFIRM = "adk_request_confirmation"
Calls = Sequence[tuple[str, dict[str, Any]]]
CHARGE: Calls = [("charge", {"order": "42"})]


class Scripted(BaseLlm):
    """A model that follows a script: the calls of each answer; after the last one it says that it is done."""

    turns: list[Any]
    told: list[Any]

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        last = llm_request.contents[-1].parts or []
        self.told.extend(part.function_response.response for part in last if part.function_response)
        calls = self.turns.pop(0) if self.turns else []
        parts = [types.Part(function_call=types.FunctionCall(name=name, args=dict(args))) for name, args in calls]
        yield LlmResponse(content=types.Content(role="model", parts=parts or [types.Part(text="done")]))


class World:
    """An app's tools, what they did, and its sessions."""

    def __init__(self, folder: Path, *, gated: bool) -> None:
        self.folder, self.gated = folder, gated
        self.charges: list[str] = []
        self.told: list[Any] = []
        self.gates: list[AgentGate] = []

    def runner(self, *tools: Any, turns: Sequence[Calls], more: Sequence[BasePlugin] = (), **options: Any) -> Runner:
        """An app in a new process."""
        run, kinds, resumable = options.pop("run", None), options.pop("kinds", {}), options.pop("resumable", True)
        plugins = list(more)
        if self.gated:
            gate = AgentGate(f"sqlite:///{self.folder}/agent.db", scope="test:agents", tools=kinds, wait=2)
            self.gates.append(gate)
            plugins.append(OncewardPlugin(gate, run))
        model = Scripted(model="scripted", turns=list(turns), told=[])
        model.told = self.told
        agent = LlmAgent(name="billing", model=model, tools=list(tools) or [self.charge], **options)
        config = ResumabilityConfig(is_resumable=True) if resumable else None
        app = App(name="billing", root_agent=agent, plugins=plugins, resumability_config=config)
        return Runner(app=app, session_service=SqliteSessionService(str(self.folder / "sessions.db")))

    def charge(self, order: str) -> dict[str, str]:
        """Charge an order."""
        self.charges.append(order)
        return {"charged": order, "receipt": f"r{len(self.charges)}"}

    async def close(self) -> None:
        """The end of all gates."""
        for gate in self.gates:
            await gate.aclose()


@pytest.fixture
def open_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Worlds with the gate, and without it."""
    made: list[World] = []

    def opens(*, gated: bool = True) -> World:
        made.append(World(tmp_path, gated=gated))
        return made[-1]

    yield opens
    for one in made:
        asyncio.run(one.close())


def message(text: str = "charge 42") -> types.Content:
    """What the user says."""
    return types.Content(role="user", parts=[types.Part(text=text)])


async def ask(runner: Runner, session: str = "s", **more: Any) -> list[Event]:
    """Ask an app, in a session that is made if there is none."""
    sessions = runner.session_service
    if await sessions.get_session(app_name="billing", user_id="ann", session_id=session) is None:
        await sessions.create_session(app_name="billing", user_id="ann", session_id=session)
    asked = more or {"new_message": message()}
    return [event async for event in runner.run_async(user_id="ann", session_id=session, **asked)]


def run(runner: Runner, session: str = "s", **more: Any) -> list[Event]:
    """The same, from a test."""
    return asyncio.run(ask(runner, session, **more))


class TestOnce:
    @pytest.mark.parametrize("gated", [True, False])
    def test_a_message_that_is_sent_again_finds_the_call_done(
        self, open_world: Callable[..., World], gated: bool
    ) -> None:
        """With a run that the application names, an app that lost its session reads the first answer."""
        world = open_world(gated=gated)
        for session in ("s1", "s2"):
            run(world.runner(turns=[CHARGE], run="order-42"), session)

        assert len(world.charges) == (1 if gated else 2)
        assert [answer["receipt"] for answer in world.told] == ["r1", "r1" if gated else "r2"]

    def test_the_same_call_wanted_again_is_made_again(self, open_world: Callable[..., World]) -> None:
        """Twice in one answer, again in the next, and again in the next invocation: four effects."""
        world = open_world()
        run(world.runner(turns=[[*CHARGE, *CHARGE], CHARGE]))
        run(world.runner(turns=[CHARGE]))

        assert len(world.charges) == 4

    def test_a_function_may_name_the_run(self, open_world: Callable[..., World]) -> None:
        """From what the application put into the state: equal calls of the run are numbered in the session's events."""
        world = open_world()

        def name(context: ToolContext) -> str:
            return f"order-{context.state.get('order', 0)}"

        for session in ("s1", "s2"):
            run(world.runner(turns=[CHARGE, CHARGE], run=name), session)

        assert len(world.charges) == 2

    def test_an_app_that_cannot_resume_is_told(self, open_world: Callable[..., World]) -> None:
        """An invocation that nobody can go on with is no run that survives; the warning says what to do."""
        world = open_world()
        with pytest.warns(UserWarning, match="ResumabilityConfig"):
            run(world.runner(turns=[CHARGE], resumable=False))
        run(world.runner(turns=[CHARGE], resumable=False, run="order-42"))

        assert len(world.charges) == 2

    def test_a_blocking_runner_is_gated(self, open_world: Callable[..., World]) -> None:
        """`Runner.run` has a thread and a loop of its own."""
        world = open_world()
        for session in ("s1", "s2"):
            runner = world.runner(turns=[CHARGE], run="order-42")
            asyncio.run(runner.session_service.create_session(app_name="billing", user_id="ann", session_id=session))
            events = list(runner.run(user_id="ann", session_id=session, new_message=message()))
            assert [part.text for event in events if event.content for part in event.content.parts or []][-1] == "done"

        assert len(world.charges) == 1


class Receipt(BaseModel):
    """A result with a type."""

    order: str
    amount: float = 1.5


class TestResults:
    @pytest.mark.parametrize(
        "result", [None, "text", 7, [1, {"a": None}], Receipt(order="42"), {"r": Receipt(order="42")}, {}],
        ids=lambda result: type(result).__name__,
    )  # fmt: skip
    def test_every_answer_is_the_first_one(self, open_world: Callable[..., World], result: Any) -> None:
        """A replay is equal to the first answer, also if there is none; and to what the session would have stored."""
        stored = []
        runs: list[str] = []

        def charge(order: str) -> Any:
            """Charge."""
            runs.append(order)
            return result

        for gated in (False, True, True):
            world = open_world(gated=gated)
            events = run(world.runner(charge, turns=[CHARGE], run="order-42"), f"s{len(stored)}")
            (answer,) = [one for event in events for one in event.get_function_responses()]
            stored.append(answer.model_dump(mode="json", exclude={"id"}))

        assert len(runs) == 2
        assert stored[1] == stored[2] == stored[0]

    @pytest.mark.fault("agents-adk-state-is-lost")
    def test_a_replay_changes_the_state_as_the_tool_did(self, open_world: Callable[..., World]) -> None:
        """What a tool wrote into the session's state, and that nobody shall sum up, is done by the replay as well."""
        world = open_world()

        def charge(order: str, tool_context: ToolContext) -> dict[str, str]:
            """Charge."""
            tool_context.state["paid"] = [order]
            tool_context.actions.skip_summarization = True
            return world.charge(order)

        for session in ("s1", "s2"):
            events = run(world.runner(charge, turns=[CHARGE], run="order-42"), session)
            (answer,) = [event for event in events if event.get_function_responses()]
            assert answer.actions.state_delta == {"paid": ["42"]}
            assert answer.actions.skip_summarization is True

        assert len(world.charges) == 1

    def test_media_are_given_once_and_then_refused(self, open_world: Callable[..., World]) -> None:
        """A picture reaches the model; a restart is told that it happened, and was not kept."""
        world = open_world()

        def charge(order: str) -> Any:
            """Charge."""
            world.charge(order)
            return {"picture": types.Part.from_bytes(data=b"png", mime_type="image/png"), "order": order}

        for session in ("s1", "s2"):
            run(world.runner(charge, turns=[CHARGE], run="order-42"), session)

        assert len(world.charges) == 1
        assert world.told[0]["order"] == "42"
        assert "its result was not kept" in world.told[1]["error"]


class TestControlFlow:
    @pytest.mark.fault("agents-adk-a-pause-is-an-answer")
    @pytest.mark.filterwarnings("ignore:onceward. this app is not resumable:UserWarning")
    @pytest.mark.parametrize("gated", [True, False])
    @pytest.mark.parametrize("how", ["declared", "asks"])
    @pytest.mark.parametrize("resumable", [True, False])
    def test_a_confirmation_that_is_applied_twice_gives_one_effect(
        self, open_world: Callable[..., World], how: str, gated: bool, resumable: bool
    ) -> None:
        """Waiting for the user leaves no doubt; the same confirmation again is the same call, in any invocation."""
        world = open_world(gated=gated)

        def charge(order: str, tool_context: ToolContext) -> Any:
            """Charge."""
            if how == "asks" and tool_context.tool_confirmation is None:
                tool_context.request_confirmation(hint="really?")
                return {"status": "waiting"}
            return world.charge(order)

        def runner(turns: Sequence[Calls]) -> Runner:
            made = FunctionTool(charge, require_confirmation=how == "declared")
            return world.runner(made, turns=turns, resumable=resumable)

        events = run(runner([CHARGE]))
        (asked,) = [one for event in events for one in event.get_function_calls() if one.name == CONFIRM]
        yes = types.FunctionResponse(id=asked.id, name=CONFIRM, response={"confirmed": True})
        said = {"new_message": types.Content(role="user", parts=[types.Part(function_response=yes)])}
        more = {"invocation_id": events[-1].invocation_id} if resumable else {}
        shutil.copy(world.folder / "sessions.db", world.folder / "asked.db")
        for _ in range(2):
            run(runner([]), **said, **more)
            shutil.copy(world.folder / "asked.db", world.folder / "sessions.db")  # A crash before anything was saved.

        assert len(world.charges) == (1 if gated else 2)

    def test_a_refused_confirmation_leaves_the_call_free(self, open_world: Callable[..., World]) -> None:
        """The user says no: nothing is stored as if it had happened."""
        world = open_world()
        runner = world.runner(FunctionTool(world.charge, require_confirmation=True), turns=[CHARGE])
        events = run(runner)
        (asked,) = [one for event in events for one in event.get_function_calls() if one.name == CONFIRM]
        no = types.FunctionResponse(id=asked.id, name=CONFIRM, response={"confirmed": False})
        run(runner, new_message=types.Content(role="user", parts=[types.Part(function_response=no)]),
            invocation_id=events[-1].invocation_id)  # fmt: skip

        assert world.charges == []
        assert [one.state for one in world.gates[0].blocking.records.list()] in ([], ["released"])

    @pytest.mark.parametrize("gated", [True, False])
    def test_a_tool_that_raises_leaves_doubt(self, open_world: Callable[..., World], gated: bool) -> None:
        """The error ends the invocation as ever; asking again is told that it may have happened."""
        world = open_world(gated=gated)

        def charge(order: str) -> Any:
            """Charge."""
            world.charge(order)
            raise OSError("connection reset")

        with pytest.raises(OSError, match="connection reset"):
            run(world.runner(charge, turns=[CHARGE], run="order-42"), "s1")
        if gated:
            run(world.runner(charge, turns=[CHARGE, CHARGE], run="order-42"), "s1")
            assert [("may already have happened" in told["error"]) for told in world.told] == [True, True]
            assert "try again" not in str(world.told).lower()
        else:
            with pytest.raises(OSError, match="connection reset"):
                run(world.runner(charge, turns=[CHARGE]), "s1")

        assert len(world.charges) == (1 if gated else 2)

    @pytest.mark.fault("agents-text-of-an-error-is-an-answer")
    @pytest.mark.parametrize("gated", [True, False])
    def test_an_error_that_a_plugin_makes_text_of_is_not_stored_as_a_success(
        self, open_world: Callable[..., World], gated: bool
    ) -> None:
        """Other plugins come first, and answer for the tool: asking again meets the doubt; no claim is left open."""
        world = open_world(gated=gated)

        def charge(order: str) -> Any:
            """Charge."""
            world.charge(order)
            raise OSError("connection reset")

        class Kind(BasePlugin):
            async def on_tool_error_callback(self, **_: Any) -> dict[str, Any]:
                return {"result": "something went wrong, please retry"}

            async def after_tool_callback(self, *, result: dict[str, Any], **_: Any) -> dict[str, Any]:
                return result

        run(world.runner(charge, turns=[CHARGE, CHARGE], more=[Kind("kind")]))

        assert len(world.charges) == (1 if gated else 2)
        if gated:
            assert "may already have happened" in world.told[1]["error"]
            assert [one.state for one in world.gates[0].blocking.records.list()] == ["in_doubt"]

    def test_a_callback_that_answers_for_a_tool_is_not_stored(self, open_world: Callable[..., World]) -> None:
        """A guard of the agent refuses a call: the tool did not run, so nothing is claimed, and later it may."""
        world = open_world()
        refused = {"result": "not now"}
        run(world.runner(turns=[CHARGE], run="order-42", before_tool_callback=lambda **_: refused), "s1")
        assert world.told == [refused]
        run(world.runner(turns=[CHARGE], run="order-42"), "s2")

        assert world.charges == ["42"]

    def test_a_cancelled_app_leaves_its_call_to_its_end(self, open_world: Callable[..., World]) -> None:
        """Cancelled in a tool: the call ends behind a shield, its claim with it, and a restart finds the answer."""
        world = open_world()

        async def main() -> None:
            began, go = asyncio.Event(), asyncio.Event()

            async def charge(order: str) -> Any:
                """Charge."""
                began.set()
                await go.wait()
                return world.charge(order)

            task = asyncio.ensure_future(ask(world.runner(charge, turns=[CHARGE], run="order-42"), "s1"))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go.set()
            await world.gates[0].aclose()
            await ask(world.runner(charge, turns=[CHARGE], run="order-42"), "s2")
            states = [one.state for one in await world.gates[1].awaiting.records.list()]
            assert states == ["settled"]

        asyncio.run(main())
        assert len(world.charges) == 1
        assert world.told[-1]["receipt"] == "r1"

    def test_a_long_running_tool_has_answered_when_it_returns(self, open_world: Callable[..., World]) -> None:
        """Its first result is its answer here, whatever comes later: nothing is held open, and it begins once."""
        world = open_world()
        for session in ("s1", "s2"):
            run(world.runner(LongRunningFunctionTool(world.charge), turns=[CHARGE], run="order-42"), session)

        assert len(world.charges) == 1
        assert [one.state for one in world.gates[0].blocking.records.list()] == ["settled"]

    @pytest.mark.fault("agents-adk-invalid-arguments-are-claimed")
    def test_arguments_that_are_invalid_leave_the_key_free(self, open_world: Callable[..., World]) -> None:
        """ADK answers for the tool; a business key is then still there for the corrected call."""
        world = open_world()

        def charge(order: str, amount: int) -> Any:
            """Charge."""
            return world.charge(order)

        turns: list[Calls] = [[("charge", {"order": "42"})], [("charge", {"order": "42", "amount": 5})]]
        run(world.runner(charge, turns=turns, kinds={"charge": Tool("blind", key="charge:{order}")}))

        assert world.charges == ["42"]
        assert world.told[-1]["receipt"] == "r1"

    @pytest.mark.skipif(version("google-adk").startswith("2.0."), reason="ADK 2.0 raises an error for it")
    def test_a_tool_that_the_model_made_up_is_no_call(self, open_world: Callable[..., World]) -> None:
        """ADK says so to the model; nothing is claimed."""
        world = open_world()
        run(world.runner(turns=[[("refund", {"order": "42"})], CHARGE]))

        assert world.charges == ["42"]


class TestDeclarations:
    @pytest.mark.parametrize("said", ["mapping", "metadata", "decorator"])
    def test_a_tool_says_what_it_is(self, open_world: Callable[..., World], said: str) -> None:
        """In the gate's mapping, in its metadata, or by the decorator."""
        world = open_world()

        def charge(order: str) -> dict[str, str]:
            """Charge."""
            return world.charge(order)

        made = FunctionTool(tool("read-only")(charge) if said == "decorator" else charge)
        if said == "metadata":
            made.custom_metadata = {"onceward": Tool("read-only")}
        kinds = {"charge": Tool("read-only")} if said == "mapping" else {}
        for session in ("s1", "s2"):
            run(world.runner(made, turns=[CHARGE], run="order-42", kinds=kinds), session)

        assert len(world.charges) == 2

    def test_two_apps_may_share_a_tool(self, open_world: Callable[..., World]) -> None:
        """A tool that a gate stands before is free where no plugin has seen the call."""
        world, other = open_world(), open_world(gated=False)
        shared = FunctionTool(world.charge)
        run(world.runner(shared, turns=[CHARGE], run="order-42"), "s1")
        run(other.runner(shared, turns=[CHARGE]), "s2")
        run(world.runner(shared, turns=[CHARGE], run="order-42"), "s3")

        assert len(world.charges) == 2

    def test_agents_may_hand_over_to_each_other(self, open_world: Callable[..., World]) -> None:
        """ADK's own tools steer the agents, also the second time: they are no effects."""
        for session in ("s1", "s2"):
            world = open_world()
            model = Scripted(model="scripted", turns=[CHARGE], told=[])
            model.told = world.told
            helper = LlmAgent(name="helper", description="charges", model=model, tools=[world.charge])
            runner = world.runner(
                turns=[[("transfer_to_agent", {"agent_name": "helper"})]], run="order-42", sub_agents=[helper]
            )
            run(runner, session)
            assert world.told[-1]["receipt"] == "r1"
