"""
LangChain and LangGraph: tool calls in agents and graphs, and calls in nodes, happen once.

Real frameworks, a scripted model, and an effect that counts itself. Crashes are in `test_langchain_crashes.py`.
"""

from __future__ import annotations

import asyncio
import operator
import runpy
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from decimal import Decimal
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langchain", reason="in make test-agents")

from agent_support import Colour, Effects
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, ToolRetryMiddleware
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, ToolException
from langchain_core.tools import tool as langchain_tool
from langchain_script import DONE, Script, ScriptedModel, calls, read, turns
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, RetryPolicy, interrupt
from pydantic import BaseModel, field_validator

from onceward import current_operation
from onceward.agents import AgentGate, Tool, ToolCall, _requirements, tool
from onceward.agents.langchain import NodeGate, OncewardMiddleware, tool_wrappers
from onceward.errors import ConfigurationError, InDoubt, KeyInvalid, NothingHappened
from onceward.gate import Found

Gates = Callable[..., AgentGate]
QUESTION = {"messages": [("user", "charge order 42")]}
AGAIN = RetryPolicy(initial_interval=0, max_interval=0, jitter=False, max_attempts=3, retry_on=Exception)


def at_once(**more: Any) -> ToolRetryMiddleware:
    """LangChain's own retries, without their pauses."""
    return ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False, **more)


def charge_tool(effects: Effects, fails: type[Exception] | None = None, times: int = 99, **more: Any) -> BaseTool:
    """A tool that charges, and then fails, as often as it is told."""

    def charge(order: str) -> str:
        """Charge an order."""
        effects()
        if fails is not None and effects.count <= times:
            raise fails("no answer came")
        return f"charged {order}"

    return StructuredTool.from_function(charge, **more)


class Asking:
    """Agents and graphs, in both colours."""

    def __init__(self, colour: Colour) -> None:
        self.colour = colour
        self.saver = InMemorySaver()

    def agent(self, script: Script, tools: list[Any], *middleware: AgentMiddleware[Any, Any]) -> Any:
        """An agent of LangChain's."""
        return create_agent(ScriptedModel(script=script), tools, middleware=middleware, checkpointer=self.saver)

    def graph(self, script: Script, node: ToolNode, **more: Any) -> Any:
        """A graph of one's own: a model, and a ToolNode."""
        model = ScriptedModel(script=script)

        def think(state: MessagesState) -> Any:
            return {"messages": [model.invoke(state["messages"])]}

        def is_done(state: MessagesState) -> str:
            return "tools" if state["messages"][-1].tool_calls else "__end__"  # type: ignore[union-attr]

        graph = StateGraph(MessagesState)
        graph.add_node("think", think)
        graph.add_node("tools", node, **more)
        graph.add_edge(START, "think")
        graph.add_conditional_edges("think", is_done, ["tools", "__end__"])
        graph.add_edge("tools", "think")
        return graph.compile(checkpointer=self.saver)

    def ask(self, graph: Any, given: Any = QUESTION, *, thread: str | None = "t1", **more: Any) -> Any:
        """Run a graph to its end."""
        config = {"configurable": {"thread_id": thread}} if thread else {}
        if graph.checkpointer is not None:
            more.setdefault("durability", "sync")
        if self.colour.awaits:
            return self.colour.do(graph.ainvoke(given, config, **more))
        return graph.invoke(given, config, **more)


@pytest.fixture
def asking(colour: Colour) -> Asking:
    """Agents and graphs, in both colours."""
    return Asking(colour)


CHARGE = ("c1", "charge", {"order": "42"})


# --- identity ---


