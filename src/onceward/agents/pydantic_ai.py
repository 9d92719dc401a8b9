# ruff: noqa: E402 - whether the framework is there is checked before it is imported
"""
Pydantic AI: a capability that makes every tool call of an agent happen once.

    gate = AgentGate("sqlite:///agent.db", scope="live:acme", tools={"search": Tool("read-only")})
    agent = Agent(model, tools=[charge, search], capabilities=[Onceward(gate)])
    result = await agent.run("Charge order 42", conversation_id="order-42")

It wraps the agent's tools themselves and not their hooks, because hooks of other capabilities may make a result of an
error, or ask for a retry after the tool has had its effect. So what is stored is what the tool did, other capabilities
do what they do with a replay as well, and one of them that calls a tool again finds the record.

A run is one prompt of a conversation, so the conversation's id must be the same after a crash: give `conversation_id=`,
or resume with `message_history=`. Or the application names the run: `Onceward(gate, run=lambda ctx: ctx.deps.order)`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final
from uuid import UUID, uuid5

from onceward._core.key_derivation import input_hash
from onceward.agents._requirements import require
from onceward.agents.agent_gate import AgentGate
from onceward.agents.agent_run import CallNumbers
from onceward.agents.doubted_calls import number_past_doubt
from onceward.agents.framework import FailedResult, Framework, NotKept
from onceward.agents.model_text import ForModel
from onceward.agents.tool_call import PastCall, ToolCall, check_run
from onceward.agents.tools import Tool, declared_tool, tool_from_annotations

require("pydantic-ai-slim", "2.16", "pydantic-ai")

from pydantic import TypeAdapter, ValidationError
from pydantic_ai import RunContext, ToolReturn
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    tool_return_content_ta,
    tool_return_ta,
)
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

METADATA: Final = "onceward"
"""Where a tool's metadata says what it is: `@agent.tool(metadata={"onceward": Tool("keyed")})`."""

_RETURN: TypeAdapter[ToolReturn[Any]] = TypeAdapter(ToolReturn)
_OURS = UUID("8a3e2c54-5a0f-4b8e-9f3c-0d3f6f1f7b51")
_NOT_RUN = frozenset({-32700, -32600, -32601, -32602})
"""Errors of MCP by which a server says that it did not take the call."""


class NoAnswer(FailedResult):
    """The framework asked the model to retry, because a tool took too long or its server could not be reached."""


def _dump(result: Any) -> Any:
    """As the framework itself stores it with its messages: files are kept, models and dataclasses become plain."""
    try:
        if isinstance(result, ToolReturn):
            return {"return": _RETURN.dump_python(result, mode="json", by_alias=True)}
        return {"content": tool_return_ta.dump_python(result, mode="json", by_alias=True)}
    except (PydanticSerializationError, ValueError, TypeError):
        return NotKept(result)  # It happened; the framework says what is wrong with its result.


def _load(dumped: Any, call: ToolCall) -> Any:
    """What the framework reads from stored messages, for the first answer and for every replay."""
    if "return" in dumped:
        return _RETURN.validate_json(to_json(dumped["return"]))
    return tool_return_content_ta.validate_json(to_json(dumped["content"]))


FRAMEWORK: Final = Framework(
    "pydantic-ai",
    dump=_dump,
    load=_load,
    # A tool that asks for a retry, or says that it failed, has answered.
    control_flow=(CallDeferred, ApprovalRequired, ModelRetry, ToolRetryError, ToolFailed, ToolFailedError),
)


