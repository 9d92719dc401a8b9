"""
OpenAI Agents SDK: every call of a function tool happens once.

    agent = Agent(name="billing", model=..., tools=gated(gate, run, [charge, search]))
    agent = gate_agent(agent, gate, run)                        # the same, for an agent that is there already

The SDK has no run that survives a crash, so the application names it: a text, or a function of the `ToolContext`, such
as `lambda ctx: ctx.context.order_id`. Equal calls are numbered from what is stored: the items that the run began with
(a session's among them), and the calls that the SDK has in its run state. Where these are not the whole story (a
session with a limit, a conversation kept by OpenAI), give `history=`: the session, items, or a function that returns
either.

Agents used as tools are not gated themselves; gate their own tools. Tools of MCP servers come from `mcp_tools`.
"""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any, TypeAlias

from onceward._core.errors import ConfigurationError, KeyMissing, NothingHappened
from onceward.agents._requirements import require
from onceward.agents.agent_gate import AgentGate
from onceward.agents.framework import FailedResult, Framework
from onceward.agents.message_history import PastMessages, arguments_of, text_of
from onceward.agents.model_text import ForModel, failure_text, timed_out_text
from onceward.agents.openai import past_messages
from onceward.agents.tool_call import PastCall, ToolCall, check_run, key_of_call, number_in_history
from onceward.agents.tools import Tool as ToolSaid
from onceward.agents.tools import declared_tool, tool_from_annotations

require("openai-agents", "0.20", "openai-agents")

