"""
LangChain and LangGraph: tool calls, and calls in nodes, that happen once.

    agent = create_agent(model, tools, middleware=[OncewardMiddleware(gate)], checkpointer=saver)
    agent.invoke(question, {"configurable": {"thread_id": "t1"}}, durability="sync")

    node = ToolNode(tools, **tool_wrappers(gate))         # a graph of your own

    once = NodeGate(gate)                                 # a node, or a @task, without a model
    once.call("charge", {"order": state["order"]}, lambda: charge(state["order"]))

A run is what the user asked for on a thread: the checkpointer keeps both, if `durability="sync"`. Or name it: `run=` is
a text, or a function of the `ToolCallRequest` (in a `NodeGate`, of the `Runtime`).
"""

# ruff: noqa: E402  # Whether the frameworks are there is asked before they are imported.

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

from onceward.agents._requirements import require

require("langchain", "1.2.15", "langchain")
require("langgraph", "1.1.5", "langchain")

from langchain.agents.middleware import AgentMiddleware
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import get_runtime

from onceward._core.errors import ConfigurationError
from onceward._core.key_derivation import input_hash
from onceward.agents._langchain_runs import NodeNumbers, Run, RunSource
from onceward.agents._langchain_tools import Result, ToolCalls
from onceward.agents.agent_gate import AgentGate
from onceward.agents.framework import Framework
from onceward.agents.model_text import ForModel
from onceward.agents.tool_call import ToolCall
from onceward.agents.tools import Tool, declared_tool

__all__ = ["NodeGate", "OncewardMiddleware", "ToolWrappers", "tool_wrappers"]


class OncewardMiddleware(AgentMiddleware[Any, Any]):
    """
    Every tool call of an agent happens once. Put it last, next to the tools.

    What a tool raises is raised, as without it; with `tell_errors`, the model reads it and the agent goes on.
    `trust_annotations` believes what an MCP server says of its tools (their `metadata`).
    """

    def __init__(
        self, gate: AgentGate, run: Run = None, *, tell_errors: bool = False, trust_annotations: bool = False
    ) -> None:
        super().__init__()
        self._calls = ToolCalls(
            gate, run, messages_key="messages", tell_errors=tell_errors, trust_annotations=trust_annotations
        )

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]) -> Result:
        """Make a tool call once."""
        return self._calls.wrap(request, handler)  # type: ignore[no-any-return]

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Make a tool call once, awaiting it."""
        return await self._calls.awrap(request, handler)  # type: ignore[no-any-return]


class ToolWrappers(TypedDict):
    """What `ToolNode` takes to have its calls wrapped, in both colours: with one alone, it would block its loop."""

    wrap_tool_call: Callable[[ToolCallRequest, Callable[[ToolCallRequest], Result]], Any]
    awrap_tool_call: Callable[[ToolCallRequest, Callable[[ToolCallRequest], Awaitable[Result]]], Awaitable[Any]]


def tool_wrappers(
    gate: AgentGate,
    run: Run = None,
    *,
    messages_key: str = "messages",
    tell_errors: bool = False,
    trust_annotations: bool = False,
) -> ToolWrappers:
    """
    For `ToolNode(tools, **tool_wrappers(gate))`: every tool call of the node happens once.

    Where `handle_tool_errors` of the node names types, say `tell_errors=True` as well: LangGraph makes texts of its own
    of whatever a wrapper raises then, and those ask the model to try again.
    """
    calls = ToolCalls(
        gate, run, messages_key=messages_key, tell_errors=tell_errors, trust_annotations=trust_annotations
    )
    return {"wrap_tool_call": calls.wrap, "awrap_tool_call": calls.awrap}


_NODES = Framework("langgraph", control_flow=(GraphBubbleUp,))


class NodeGate:
    """
    Calls in nodes and tasks that happen once, also if the body is entered again: by a retry, a resume, an interrupt.

    No model reads what these come to, so a refusal is raised (`InDoubt`, `KeyReused`, ...); LangGraph retries none.
    With `run=`, an equal call anywhere in that run is the same call, unless both are in one body.
    """

    def __init__(self, gate: AgentGate, run: Run = None) -> None:
        self._gate = gate
        self._runs, self._numbers = RunSource(run), NodeNumbers()

    def call(self, name: str, arguments: Any, fn: Callable[[], Any]) -> Any:
        """Make a call once, in this task. `arguments` are what it is about: equal ones are the same call."""
        declared = declared_tool(fn)
        if not self._gate.tool(name, declared).gated:
            return fn()
        with self._place(name, arguments, declared) as call:
            return _result(self._gate.call(call, fn, framework=_NODES, declared=declared))

    async def acall(self, name: str, arguments: Any, fn: Callable[[], Any]) -> Any:
        """Make a call once, in this task, awaiting it. `fn` may return something to await, or a result."""
        declared = declared_tool(fn)
        if not self._gate.tool(name, declared).gated:
            return await self._gate.aungated(fn)
        with self._place(name, arguments, declared) as call:
            return _result(await self._gate.acall(call, fn, framework=_NODES, declared=declared))

    @contextmanager
    def _place(self, name: str, arguments: Any, declared: Tool | None) -> Iterator[ToolCall]:
        """The call's place in its run; it is free for the next equal call if this comes to no answer."""
        runtime = get_runtime()
        info = runtime.execution_info
        if info is None:
            raise ConfigurationError("NodeGate.call works only inside a node or task of a running graph")
        run = self._runs.named(runtime)
        if run is None:
            keyed = self._gate.tool(name, declared).key is not None  # Then the run is for people only.
            run = info.thread_id or "" if keyed else self._runs.of_task(info, get_config())
        numbers, identity = self._numbers.of(info), (name, input_hash(arguments))
        call = ToolCall(run, name, arguments, numbers.take(identity, None, 0))
        try:
            yield call
        except GeneratorExit:
            raise  # Garbage is collected anywhere: no lock is taken then.
        except BaseException:
            numbers.free(identity, call.nth)
            raise


def _result(result: Any) -> Any:
    if isinstance(result, ForModel):
        raise result.error
    return result