class Onceward(AbstractCapability[Any]):
    """
    Every tool call happens once: `Agent(..., capabilities=[Onceward(gate)])`.

    `run` names the piece of work: a text, or a function of the `RunContext`. Without it, a run is one prompt of the
    conversation. With `trust_annotations`, what MCP servers say of their tools is believed.
    """

    def __init__(
        self,
        gate: AgentGate,
        run: str | Callable[[RunContext[Any]], str] | None = None,
        *,
        trust_annotations: bool = False,
    ) -> None:
        self.gate, self.run = gate, check_run(run) if isinstance(run, str) else run
        self._trust = trust_annotations
        self._nested = CallNumbers()

    def get_ordering(self) -> CapabilityOrdering:
        """Right around the tools, so that whatever calls one again finds the record."""
        return CapabilityOrdering(position="innermost")

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """A copy for this run of the agent, which numbers calls that are in no message."""
        mine = copy.copy(self)
        mine._nested = CallNumbers()
        return mine

    def get_default_conversation_id(self, run_id: str) -> str:
        """The id of a conversation that was given none: made from the run's, so that it is known for one."""
        return str(uuid5(_OURS, run_id))

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """The agent's tools, behind the gate."""
        return _GatedToolset(toolset, self)

    def declared(self, tool: ToolsetTool[Any]) -> Tool | None:
        """What is said where a tool is defined: in its metadata, by our decorator, or by its server."""
        metadata = tool.tool_def.metadata or {}
        said = metadata.get(METADATA)
        if isinstance(said, Tool):
            return said
        return declared_tool(_function(tool)) or (
            tool_from_annotations(metadata.get("annotations")) if self._trust else None
        )

    async def identify(
        self, name: str, arguments: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any], said: Tool
    ) -> ToolCall:
        """Which call this is, from the messages so far."""
        start, prompt = _prompt(ctx.messages)
        if self.run is None:
            self._warn_of_new_conversation(ctx)
            run = f"{ctx.conversation_id}/{prompt}"
        else:
            run = self.run if isinstance(self.run, str) else check_run(self.run(ctx))
            start = 0
        history = list(_answers(ctx.messages[start:]))
        id = ctx.tool_call_id
        at = next((turn for turn in reversed(range(len(history))) if id in history[turn].calls), None)
        if at is None or id is None:
            return self._identify_nested(run, name, arguments, id)
        asked = history[at].calls[id].args_as_dict()
        if ctx.tool_call_approved and _changed(asked, arguments, ctx, tool):
            # Approved with other arguments than the model asked for: no message has them, so the call's id is counted.
            return ToolCall(f"{run}/{id}", name, to_jsonable_python(arguments), 0, id, at)
        equal = [answer.equal(turn, name, asked) for turn, answer in enumerate(history)]
        call = ToolCall(run, name, asked, 0, id, at)
        return call._replace(nth=await number_past_doubt(self.gate, call, said, equal, at, _place(at, id)))

    def _identify_nested(self, run: str, name: str, arguments: dict[str, Any], id: str | None) -> ToolCall:
        """A call that no message has, because another tool makes it: numbered as they come."""
        plain = to_jsonable_python(arguments)
        number = self._nested.take((name, input_hash(plain)), id, 0)
        return ToolCall(f"{run}/nested", name, plain, number, id)

    def _warn_of_new_conversation(self, ctx: RunContext[Any]) -> None:
        if _is_new(ctx):
            warnings.warn(
                "onceward: this conversation has a new id, so a restart will not know its calls; give the agent "
                "conversation_id=... (the same after a restart), or name the run: Onceward(gate, run=...)",
                stacklevel=2,
            )


@dataclass
class _GatedToolset(WrapperToolset[Any]):
    """The tools of an agent, each call behind the gate."""

    owner: Onceward

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        gate, declared = self.owner.gate, self.owner.declared(tool)
        said = gate.tool(name, declared)
        run = partial(self.wrapped.call_tool, name, tool_args, ctx, tool)
        if not said.gated:
            return await run()
        call = await self.owner.identify(name, tool_args, ctx, tool, said)
        result = await gate.acall(call, partial(_answered, run), framework=FRAMEWORK, declared=declared)
        if isinstance(result, ForModel):
            raise ToolFailed(result.text) from result.error
        return result