from agents.mcp import MCPServer, MCPToolCustomDataContext, MCPUtil  # noqa: E402
from agents.tool import (  # noqa: E402
    CustomTool,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    maybe_invoke_function_tool_failure_error_function,
    resolve_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext  # noqa: E402

from agents import (  # noqa: E402  # After the check, which has a clearer error.
    Agent,
    ApplyPatchTool,
    ComputerTool,
    FunctionTool,
    LocalShellTool,
    ModelBehaviorError,
    RunContextWrapper,
    ShellTool,
    Tool,
    default_tool_error_function,
)

__all__ = ["gate_agent", "gated", "mcp_tools"]

Run: TypeAlias = str | Callable[[ToolContext[Any]], str]
Items: TypeAlias = Sequence[Any]
History: TypeAlias = Any
"""Items, a session, or a function of the `ToolContext` that returns either, or awaits it."""

_LOCAL = (ApplyPatchTool, ComputerTool, CustomTool, LocalShellTool, ShellTool)
_LEDGER = "_tool_invocations"
"""Where the SDK keeps the calls of a run, also in a `RunState`: what a tool can see of them, without their outputs."""
_REMEMBERED = 1_000
_reported: ContextVar[list[bool] | None] = ContextVar("onceward_mcp_errors", default=None)


def gated(
    gate: AgentGate, run: Run, tools: Iterable[Tool], *, history: History = None, trust_annotations: bool = False
) -> list[Tool]:
    """
    The same tools, behind the gate. Tools that OpenAI runs itself, and agents as tools, pass as they are.

    A tool's own `failure_error_function` is kept for failures that had no effect; where it may have had one, and where
    the tool took longer than its time-out, the model reads what stands, and not "please try again".
    """
    behind = _Gating(gate, _checked_run(run), history, trust_annotations)
    return [behind.tool(tool) for tool in tools]


def gate_agent(
    agent: Agent[Any], gate: AgentGate, run: Run, *, history: History = None, trust_annotations: bool = False
) -> Agent[Any]:
    """A copy of the agent whose tools are behind the gate. Agents that it hands over to are gated by themselves."""
    if agent.mcp_servers:
        raise ConfigurationError(
            f"the agent {agent.name!r} lists the tools of its MCP servers by itself, where they cannot be gated; give "
            "them to it as tools: Agent(tools=await mcp_tools(gate, run, servers)), without mcp_servers"
        )
    return agent.clone(tools=gated(gate, run, agent.tools, history=history, trust_annotations=trust_annotations))


async def mcp_tools(
    gate: AgentGate,
    run: Run,
    servers: Iterable[MCPServer],
    *,
    history: History = None,
    trust_annotations: bool = False,
    strict: bool = False,
) -> list[Tool]:
    """
    The tools of connected MCP servers, behind the gate.

    The SDK makes an ordinary text of a result that says `isError`; so that it is not taken for a success, the servers'
    `custom_data_extractor` is told to notice it. A server's annotations are believed with `trust_annotations` only.
    """
    watched = list(servers)
    for server in watched:
        server.custom_data_extractor = _noticing(getattr(server, "custom_data_extractor", None))
    nobody: Agent[Any] = Agent(name="onceward")
    listed = await MCPUtil.get_all_function_tools(watched, strict, RunContextWrapper(None), nobody)
    behind = _Gating(gate, _checked_run(run), history, trust_annotations)
    return [behind.tool(tool, watched=True) for tool in listed]


def _checked_run(run: Any) -> Callable[[ToolContext[Any]], str]:
    if callable(run):
        return lambda context: check_run(run(context))
    if not isinstance(run, str) or not run:
        raise ConfigurationError(
            "the OpenAI Agents SDK has no run that survives a crash: name the run after the piece of work, as in "
            "gated(gate, 'order-42', tools), or as a function: gated(gate, lambda ctx: ctx.context.order_id, tools)"
        )
    name = check_run(run)
    return lambda context: name


# --- results ---


def _dump(result: Any) -> Any:
    """As plain data. What the SDK would give the model as `str(result)`, is that text."""
    if isinstance(result, ToolOutputText | ToolOutputImage | ToolOutputFileContent):
        return result.model_dump(mode="json", exclude_none=True)
    if isinstance(result, list | tuple) and any(isinstance(one, ToolOutputText | ToolOutputImage) for one in result):
        return [_dump(one) for one in result]
    return result if _is_plain(result) else str(result)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(one) for name, one in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (str, int, float, bool)


class _InvalidArguments(NothingHappened):
    """The arguments do not fit the function, which was not entered."""

    def __init__(self, error: ModelBehaviorError) -> None:
        super().__init__(str(error))
        self.error = error


FRAMEWORK = Framework("openai-agents", dump=_dump, control_flow=(_InvalidArguments,))


# --- tools ---


class _Gating:
    """What the gated tools of one agent have in common."""

    def __init__(
        self, gate: AgentGate, run: Callable[[ToolContext[Any]], str], history: History, trust_annotations: bool
    ) -> None:
        if not hasattr(RunContextWrapper(None), _LEDGER) and history is None:
            raise ConfigurationError(
                "this version of openai-agents does not show a tool which calls its run has made; give the stored "
                "history: gated(gate, run, tools, history=session)"
            )
        self._gate, self._run, self._trust = gate, run, trust_annotations
        self._numbers = _Numbers(gate, history)

    def tool(self, tool: Tool, *, watched: bool = False) -> Tool:
        """The tool behind the gate, if it is one that this process runs."""
        if isinstance(tool, _LOCAL):
            raise ConfigurationError(
                f"{type(tool).__name__} runs here but is not a function tool, so it cannot be gated, and a retry "
                "may repeat it. If you accept that, leave it out of gated(...): tools=[*gated(gate, run, tools), "
                "the_other]"
            )
        if not isinstance(tool, FunctionTool) or getattr(tool, "_is_agent_tool", False):
            return tool
        if not watched and getattr(getattr(tool, "_tool_origin", None), "type", None) == "mcp":
            raise ConfigurationError(
                f"{tool.name} is a tool of an MCP server, whose errors look like results here; take the server's tools "
                "from: await mcp_tools(gate, run, servers)"
            )
        known = declared_tool(tool)
        if known is None and self._trust:
            known = tool_from_annotations(getattr(tool, "mcp_annotations", None))
        said = self._gate.tool(tool.qualified_name, known)
        return _GatedTool(self._gate, self._run, self._numbers, tool, known, said).tool() if said.gated else tool


class _GatedTool:
    """One function tool, and what takes its place."""

    def __init__(
        self,
        gate: AgentGate,
        run: Callable[[ToolContext[Any]], str],
        numbers: _Numbers,
        original: FunctionTool,
        declared: ToolSaid | None,
        said: ToolSaid,
    ) -> None:
        self._gate, self._run, self._numbers = gate, run, numbers
        self._original, self._declared, self._said = original, declared, said
        self._name = original.qualified_name
        # Without a handler it raises what it raises, where the SDK would give us a text about it.
        self._bare = set_function_tool_failure_error_function(copy.copy(original), None)

    def tool(self) -> FunctionTool:
        """The tool for the agent: the same but for these two."""
        tool = copy.copy(self._original)
        tool.on_invoke_tool = self.invoke
        tool.timeout_error_function = self.timed_out
        return tool

    async def invoke(self, context: ToolContext[Any], text: str) -> Any:
        """Called by the SDK."""
        arguments = arguments_of(text)
        if not isinstance(arguments, dict):
            wrong = ModelBehaviorError(f"Invalid JSON input for tool {self._original.name}: not a JSON object")
            return await self._invalid(context, wrong)
        call = await self._numbers.call(self._run(context), self._name, arguments, context, self._said)
        raises = resolve_function_tool_failure_error_function(self._original, context) is None
        try:
            result = await self._gate.acall(
                call,
                lambda: self._make(context, text),
                framework=FRAMEWORK,
                declared=self._declared,
                tell_errors=not raises,
            )
        except _InvalidArguments as invalid:
            return await self._invalid(context, invalid.error)
        except KeyMissing as missing:
            return await self._lacking(context, arguments, missing)
        except asyncio.CancelledError as error:
            return self._cancelled(call, error)
        self._numbers.came_to(call, answer=not isinstance(result, ForModel))
        if not isinstance(result, ForModel):
            return result
        return await self._words(context, result)

    async def _make(self, context: ToolContext[Any], text: str) -> Any:
        reported: list[bool] = []
        token = _reported.set(reported)
        try:
            result = await self._bare.on_invoke_tool(context, text)
        except ModelBehaviorError as error:
            raise self._looked_at(error) from error
        finally:
            _reported.reset(token)
        if reported:
            raise FailedResult(result, text_of([result] if isinstance(result, dict) else result) or "an error")
        return result

    def _looked_at(self, error: ModelBehaviorError) -> Exception:
        """The error itself; or that the arguments were invalid, if the function was never entered."""
        code = getattr(getattr(self._original, "__wrapped__", None), "__code__", None)
        if code is None or not str(error).startswith(f"Invalid JSON input for tool {self._original.name}"):
            return error
        at = error.__traceback__
        while at is not None:
            if at.tb_frame.f_code is code:
                return error
            at = at.tb_next
        return _InvalidArguments(error)

    async def _words(self, context: ToolContext[Any], told: ForModel) -> str:
        """Ours; but those of the application's own handler where the tool ran, and had no effect."""
        if told.ran and not told.in_doubt and self._has_handler(context):
            return await self._handled(context, told.error) or told.text
        return told.text

    async def _invalid(self, context: ToolContext[Any], error: ModelBehaviorError) -> str:
        """Nothing was claimed, or it was released: as the SDK would say it, without its invitation."""
        if resolve_function_tool_failure_error_function(self._original, context) is None:
            raise error
        own = await self._handled(context, error) if self._has_handler(context) else None
        return own or failure_text(self._name, self._said, error, in_doubt=False)

    async def _lacking(self, context: ToolContext[Any], arguments: dict[str, Any], missing: KeyMissing) -> str:
        """A key's template lacks an argument: the model's mistake if that is required, and ours otherwise."""
        required = self._original.params_json_schema.get("required", ())
        lacking = [name for name in required if name not in arguments]
        if not lacking:
            raise missing
        wrong = f"Invalid JSON input for tool {self._original.name}: {', '.join(lacking)} is missing"
        return await self._invalid(context, ModelBehaviorError(wrong))

    def _has_handler(self, context: ToolContext[Any]) -> bool:
        """Whether the application words its failures: with a function of the tool, or of the run."""
        own = resolve_function_tool_failure_error_function(self._original, context)
        config = context.run_config
        return own is not default_tool_error_function or (
            config is not None and config.tool_error_formatter is not None
        )

    async def _handled(self, context: ToolContext[Any], error: BaseException) -> str | None:
        """What the application's handler says; None if it leaves that to the SDK, as older versions do."""
        said = await maybe_invoke_function_tool_failure_error_function(
            function_tool=self._original, context=context, error=error
        )
        usual = default_tool_error_function(context, error) if isinstance(error, Exception) else None
        return None if said == usual else said

    def _cancelled(self, call: ToolCall, error: asyncio.CancelledError) -> str:
        """Cancelled from outside, that is passed on. A tool that cancels itself has failed, nobody knows how far."""
        task = asyncio.current_task()
        self._numbers.came_to(call, answer=False)
        if task is None or task.cancelling():
            raise error
        return failure_text(call.tool, self._said, error, in_doubt=True)

    def timed_out(self, context: RunContextWrapper[Any], error: Exception) -> str:
        """Called by the SDK when it stops waiting. The call goes on: the next equal one finds what it comes to."""
        return timed_out_text(self._name, self._said, error)


def _noticing(extractor: Any) -> Any:
    """A `custom_data_extractor` that tells us of errors, around the application's own."""
    if getattr(extractor, "__onceward__", False):
        return extractor

    async def notice(context: MCPToolCustomDataContext) -> Any:
        reported = _reported.get()
        if context.is_error and reported is not None:
            reported.append(True)
        found = None if extractor is None else extractor(context)
        return await found if isawaitable(found) else found

    notice.__onceward__ = True  # type: ignore[attr-defined]
    return notice


# --- numbers ---


class _Numbers:
    """
    The number of a call: from the stored items, then from the SDK's list of the calls of this run.

    That list has no outputs. Which of its calls came to no answer is remembered here, and for calls of another process
    (a run state that was resumed) the gate's records say it: a call in doubt came to no answer.
    """

    def __init__(self, gate: AgentGate, history: History) -> None:
        self._gate, self._history = gate, history
        self._turns: OrderedDict[tuple[str, str], object] = OrderedDict()
        self._refused: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def call(
        self, run: str, tool: str, arguments: dict[str, Any], context: ToolContext[Any], said: ToolSaid
    ) -> ToolCall:
        """This call, with its number."""
        call = ToolCall(run, tool, arguments, 0, context.tool_call_id)
        if said.key is not None:
            return call  # The key says it all.
        past = past_messages(await self._items(context))
        answers = past.equal_calls(tool, arguments)
        before: object = None
        for id, answered, turn in self._listed(run, context, past):
            number = number_in_history(answers, id)
            if answered is None:
                answered = not await self._in_doubt(call._replace(nth=number), said)
            if turn is not None and turn is before:
                answers[-1] = [*answers[-1], PastCall(id, answered)]
            else:
                answers.append([PastCall(id, answered)])
            before = turn
        return call._replace(nth=number_in_history(answers, context.tool_call_id), turn=past.turn or None)

    def came_to(self, call: ToolCall, *, answer: bool) -> None:
        """Whether this call came to an answer. If it did not, the next equal one has its number."""
        if answer:
            self._refused.pop((call.run, str(call.id)), None)
        else:
            _remember(self._refused, (call.run, str(call.id)), None)

    async def _items(self, context: ToolContext[Any]) -> Items:
        given = self._history(context) if callable(self._history) else self._history
        given = await given if isawaitable(given) else given
        if given is None:
            return context.turn_input
        if hasattr(given, "get_items"):
            items: Awaitable[Items] = given.get_items()
            return await items
        return list(given)

    def _listed(self, run: str, context: ToolContext[Any], past: PastMessages) -> list[tuple[str, bool | None, object]]:
        """Equal calls of this run that are not in the items: id, whether it has an answer, and whose turn it was."""
        listed: dict[str, Any] = getattr(context, _LEDGER, {})
        mine = listed.get(context.tool_call_id)
        equal = [] if mine is None else [(id, one) for id, one in listed.items() if one.fingerprint == mine.fingerprint]
        turn, found = object(), []
        for id, one in equal:
            if past.knows(id):
                continue
            if not one.completed and (run, id) not in self._turns:
                _remember(self._turns, (run, id), turn)
            known = self._turns.get((run, id))
            answered = None if one.completed and known is None else (run, id) not in self._refused
            found.append((id, answered, known))
        return found

    async def _in_doubt(self, call: ToolCall, said: ToolSaid) -> bool:
        record = await self._gate.awaiting.records.get(key_of_call(call, said))
        return record is not None and record.state in ("in_doubt", "claimed")


def _remember(what: OrderedDict[tuple[str, str], Any], call: tuple[str, str], value: Any) -> None:
    what[call] = value
    while len(what) > _REMEMBERED:
        what.popitem(last=False)