def test_a_call_that_is_made_once_has_its_effect_once(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """The middleware is in nobody's way: the model reads what the tool returned."""
    agent = asking.agent(turns(calls(CHARGE), DONE), [charge_tool(effects)], OncewardMiddleware(open_gate()))

    result = asking.ask(agent)

    assert read(result["messages"]) == [("success", "charged 42")]
    assert effects.count == 1


def test_two_equal_calls_are_two_effects(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """In one answer of the model, and in its next: each was answered, so each is wanted."""
    both = calls(CHARGE, ("c2", "charge", {"order": "42"}))
    script = turns(both, calls(("c3", "charge", {"order": "42"})), DONE)
    agent = asking.agent(script, [charge_tool(effects)], OncewardMiddleware(open_gate()))

    asking.ask(agent)

    assert effects.count == 3


@pytest.mark.fault("langchain-numbers-not-counted")
def test_the_same_question_is_another_run(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """
    A new message on the thread is a new piece of work, and an equal call in the next turn is another one; also if the
    model counts its ids from the same number in every answer.
    """
    for _ in range(2):
        agent = asking.agent(
            turns(calls(CHARGE), calls(CHARGE), DONE), [charge_tool(effects)], OncewardMiddleware(open_gate())
        )
        asking.ask(agent)

    assert effects.count == 4


@pytest.mark.requirement("B45")
def test_a_run_that_the_application_names_is_one_however_often_it_is_started(
    asking: Asking, open_gate: Gates, effects: Effects
) -> None:
    """Without a checkpointer, too: the order is the run. Another order is another run."""
    results = []
    for run in ("order-42", "order-42", "order-43"):
        asking.saver = None  # type: ignore[assignment]
        middleware = OncewardMiddleware(open_gate(), run=partial(lambda run, request: run, run))
        agent = asking.agent(turns(calls(CHARGE), DONE), [charge_tool(effects)], middleware)
        results.append(read(asking.ask(agent, thread=None)["messages"]))

    assert results == [[("success", "charged 42")]] * 3
    assert effects.count == 2


def test_a_replay_has_the_id_of_the_call_that_asks(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """A model's ids are new whenever it answers anew; the framework refuses an answer under another one."""
    agents = [
        asking.agent(
            turns(calls((id, "charge", {"order": "42"})), DONE),
            [charge_tool(effects)],
            OncewardMiddleware(open_gate(), "r"),
        )
        for id in ("first", "second")
    ]
    found = [asking.ask(agent, thread=id)["messages"][2] for agent, id in zip(agents, ("t1", "t2"), strict=True)]

    assert [message.tool_call_id for message in found] == ["first", "second"]
    assert [message.content for message in found] == ["charged 42"] * 2
    assert effects.count == 1


@pytest.mark.fault("langchain-rewritten-arguments-are-one")
def test_rewritten_arguments_are_told_apart_by_what_the_model_said(
    asking: Asking, open_gate: Gates, effects: Effects
) -> None:
    """Middleware farther out may make one of two; the calls are still two, and two of one are, too."""

    class Rewrites(AgentMiddleware[Any, Any]):
        def rewritten(self, request: Any) -> Any:
            return request.override(tool_call={**request.tool_call, "args": {"order": "***"}})

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(self.rewritten(request))

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return await handler(self.rewritten(request))

    script = turns(
        calls(CHARGE), calls(("c2", "charge", {"order": "43"})), calls(("c3", "charge", {"order": "43"})), DONE
    )
    agent = asking.agent(script, [charge_tool(effects)], Rewrites(), OncewardMiddleware(open_gate()))

    found = read(asking.ask(agent)["messages"])

    assert found == [("success", "charged ***")] * 3
    assert effects.count == 3


def test_a_business_key_needs_no_run(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """One order is charged once, whoever asks, on whatever thread, with or without a checkpointer."""
    asking.saver = None  # type: ignore[assignment]
    gate = open_gate(charge=Tool("blind", key="charge:{order}"))
    agent = asking.agent(turns(calls(CHARGE), DONE), [charge_tool(effects)], OncewardMiddleware(gate))

    results = [read(asking.ask(agent, thread=thread)["messages"]) for thread in (None, "t1", "t2")]

    assert results == [[("success", "charged 42")]] * 3
    assert effects.count == 1


# --- where the run comes from ---


def test_without_a_checkpointer_and_a_run_nothing_is_run(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """Nobody could tell a repeated call from a new one after a crash: an error says so, and what to do."""
    asking.saver = None  # type: ignore[assignment]
    agent = asking.agent(turns(calls(CHARGE), DONE), [charge_tool(effects)], OncewardMiddleware(open_gate()))

    for thread in (None, "t1"):
        with pytest.raises(ConfigurationError, match=r"no checkpointer.*run='order-42'"):
            asking.ask(agent, thread=thread)

    assert effects.count == 0


@pytest.mark.fault("langchain-lost-checkpoint-is-not-said")
@pytest.mark.parametrize("mode", [None, "async", "exit"])
def test_a_checkpoint_that_may_be_lost_is_warned_of_once(
    asking: Asking, open_gate: Gates, effects: Effects, mode: Any
) -> None:
    """The message's id is on disk only with durability='sync'; LangGraph's default is 'async'."""
    agent = asking.agent(turns(calls(CHARGE), DONE), [charge_tool(effects)], OncewardMiddleware(open_gate()))

    with pytest.warns(UserWarning, match=r"durability='sync', or name the run") as warned:
        asking.ask(agent, durability=mode)
    asking.ask(agent, durability=mode)  # Warnings are errors: a second one would be raised.

    assert len(warned) == 1


def test_a_named_run_needs_no_durability(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """Nothing is warned of: warnings are errors here."""
    agent = asking.agent(
        turns(calls(CHARGE), DONE), [charge_tool(effects)], OncewardMiddleware(open_gate(), run="order-42")
    )

    asking.ask(agent, durability="exit")

    assert effects.count == 1


def test_a_run_must_be_a_text(open_gate: Gates) -> None:
    """Said when the middleware is made."""
    with pytest.raises(KeyInvalid, match="the name of a run is"):
        OncewardMiddleware(open_gate(), run="")


def test_messages_may_be_kept_under_another_name(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """As `ToolNode(messages_key=...)` has it; the wrappers are told, too."""

    class State(TypedDict):
        talk: Annotated[list[AnyMessage], add_messages]

    graph = StateGraph(State)
    wrappers = tool_wrappers(open_gate(), messages_key="talk")
    graph.add_node("tools", ToolNode([charge_tool(effects)], messages_key="talk", **wrappers))
    graph.add_edge(START, "tools")
    compiled = graph.compile(checkpointer=asking.saver)

    both = calls(CHARGE, ("c2", "charge", {"order": "42"}))
    result = asking.ask(compiled, {"talk": [HumanMessage("charge twice"), both]})

    assert read(result["talk"]) == [("success", "charged 42")] * 2
    assert effects.count == 2


def test_messages_without_ids_name_no_run(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """A list that is only appended to gives no ids."""

    class State(TypedDict):
        messages: Annotated[list[AnyMessage], operator.add]

    graph = StateGraph(State)
    graph.add_node("tools", ToolNode([charge_tool(effects)], **tool_wrappers(open_gate())))
    graph.add_edge(START, "tools")
    compiled = graph.compile(checkpointer=asking.saver)

    with pytest.raises(ConfigurationError, match="MessagesState"):
        asking.ask(compiled, {"messages": [HumanMessage("charge"), calls(CHARGE)]})

    assert effects.count == 0


@pytest.mark.parametrize("gated", [True, False])
def test_a_sub_agent_works_for_the_call_that_started_it(
    asking: Asking, open_gate: Gates, effects: Effects, gated: bool
) -> None:
    """An agent as a tool, stopped in its own tool and resumed: that call is found. Without us, it happens twice."""
    middleware = [OncewardMiddleware(open_gate(ask=Tool("repeatable")))] if gated else []
    charge = charge_tool(effects, ConnectionError, 1)
    sub: Any = create_agent(ScriptedModel(script=turns(calls(CHARGE), DONE)), [charge], middleware=middleware)

    def ask(what: str) -> str:
        """Ask a colleague."""
        return str(read(sub.invoke({"messages": [("user", what)]})["messages"]))

    async def aask(what: str) -> str:
        return str(read((await sub.ainvoke({"messages": [("user", what)]}))["messages"]))

    asks = StructuredTool.from_function(ask, aask)
    agent = asking.agent(turns(calls(("a", "ask", {"what": "charge"})), DONE), [asks], *middleware)

    with pytest.raises(ConnectionError):
        asking.ask(agent)
    ((status, text),) = read(asking.ask(agent, None)["messages"])

    assert status == "success"
    assert ("may already have happened" if gated else "charged 42") in text
    assert effects.count == (1 if gated else 2)


# --- what tools are ---


def test_a_tool_says_what_it_is_under_langchains_decorator(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """And the gate's mapping wins over it."""

    @langchain_tool
    @tool("read-only")
    def find(order: str) -> str:
        """Find a charge."""
        return str(current_operation(None) is not None)

    @langchain_tool
    @tool("keyed", key="charge:{order}")
    async def charge(order: str) -> str:
        """Charge an order."""
        effects()
        return str(current_operation(None) is not None)

    both = calls(("c1", "find", {"order": "42"}), CHARGE)
    if not asking.colour.awaits:
        charge.func = lambda order: (effects(), str(current_operation(None) is not None))[1]
    agent = asking.agent(turns(both, both, DONE), [find, charge], OncewardMiddleware(open_gate()))

    result = asking.ask(agent)

    assert read(result["messages"]) == [("success", "False"), ("success", "True")] * 2
    assert effects.count == 1


@pytest.mark.parametrize("trusted", [True, False])
def test_annotations_are_believed_only_if_that_is_said(
    asking: Asking, open_gate: Gates, effects: Effects, trusted: bool
) -> None:
    """An MCP server's word arrives as the tool's metadata."""
    charge = charge_tool(effects, metadata={"readOnlyHint": True})
    middleware = OncewardMiddleware(open_gate(), "r", trust_annotations=trusted)
    agent = asking.agent(turns(calls(CHARGE), DONE), [charge], middleware)

    for thread in ("t1", "t2"):
        asking.ask(agent, thread=thread)

    assert effects.count == (2 if trusted else 1)


class Amount(BaseModel):
    """Arguments with a rule of their own."""

    order: str
    amount: int

    @field_validator("amount")
    @classmethod
    def positive(cls, value: int) -> int:
        """No refunds."""
        if value <= 0:
            raise ValueError("must be positive")
        return value


@pytest.mark.fault("langchain-invalid-arguments-are-claimed")
@pytest.mark.parametrize("arguments", [{"order": "42"}, {"order": "42", "amount": -5}, {"order": "42", "amount": "x"}])
def test_invalid_arguments_are_never_claimed(
    asking: Asking, open_gate: Gates, effects: Effects, arguments: dict[str, Any]
) -> None:
    """The framework says what is wrong with them, and the model corrects itself; nothing is in doubt."""

    def charge(
        order: str, amount: int, state: Annotated[Any, InjectedState], id: Annotated[str, InjectedToolCallId]
    ) -> str:
        effects()
        return f"charged {amount} for {id}, {len(state['messages'])} messages"

    class Injected(Amount):
        state: Annotated[Any, InjectedState]
        id: Annotated[str, InjectedToolCallId]

    gate = open_gate()
    charging = StructuredTool.from_function(charge, args_schema=Injected, description="Charge.")
    script = turns(calls(("c1", "charge", arguments)), calls(("c2", "charge", {"order": "42", "amount": 5})), DONE)
    agent = asking.agent(script, [charging], OncewardMiddleware(gate))

    found = read(asking.ask(agent)["messages"])

    assert [status for status, _ in found] == ["error", "success"]
    assert "Error invoking tool" in found[0][1]
    assert found[1][1] == "charged 5 for c2, 4 messages"
    assert (effects.count, len(gate.blocking.records.list())) == (1, 1)


def test_a_tool_that_is_not_there_is_not_in_doubt(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """The framework names those that are, and the model may choose again; dynamic tools are known only farther in."""
    made_up = calls(("c1", "chrage", {"order": "42"}))
    agent = asking.agent(turns(made_up, made_up, DONE), [charge_tool(effects)], OncewardMiddleware(open_gate()))

    found = read(asking.ask(agent)["messages"])

    assert [text.split(",")[0] for _, text in found] == ["Error: chrage is not a valid tool"] * 2


# --- results ---


def test_what_ran_now_returns_its_very_message(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """With an artifact that no record keeps; a replay has the content, and an artifact only if it is plain data."""
    receipt = Decimal("4.20")

    @langchain_tool(response_format="content_and_artifact")
    def charge(order: str) -> tuple[str, Any]:
        """Charge an order."""
        effects()
        return f"charged {order}", receipt if order == "42" else {"order": [order]}

    script = turns(calls(CHARGE, ("c2", "charge", {"order": "43"})), DONE)
    gate = open_gate()
    found = [
        asking.ask(asking.agent(script, [charge], OncewardMiddleware(gate, "r")), thread=thread)["messages"][2:4]
        for thread in ("t1", "t2")
    ]

    assert [message.artifact for message in found[0]] == [receipt, {"order": ["43"]}]
    assert [message.artifact for message in found[1]] == [None, {"order": ["43"]}]
    assert [message.content for message in found[1]] == ["charged 42", "charged 43"]
    assert effects.count == 2


def test_a_command_acts_once_and_is_not_kept(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """The first run hands on the very Command; a replay would act on another graph, and is refused in words."""

    @langchain_tool
    def charge(order: str, id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Charge an order."""
        effects()
        return Command(update={"messages": [ToolMessage(f"charged {order}", tool_call_id=id)]})

    agent = asking.agent(turns(calls(CHARGE), DONE), [charge], OncewardMiddleware(open_gate(), "r"))

    first, second = (read(asking.ask(agent, thread=thread)["messages"]) for thread in ("t1", "t2"))

    assert first == [("success", "charged 42")]
    assert second[0][0] == "error"
    assert "was done before, and its result was not stored" in second[0][1]
    assert effects.count == 1


def test_what_a_probe_found_is_an_answer(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """Plain data of its own, read by the model as if the tool had returned it."""

    def find(call: ToolCall) -> Found:
        return Found({"charged": call.arguments["order"]})

    gate = open_gate(charge=Tool("probed", probe=find))
    agent = asking.agent(
        turns(calls(CHARGE), calls(("c2", "charge", {"order": "42"})), DONE),
        [charge_tool(effects, TimeoutError)],
        OncewardMiddleware(gate, tell_errors=True),
    )

    found = read(asking.ask(agent)["messages"])

    assert [status for status, _ in found] == ["error", "success"]
    assert found[1][1] == '{"charged": "42"}'
    assert effects.count == 1


# --- errors, and those who repeat ---


@pytest.mark.fault("langchain-error-text-is-stored")
@pytest.mark.parametrize("gated", [True, False])
def test_an_error_that_became_a_text_is_not_stored_and_does_not_invite(
    asking: Asking, open_gate: Gates, effects: Effects, gated: bool
) -> None:
    """With handle_tool_errors=True, LangGraph asks the model to fix its mistakes. Then it charges twice."""
    wrappers: Any = tool_wrappers(open_gate(charge=Tool(check="find_charge"))) if gated else {}
    node = ToolNode([charge_tool(effects, TimeoutError)], handle_tool_errors=True, **wrappers)
    again = calls(("c2", "charge", {"order": "42"}))

    found = read(asking.ask(asking.graph(turns(calls(CHARGE), again, DONE), node))["messages"])

    assert [status for status, _ in found] == ["error", "error"]
    assert effects.count == (1 if gated else 2)
    assert ["fix your mistakes" in text for _, text in found] == [not gated, not gated]
    if gated:
        assert found[0][1].startswith("'charge' failed (TimeoutError: no answer came), but may have happened.")
        assert found[1][1].startswith("'charge' may already have happened")
        assert all("Check with find_charge" in text for _, text in found)


def test_a_text_for_types_is_ours_if_that_is_said(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """Where the node names types, LangGraph makes a text of all that a wrapper raises: tell_errors is before it."""
    wrappers = tool_wrappers(open_gate(), tell_errors=True)
    node = ToolNode([charge_tool(effects, TimeoutError)], handle_tool_errors=(KeyError,), **wrappers)

    found = read(asking.ask(asking.graph(turns(calls(CHARGE), DONE), node))["messages"])

    assert "but may have happened" in found[0][1]


def test_an_error_that_the_tool_answers_is_not_stored(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """A ToolException becomes a message with an error's status, from the tool itself: it is told in our words."""
    charge = charge_tool(effects, ToolException, handle_tool_error="the bank said no")
    again = calls(("c2", "charge", {"order": "42"}))
    agent = asking.agent(turns(calls(CHARGE), again, DONE), [charge], OncewardMiddleware(open_gate()))

    found = read(asking.ask(agent)["messages"])

    assert found[0] == (
        "error",
        "'charge' failed (the bank said no), but may have happened. It will not run until a person "
        "has decided. Check by other means whether it happened, or report this to the user.",
    )
    assert found[1][1].startswith("'charge' may already have happened")
    assert effects.count == 1


def test_a_tool_that_knows_that_nothing_happened_may_be_called_again(
    asking: Asking, open_gate: Gates, effects: Effects
) -> None:
    """It raises NothingHappened; also where the framework makes a text of that."""
    node = ToolNode(
        [charge_tool(effects, NothingHappened, times=1)], handle_tool_errors=True, **tool_wrappers(open_gate())
    )

    found = read(asking.ask(asking.graph(turns(calls(CHARGE), calls(CHARGE), DONE), node))["messages"])

    assert found == [("error", "'charge' failed (no answer came), and had no effect."), ("success", "charged 42")]


def test_what_a_tool_raises_is_raised(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """As without us: the run stops. A resume then finds the doubt, and the model is told."""
    agent = asking.agent(
        turns(calls(CHARGE), DONE), [charge_tool(effects, TimeoutError)], OncewardMiddleware(open_gate())
    )

    with pytest.raises(TimeoutError, match="no answer came"):
        asking.ask(agent)
    found = read(asking.ask(agent, None)["messages"])

    assert found[0][0] == "error"
    assert "may already have happened" in found[0][1]
    assert effects.count == 1


@pytest.mark.fault("langchain-inner-retry-runs-again")
@pytest.mark.parametrize("kind", ["blind", "repeatable"])
@pytest.mark.parametrize("order", ["retry outside", "retry inside", "ungated"])
def test_langchains_retries_do_not_repeat_an_effect(
    asking: Asking, open_gate: Gates, effects: Effects, order: str, kind: Any
) -> None:
    """In either order of the middleware; a tool that may be repeated is. Without us, a blind tool charges twice."""
    gated = OncewardMiddleware(open_gate(charge=Tool(kind)))
    middleware: dict[str, list[Any]] = {
        "retry outside": [at_once(), gated],
        "retry inside": [gated, at_once()],
        "ungated": [at_once()],
    }
    agent = asking.agent(turns(calls(CHARGE), DONE), [charge_tool(effects, ConnectionError, 1)], *middleware[order])

    ((status, text),) = read(asking.ask(agent)["messages"])

    if order == "ungated" or kind == "repeatable":
        assert (status, text, effects.count) == ("success", "charged 42", 2)
    else:
        assert (status, effects.count) == ("error", 1)
        assert "may have happened" in text or "may already have happened" in text
        assert "try again" not in text


@pytest.mark.parametrize("order", ["retry outside", "retry inside"])
def test_a_refusal_is_not_retried_by_middleware(asking: Asking, open_gate: Gates, effects: Effects, order: str) -> None:
    """It is a message, not an error: asked for once, and told once."""
    gate, asked = open_gate(), Effects()

    class Counts(AgentMiddleware[Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            asked()
            return handler(request)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            asked()
            return await handler(request)

    once = OncewardMiddleware(gate, "r", tell_errors=True)
    middleware = [at_once(), Counts(), once] if order == "retry outside" else [Counts(), once, at_once()]
    agent = asking.agent(turns(calls(CHARGE), DONE), [charge_tool(effects, TimeoutError)], *middleware)
    for thread in ("t1", "t2"):
        ((status, text),) = read(asking.ask(agent, thread=thread)["messages"])

    assert (status, text.split(":")[0]) == ("error", "'charge' may already have happened")
    assert (asked.count, effects.count) == (2, 1)


@pytest.mark.parametrize("gated", [True, False])
def test_a_retried_node_does_not_repeat_its_finished_calls(
    asking: Asking, open_gate: Gates, effects: Effects, gated: bool
) -> None:
    """LangGraph's RetryPolicy enters the whole ToolNode again: the sibling is replayed, the failed call in doubt."""
    sent = Effects()

    @langchain_tool
    def notify(order: str) -> str:
        """Notify somebody."""
        sent()
        return f"notified {order}"

    wrappers: Any = tool_wrappers(open_gate()) if gated else {}
    node = ToolNode([notify, charge_tool(effects, ConnectionError, 1)], **wrappers)
    graph = asking.graph(turns(calls(("n", "notify", {"order": "42"}), CHARGE), DONE), node, retry_policy=AGAIN)

    found = read(asking.ask(graph)["messages"])

    assert found[0] == ("success", "notified 42")
    assert found[1][0] == ("error" if gated else "success")
    assert (sent.count, effects.count) == ((1, 1) if gated else (2, 2))


def test_an_interrupt_passes_and_frees_the_key(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """A person is asked, answers, and the tool goes on where it is entered again."""

    @langchain_tool
    def charge(order: str) -> str:
        """Charge an order, once somebody agrees."""
        answer = interrupt({"charge": order})
        effects()
        return f"charged {order}: {answer}"

    gate = open_gate()
    agent = asking.agent(turns(calls(CHARGE), DONE), [charge], OncewardMiddleware(gate))

    waiting = asking.ask(agent)
    states = [record.state for record in gate.blocking.records.list()]
    found = read(asking.ask(agent, Command(resume="yes"))["messages"])

    assert waiting["__interrupt__"][0].value == {"charge": "42"}
    assert [str(state) for state in states] == ["released"]
    assert found == [("success", "charged 42: yes")]
    assert effects.count == 1


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_an_approval_is_asked_for_before_anything_is_claimed(
    asking: Asking, open_gate: Gates, effects: Effects, decision: str
) -> None:
    """LangChain asks between the model and the tools. A rejected call came to no answer: it keeps its number."""
    gate, again = open_gate(), calls(("c2", "charge", {"order": "42"}))
    person = HumanInTheLoopMiddleware(interrupt_on={"charge": True})
    agent = asking.agent(turns(calls(CHARGE), again, DONE), [charge_tool(effects)], person, OncewardMiddleware(gate))

    asking.ask(agent)
    asked = len(gate.blocking.records.list())
    for answer in (decision, "approve"):
        result = asking.ask(agent, Command(resume={"decisions": [{"type": answer}]}))

    assert asked == 0
    assert [status for status, _ in read(result["messages"])] == [
        "success" if decision == "approve" else "error",
        "success",
    ]
    assert effects.count == (2 if decision == "approve" else 1)


def test_a_caller_who_leaves_does_not_leave_doubt(open_gate: Gates, effects: Effects) -> None:
    """A cancelled agent's call goes on to its end, and the resumed agent is given its answer."""

    async def scenario() -> Any:
        started, go_on = asyncio.Event(), asyncio.Event()

        @langchain_tool
        async def charge(order: str) -> str:
            """Charge an order."""
            started.set()
            await go_on.wait()
            effects()
            return f"charged {order}"

        config: Any = {"configurable": {"thread_id": "t1"}}
        async with AgentGate("memory://", scope="test:agents", wait=60) as gate:
            model = ScriptedModel(script=turns(calls(CHARGE), DONE))
            agent: Any = create_agent(
                model, [charge], middleware=[OncewardMiddleware(gate)], checkpointer=InMemorySaver()
            )
            asked = asyncio.create_task(agent.ainvoke(QUESTION, config, durability="sync"))
            await started.wait()
            asked.cancel()
            with suppress(asyncio.CancelledError):
                await asked
            go_on.set()
            return await agent.ainvoke(None, config, durability="sync")

    result = asyncio.run(scenario())

    assert read(result["messages"]) == [("success", "charged 42")]
    assert effects.count == 1


def test_a_tool_that_settles_in_its_transaction_answers_with_what_it_settled(
    asking: Asking, open_gate: Gates, effects: Effects, tmp_path: Path
) -> None:
    """Rows and record commit together; the first answer and its replay are what was settled."""

    @langchain_tool
    def charge(order: str) -> dict[str, str]:
        """Charge an order."""
        operation = current_operation()
        with closing(sqlite3.connect(tmp_path / "agent.db")) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS charges (order_id TEXT)")
            connection.execute("INSERT INTO charges VALUES (?)", (order,))
            operation.settle_inside(connection, {"charged": order})
        effects()
        return {"charged": order}

    agent = asking.agent(
        turns(calls(CHARGE), DONE), [charge], OncewardMiddleware(open_gate(charge=Tool("atomic")), "r")
    )

    found = [read(asking.ask(agent, thread=thread)["messages"]) for thread in ("t1", "t2")]

    assert found == [[("success", '{"charged": "42"}')]] * 2
    assert effects.count == 1


def test_going_back_in_time_replays_the_tools(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """An old checkpoint has the user's message as it was, so its calls are known."""
    agent = asking.agent(turns(calls(CHARGE), DONE), [charge_tool(effects)], OncewardMiddleware(open_gate()))
    asking.ask(agent)
    before = next(
        past for past in agent.get_state_history({"configurable": {"thread_id": "t1"}}) if past.next == ("tools",)
    )
    if asking.colour.awaits:
        result = asking.colour.do(agent.ainvoke(None, before.config, durability="sync"))
    else:
        result = agent.invoke(None, before.config, durability="sync")

    assert read(result["messages"]) == [("success", "charged 42")]
    assert effects.count == 1


def test_an_error_for_the_programmer_stops_the_run(asking: Asking, effects: Effects) -> None:
    """Nothing is run without a record, and no model is told about a store that is not there: it is raised."""
    gate = AgentGate("sqlite:////nowhere/at/all/agent.db", scope="test:agents")
    agent = asking.agent(turns(calls(CHARGE), DONE), [charge_tool(effects)], OncewardMiddleware(gate, tell_errors=True))

    with pytest.raises(ConfigurationError, match="does not exist"):
        asking.ask(agent)

    assert effects.count == 0


# --- streaming ---


def test_streams_and_tools_that_write_to_them_work(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """What a tool writes while it runs arrives, in the middle of its claim; a replay writes nothing."""

    @langchain_tool
    def charge(order: str) -> str:
        """Charge an order."""
        write = get_stream_writer()
        write("charging")
        effects()
        write("charged")
        return f"charged {order}"

    agent = asking.agent(turns(calls(CHARGE), DONE), [charge], OncewardMiddleware(open_gate(), "r"))

    async def astream(config: Any) -> list[Any]:
        return [part async for part in agent.astream(QUESTION, config, stream_mode=["custom", "updates"])]

    streams = []
    for thread in ("t1", "t2"):
        config = {"configurable": {"thread_id": thread}}
        if asking.colour.awaits:
            parts = asking.colour.do(astream(config))
        else:
            parts = list(agent.stream(QUESTION, config, stream_mode=["custom", "updates"]))
        streams.append(parts)

    assert [[data for mode, data in parts if mode == "custom"] for parts in streams] == [["charging", "charged"], []]
    assert ["tools" in data for mode, data in streams[1] if mode == "updates"] == [False, True, False]
    assert effects.count == 1


# --- nodes and tasks ---


class Order(TypedDict, total=False):
    """The state of a graph without a model."""

    user_id: str
    task_id: str
    step: str
    rounds: int
    receipts: Annotated[list[Any], operator.add]


def one_node(asking: Asking, body: Any, **more: Any) -> Any:
    """A graph of one node, in both colours."""

    async def abody(state: Order) -> Any:
        return await body(state)

    graph = StateGraph(Order)
    graph.add_node("charge", abody if asking.colour.awaits else body, **more)
    graph.add_edge(START, "charge")
    return graph.compile(checkpointer=asking.saver)


ORDER: Any = {"user_id": "u1", "task_id": "t9", "step": "charge", "receipts": []}


@pytest.mark.requirement("D75")
@pytest.mark.fault("langchain-node-is-another-call")
@pytest.mark.parametrize("gated", [True, False])
def test_a_retried_node_has_its_effect_once(asking: Asking, open_gate: Gates, effects: Effects, gated: bool) -> None:
    """
    The framework repeats, the key makes that harmless; one without the other charges twice.
    """
    once, entered = NodeGate(open_gate()), Effects()

    def fail() -> None:
        if entered.count == 1:
            raise ConnectionError("after the effect, before the node returned")

    def body(state: Order) -> Any:
        entered()
        receipt = once.call("charge", {"order": state["task_id"]}, effects) if gated else effects()
        fail()
        return {"receipts": [receipt]}

    async def abody(state: Order) -> Any:
        entered()
        receipt = await once.acall("charge", {"order": state["task_id"]}, effects) if gated else effects()
        fail()
        return {"receipts": [receipt]}

    graph = one_node(asking, abody if asking.colour.awaits else body, retry_policy=AGAIN)

    result = asking.ask(graph, ORDER)

    assert entered.count == 2
    assert effects.count == (1 if gated else 2)
    assert result["receipts"] == [{"number": 1 if gated else 2}]


@pytest.mark.parametrize("policy", [AGAIN._replace(retry_on=RetryPolicy().retry_on), AGAIN])
def test_a_call_in_doubt_is_not_retried_by_the_node(
    asking: Asking, open_gate: Gates, effects: Effects, policy: RetryPolicy
) -> None:
    """The first failure is the tool's; the next entry is refused, and by default LangGraph does not repeat that."""
    once = NodeGate(open_gate())

    def failing() -> None:
        effects()
        raise ConnectionError("no answer came")

    def body(state: Order) -> Any:
        return once.call("charge", state["task_id"], failing)

    async def abody(state: Order) -> Any:
        return await once.acall("charge", state["task_id"], failing)

    graph = one_node(asking, abody if asking.colour.awaits else body, retry_policy=policy)

    with pytest.raises(InDoubt):
        asking.ask(graph, ORDER)

    assert effects.count == 1


def test_equal_calls_in_one_body_are_several_and_each_happens_once(
    asking: Asking, open_gate: Gates, effects: Effects
) -> None:
    """A loop over equal items charges each; when the body is entered again, each is found."""
    once, entered = NodeGate(open_gate()), Effects()

    def end(receipts: list[Any]) -> Any:
        entered()
        if entered.count == 1:
            raise ConnectionError
        return {"receipts": receipts}

    def body(state: Order) -> Any:
        return end([once.call("charge", 5, effects) for _ in range(3)])

    async def abody(state: Order) -> Any:
        return end(await asyncio.gather(*(once.acall("charge", 5, effects) for _ in range(3))))

    graph = one_node(asking, abody if asking.colour.awaits else body, retry_policy=AGAIN)

    result = asking.ask(graph, ORDER)

    assert sorted(receipt["number"] for receipt in result["receipts"]) == [1, 2, 3]
    assert (entered.count, effects.count) == (2, 3)


def test_a_loop_of_the_body_meets_its_own_failure(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """A call that came to no answer keeps its number: trying again in the same body is the same call."""
    once = NodeGate(open_gate())

    def body(state: Order) -> Any:
        for _ in range(3):
            with suppress(TimeoutError, InDoubt):
                once.call("charge", 5, effects.failing)

    async def abody(state: Order) -> Any:
        for _ in range(3):
            with suppress(TimeoutError, InDoubt):
                await once.acall("charge", 5, effects.failing)

    asking.ask(one_node(asking, abody if asking.colour.awaits else body), ORDER)

    assert effects.count == 1


def test_a_node_that_is_due_again_acts_again(open_gate: Gates, effects: Effects) -> None:
    """A graph with a loop comes to the same node with the same arguments: that is another call."""
    asking = Asking(Colour("sync"))
    once = NodeGate(AgentGate("memory://", scope="test:agents"))

    def body(state: Order) -> Any:
        return {"receipts": [once.call("charge", 5, effects)], "rounds": state.get("rounds", 0) + 1}

    graph = StateGraph(Order)
    graph.add_node("charge", body)
    graph.add_edge(START, "charge")
    graph.add_conditional_edges("charge", lambda state: "charge" if state["rounds"] < 3 else "__end__")

    asking.ask(graph.compile(checkpointer=asking.saver), ORDER)

    assert effects.count == 3


def test_an_interrupted_node_does_not_repeat_what_came_before(
    asking: Asking, open_gate: Gates, effects: Effects
) -> None:
    """LangGraph enters the body again from its first line: what was gated is replayed."""
    once = NodeGate(open_gate())

    def body(state: Order) -> Any:
        receipt = once.call("charge", 5, effects)
        return {"receipts": [receipt, interrupt("is that all?")]}

    async def abody(state: Order) -> Any:
        receipt = await once.acall("charge", 5, effects)
        return {"receipts": [receipt, interrupt("is that all?")]}

    graph = one_node(asking, abody if asking.colour.awaits else body)

    asking.ask(graph, ORDER)
    result = asking.ask(graph, Command(resume="yes"))

    assert result["receipts"] == [{"number": 1}, "yes"]
    assert effects.count == 1


def test_a_task_of_the_functional_api_has_its_effect_once(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """The task is entered again by its retry policy; after that, LangGraph keeps its result itself."""
    once, entered = NodeGate(open_gate()), Effects()
    retried_task: Any = task(retry_policy=AGAIN)

    def fail() -> None:
        if entered.count == 1:
            raise ConnectionError

    if asking.colour.awaits:

        @retried_task
        async def charge(order: str) -> Any:
            entered()
            receipt = await once.acall("charge", order, effects)
            fail()
            return receipt

        @entrypoint(checkpointer=asking.saver)
        async def flow(order: str) -> Any:
            return await charge(order)

    else:

        @retried_task
        def charge(order: str) -> Any:
            entered()
            receipt = once.call("charge", order, effects)
            fail()
            return receipt

        @entrypoint(checkpointer=asking.saver)
        def flow(order: str) -> Any:
            return charge(order).result()

    assert asking.ask(flow, "42") == {"number": 1}
    assert (entered.count, effects.count) == (2, 1)


def test_a_node_needs_a_run_as_well(asking: Asking, open_gate: Gates, effects: Effects) -> None:
    """Without a checkpointer: an error; with one that may lose its word: a warning; with a key: neither."""
    once = NodeGate(open_gate(keyed=Tool("keyed", key="{user_id}:{task_id}:{step}")))
    tool = "charge"

    def body(state: Order) -> Any:
        return {"receipts": [once.call(tool, {**ORDER, "receipts": None}, effects)]}

    async def abody(state: Order) -> Any:
        return {"receipts": [await once.acall(tool, {**ORDER, "receipts": None}, effects)]}

    saved = one_node(asking, abody if asking.colour.awaits else body)
    asking.saver = None  # type: ignore[assignment]
    unsaved = one_node(asking, abody if asking.colour.awaits else body)

    with pytest.raises(ConfigurationError, match="no checkpointer"):
        asking.ask(unsaved, ORDER)
    assert effects.count == 0
    with pytest.warns(UserWarning, match="durability='async'"):
        asking.ask(saved, ORDER, durability=None)
    assert effects.count == 1
    tool = "keyed"
    results = [
        asking.ask(graph, ORDER, thread=thread)["receipts"] for graph, thread in ((unsaved, None), (saved, "t2"))
    ]
    assert results == [[{"number": 2}]] * 2


# --- the fourth document's retry policy ---

POLICY = RetryPolicy(initial_interval=0.5, backoff_factor=2.0, max_interval=30.0, max_attempts=3, jitter=True)


@pytest.mark.requirement("D72")
def test_the_documents_policy_retries_a_node_and_the_key_comes_from_its_state(
    asking: Asking, open_gate: Gates, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    0.5 s, times 2, at most 30 s, 3 attempts, with jitter; the key is user, task and step, and the provider is sent the
    same one in every attempt.
    """
    once, sent = NodeGate(open_gate(charge=Tool("keyed", key="{user_id}:{task_id}:{step}"))), []

    def charge() -> Any:
        operation = current_operation()
        assert operation is not None
        sent.append(operation.downstream_key())
        if len(sent) < 3:
            raise ConnectionError("no answer came")
        return effects()

    def body(state: Order) -> Any:
        return {"receipts": [once.call("charge", {**state, "receipts": None}, charge)]}

    async def abody(state: Order) -> Any:
        return {"receipts": [await once.acall("charge", {**state, "receipts": None}, charge)]}

    pauses = pauses_of(monkeypatch)
    graph = one_node(asking, abody if asking.colour.awaits else body, retry_policy=POLICY)

    asking.ask(graph, ORDER)
    asking.ask(graph, ORDER, thread="t2")

    assert (len(sent), len(set(sent)), effects.count) == (3, 1, 1)
    assert len(pauses) == 2


def pauses_of(monkeypatch: pytest.MonkeyPatch, chance: float | None = None) -> list[float]:
    """The pauses that LangGraph makes, without making them."""
    _retry: Any = import_module("langgraph.pregel._retry")
    pauses: list[float] = []

    async def no_pause(seconds: float) -> None:
        pauses.append(seconds)

    asyncio = SimpleNamespace(**{**vars(_retry.asyncio), "sleep": no_pause})
    monkeypatch.setattr(_retry, "asyncio", asyncio)
    monkeypatch.setattr(_retry, "time", SimpleNamespace(**{**vars(_retry.time), "sleep": pauses.append}))
    if chance is not None:
        drawn = SimpleNamespace(uniform=lambda low, high: low + (high - low) * chance)
        monkeypatch.setattr(_retry, "random", drawn)
    return pauses


@pytest.mark.requirement("D72")
@pytest.mark.parametrize(("chance", "expected"), [(0.0, [0.5, 1.0]), (1.0, [1.5, 2.0])])
def test_langgraphs_jitter_is_not_full_jitter(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, chance: float, expected: list[float]
) -> None:
    """
    A correction: its pause is the interval plus up to a second, and never less than the interval. Full jitter would be
    anything from 0 up to the interval.
    """
    pauses = pauses_of(monkeypatch, chance)

    def body(state: Order) -> Any:
        raise ConnectionError("no answer came")

    async def abody(state: Order) -> Any:
        raise ConnectionError("no answer came")

    graph = one_node(asking, abody if asking.colour.awaits else body, retry_policy=POLICY)
    with pytest.raises(ConnectionError):
        asking.ask(graph, ORDER)

    assert pauses == expected


EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "agents"


@pytest.mark.requirement("D72")
def test_the_policy_is_given_under_the_name_that_a_version_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """`retry` in LangGraph 0.2, `retry_policy` later: the example looks at what is installed."""
    pauses_of(monkeypatch)
    retried = runpy.run_path(str(EXAMPLES / "langgraph_node.py"))["retried"]

    def add_node_of_0_2(self: Any, node: Any, action: Any = None, *, retry: Any = None) -> None: ...

    assert retried(POLICY) == {"retry_policy": POLICY}
    assert retried(POLICY, add_node_of_0_2) == {"retry": POLICY}


# --- which versions ---


def test_a_version_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its import fails in words of its own."""
    monkeypatch.setattr(_requirements, "version", lambda package: "0.6.11")

    with pytest.raises(
        ImportError, match=r"langgraph 1\.1\.5 or later, and 0\.6\.11 is installed.*onceward\[langchain\]"
    ):
        _requirements.require("langgraph", "1.1.5", "langchain")

    assert version("langgraph")