async def _answered(run: Callable[[], Any]) -> Any:
    """What a tool returns. A wish for a retry is no answer if it comes from a time-out: the tool may have acted."""
    try:
        return await run()
    except (ModelRetry, ToolFailed) as error:
        if any(_is_lost(cause) for cause in _causes(error)):
            raise NoAnswer(None, str(error)) from error
        raise


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What an error came from, also if that was to be hidden (`raise ... from None`)."""
    seen = {id(error)}
    while (cause := error.__cause__ or error.__context__) is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield from cause.exceptions if isinstance(cause, BaseExceptionGroup) else (cause,)
        error = cause


def _is_lost(error: BaseException) -> bool:
    """Whether this error leaves open what happened at the other end."""
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    code = getattr(getattr(error, "error", None), "code", None)
    return type(error).__name__ in ("McpError", "MCPError") and code not in _NOT_RUN


def _function(tool: object) -> object:
    """The function behind a tool, through the toolsets around it; None for tools of servers."""
    while (inner := getattr(tool, "source_tool", None)) is not None:
        tool = inner
    return getattr(getattr(getattr(tool, "call_func", None), "__self__", None), "function", None)


def _changed(asked: dict[str, Any], arguments: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> bool:
    """Whether whoever approved a call changed what the model asked for."""
    try:
        return bool(tool.args_validator.validate_python(asked, context=ctx.validation_context) != arguments)
    except ValidationError:
        return True


# --- what the messages say ---


@dataclass(frozen=True)
class _Answer:
    """One answer of the model: its calls by id, and those that came to an answer."""

    calls: dict[str, ToolCallPart]
    done: frozenset[str]

    def equal(self, turn: int, name: str, arguments: dict[str, Any]) -> list[PastCall]:
        """The calls like this one."""
        return [
            PastCall(_place(turn, id), id in self.done)
            for id, call in self.calls.items()
            if call.tool_name == name and call.args_as_dict() == arguments
        ]


def _place(turn: int, id: str) -> str:
    """An id that is one call's: not every model makes up new ones for each answer."""
    return f"{turn}:{id}"


def _answers(messages: Sequence[ModelMessage]) -> Iterator[_Answer]:
    """The answers of the model, each with what became of its calls before the next one."""
    for at, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            calls = {part.tool_call_id: part for part in message.parts if isinstance(part, ToolCallPart)}
            yield _Answer(calls, frozenset(_successes(messages[at + 1 :])))


def _successes(messages: Sequence[ModelMessage]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, ModelResponse):
            return
        for part in message.parts:
            if isinstance(part, ToolReturnPart) and part.outcome == "success":
                yield part.tool_call_id


def _prompt(messages: Sequence[ModelMessage]) -> tuple[int, str]:
    """Where the present prompt is, and its name: what stood before it, which a shortened history still has."""
    for at in reversed(range(len(messages))):
        if _is_prompt(messages, at):
            return at, "0" if at == 0 else _mark(messages, at - 1)
    return 0, f"after-{_mark(messages, 0)}" if messages else "0"


def _is_prompt(messages: Sequence[ModelMessage], at: int) -> bool:
    """
    Whether a new piece of work begins here.

    Not with what a tool adds to its result, or somebody to a run that goes on; and not with a prompt after calls that
    were interrupted, because "go on" means those.
    """
    message = messages[at]
    if not isinstance(message, ModelRequest) or not any(isinstance(part, UserPromptPart) for part in message.parts):
        return False
    if at == 0:
        return True
    if message.run_id is not None and message.run_id == messages[at - 1].run_id:
        return False
    before = next((n for n in reversed(range(at)) if isinstance(messages[n], ModelResponse)), None)
    if before is None:
        return True
    closed = {
        part.tool_call_id
        for between in messages[before + 1 : at]
        for part in between.parts
        if isinstance(part, ToolReturnPart) and part.outcome != "interrupted"
    }
    return all(part.tool_call_id in closed for part in messages[before].parts if isinstance(part, ToolCallPart))


def _mark(messages: Sequence[ModelMessage], at: int) -> str:
    """A name for a message: its run's, or, for one that the application made itself, its place and what it says."""
    message = messages[at]
    if message.run_id is not None:
        return message.run_id
    said = [str(getattr(part, "content", None) or getattr(part, "args", "")) for part in message.parts]
    return f"{at}-{sha256(to_json(said)).hexdigest()[:16]}"


def _is_new(ctx: RunContext[Any]) -> bool:
    """Whether the framework made up the conversation's id for this run of the agent."""
    own, run_id = ctx.conversation_id, ctx.run_id
    if own is None or any(message.conversation_id == own for message in ctx.messages if message.run_id != run_id):
        return own is None
    if hasattr(AbstractCapability, "get_default_conversation_id"):
        return run_id is not None and _version(run_id) == 7 and own == str(uuid5(_OURS, run_id))
    return _version(own) == 7  # Before 2.6x nothing tells: but this is how the framework makes one up.


def _version(text: str) -> int | None:
    try:
        return UUID(text).version
    except ValueError:
        return None
