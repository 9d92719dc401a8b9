"""
Anthropic's tool runner, and loops of your own over its Messages API: every tool call happens once.

    tools = gated(gate, "order-42", [charge, search], messages)
    client.beta.messages.tool_runner(model=..., max_tokens=..., messages=messages, tools=tools)

    messages.append({"role": "user", "content": tool_results(gate, "order-42", messages, {"charge": charge})})

The runner gives a tool no id, so its equal calls are numbered in their order, after those in the messages that the
runner starts with. Make a new list for every runner. `messages` is what a restart finds: the question alone, or what
you have saved. A loop of your own has the ids, and takes the numbers from its messages (`atool_results` awaits).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from onceward._core.errors import ConfigurationError
from onceward.agents._requirements import require
from onceward.agents.agent_gate import AgentGate
from onceward.agents.agent_run import AgentRun
from onceward.agents.message_history import PastMessages, field
from onceward.agents.own_loop import Functions, calls_to_make
from onceward.agents.tools import Tool, declared_tool

require("anthropic", "2.8", "anthropic")

from anthropic.lib.tools import (  # noqa: E402  # After the check, which has a clearer error.
    BetaAsyncBuiltinFunctionTool,
    BetaAsyncFunctionTool,
    BetaAsyncRunnableToolset,
    BetaBuiltinFunctionTool,
    BetaFunctionTool,
    BetaRunnableToolset,
)

from onceward.agents.anthropic_parts import FRAMEWORK  # noqa: E402
from onceward.agents.anthropic_tool import GatedTool  # noqa: E402
from onceward.agents.anthropic_tool_async import AsyncGatedTool  # noqa: E402

__all__ = ["atool_results", "gated", "past_messages", "tool_results"]

# --- the tool runner ---


def gated(gate: AgentGate, run: str | AgentRun, tools: Iterable[Any], messages: Sequence[Any] = ()) -> list[Any]:
    """
    The tools of one runner, behind the gate: function tools of both colours, builtin tools and memory.

    `messages` are those that the runner starts with. An `AgentRun` may be given instead of a name, by whoever calls its
    `delivered()` after each save; it takes no numbers from messages. Definitions without a function pass as they are.
    """
    numbers = run if isinstance(run, AgentRun) else _RunFromMessages(gate, run, messages)
    return [_gated(gate, numbers, tool) for tool in tools]


def _gated(gate: AgentGate, run: AgentRun, tool: Any) -> Any:
    if isinstance(tool, BetaFunctionTool | BetaBuiltinFunctionTool):
        known = _declared(tool)
        return GatedTool(run, tool, known) if gate.tool(tool.name, known).gated else tool
    if isinstance(tool, BetaAsyncFunctionTool | BetaAsyncBuiltinFunctionTool):
        known = _declared(tool)
        return AsyncGatedTool(run, tool, known) if gate.tool(tool.name, known).gated else tool
    if isinstance(tool, BetaRunnableToolset | BetaAsyncRunnableToolset):
        raise ConfigurationError(
            f"{type(tool).__name__} runs several actions in one call and cannot be gated, so a retry may repeat "
            "them. If you accept that, leave it out of gated(...): tools=[*gated(gate, run, tools, messages), toolset]"
        )
    return tool


def _declared(tool: Any) -> Tool | None:
    return declared_tool(getattr(tool, "func", tool))


class _RunFromMessages(AgentRun):
    """A run whose first numbers come from the messages that its runner starts with."""

    def __init__(self, gate: AgentGate, run: str, messages: Sequence[Any]) -> None:
        super().__init__(gate, run)
        self._past = past_messages(messages)

    def _before(self, tool: str, arguments: Any) -> int:
        return self._past.number(None, tool, arguments)

    async def _abefore(self, tool: str, arguments: Any) -> int:
        return self._past.number(None, tool, arguments)


# --- a loop of your own ---


def tool_results(
    gate: AgentGate, run: str, messages: Sequence[Any], functions: Functions, *, tell_errors: bool = True
) -> list[dict[str, Any]]:
    """
    Make the calls of the last answer that have no result yet: the blocks of the next message.

    What a function raises is told to the model in words of ours; with `tell_errors=False` it is raised.
    """
    calls = calls_to_make(gate, run, past_messages(messages), functions, FRAMEWORK, tell_errors=tell_errors)
    return [_block(call.wanted.id, call.made()) for call in calls]


async def atool_results(
    gate: AgentGate, run: str, messages: Sequence[Any], functions: Functions, *, tell_errors: bool = True
) -> list[dict[str, Any]]:
    """Make the calls of the last answer that have no result yet, awaiting them: as `tool_results`."""
    calls = calls_to_make(gate, run, past_messages(messages), functions, FRAMEWORK, tell_errors=tell_errors)
    return [_block(call.wanted.id, await call.amade()) for call in calls]


def _block(id: str, told: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": id, "content": told.content}
    return block | {"is_error": True} if told.failed else block


def past_messages(messages: Sequence[Any]) -> PastMessages:
    """The calls in messages of the Messages API; dicts, or the SDK's objects."""
    past = PastMessages()
    for message in messages:
        past.next_turn()
        content = field(message, "content")
        for block in content if isinstance(content, list | tuple) else ():
            kind = field(block, "type")
            if kind == "tool_use" and field(block, "toolset_name") is None:
                past.called(field(block, "id"), field(block, "name"), field(block, "input"))
            elif kind == "tool_result":
                past.answered(field(block, "tool_use_id"), result=field(block, "is_error") is not True)
    return past
