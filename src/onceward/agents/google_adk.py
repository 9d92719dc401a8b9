# ruff: noqa: E402 - whether the framework is there is checked before it is imported
"""
Google ADK: a plugin that makes every tool call of an app's agents happen once.

    gate = AgentGate("sqlite:///agent.db", scope="live:acme", tools={"search": Tool("read-only")})
    app = App(name="billing", root_agent=agent, plugins=[OncewardPlugin(gate)],
              resumability_config=ResumabilityConfig(is_resumable=True))

ADK calls its plugins before a tool and after it, and nobody around it: whoever claims before must hope to be called
afterwards, and is not if another plugin or callback answers first, or if the call is cancelled. To run the tool from
the callback before it would leave out everybody else's callbacks, and the user's confirmation. So this plugin stands
where the call is made: before a tool's own `run_async`, for the calls that it has seen. What ADK, other plugins and
callbacks do around that stays as it is; a claim ends with its call, and no callback is needed for it.

A run is an invocation, which a resumable app can go on with after a crash (`run_async(invocation_id=...)`). Or the
application names it: `OncewardPlugin(gate, run=lambda context: context.state["order"])`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from onceward.agents._requirements import require
from onceward.agents.agent_gate import AgentGate
from onceward.agents.doubted_calls import number_past_doubt
from onceward.agents.framework import Framework, NotFinal, NotKept
from onceward.agents.model_text import ForModel
from onceward.agents.tool_call import PastCall, ToolCall, check_run
from onceward.agents.tools import READ_ONLY, Tool, declared_tool, tool_from_annotations

require("google-adk", "2.9", "google-adk")

from google.adk.events.event import Event
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic_core import PydanticSerializationError, to_jsonable_python

METADATA: Final = "onceward"
"""Where a tool's `custom_metadata` says what it is; and the mark of a response that has words of ours."""

_SEEN = "_onceward_plugin"
_OF_ADK = frozenset(
    f"google.adk.tools.{name}"
    for name in (
        "_request_input_tool", "exit_loop_tool", "get_user_choice_tool", "load_artifacts_tool",
        "load_mcp_resource_tool", "load_memory_tool", "preload_memory_tool", "set_model_response_tool",
        "transfer_to_agent_tool",
    )
)  # fmt: skip
"""Tools of ADK itself that steer an agent, or look something up."""


class _Answer(NamedTuple):
    """What a tool returned, and what it did to its context: state, artifacts, transfers. A replay does both."""

    result: Any
    actions: dict[str, Any]


def _dump(answer: _Answer) -> Any:
    """As plain data. Media are not kept: they may be large, and belong into artifacts."""
    if any(isinstance(value, types.Part | types.FunctionResponse) for value in _values(answer.result)):
        return NotKept(answer)
    try:
        result = to_jsonable_python(answer.result)
        if isinstance(result, dict) and not isinstance(answer.result, dict):
            result = {"result": result}  # As ADK does for what is no dict: a model of Pydantic, a dataclass.
        return {"result": result, "actions": to_jsonable_python(answer.actions)}
    except (PydanticSerializationError, ValueError, TypeError):
        return NotKept(answer)


def _values(result: Any, depth: int = 3) -> Iterator[Any]:
    yield result
    if depth and isinstance(result, dict | list | tuple):
        for value in result.values() if isinstance(result, dict) else result:
            yield from _values(value, depth - 1)


FRAMEWORK: Final = Framework(
    "google-adk",
    dump=_dump,
    load=lambda dumped, call: _Answer(dumped["result"], dumped["actions"]),
    plain=lambda value, call: _Answer(value, {}),
)


class OncewardPlugin(BasePlugin):
    """
    Every tool call happens once: `App(..., plugins=[OncewardPlugin(gate)])`.

    `run` names the piece of work: a text, or a function of the `ToolContext`. Without it, a run is an invocation. With
    `trust_annotations`, what MCP servers say of their tools is believed.
    """

    def __init__(
        self,
        gate: AgentGate,
        run: str | Callable[[ToolContext], str] | None = None,
        *,
        trust_annotations: bool = False,
        name: str = "onceward",
    ) -> None:
        super().__init__(name=name)
        self.gate, self.run = gate, check_run(run) if isinstance(run, str) else run
        self._trust = trust_annotations

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        """Say so if a restart will not know the calls of this invocation."""
        if self.run is None and not invocation_context.is_resumable:
            warnings.warn(
                "onceward: this app is not resumable, so a restart is a new invocation and will not know the calls of "
                "this one; give the App resumability_config=ResumabilityConfig(is_resumable=True) and resume with "
                "run_async(invocation_id=...), or name the run: OncewardPlugin(gate, run=...)",
                stacklevel=2,
            )

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Stand before the tool, for this call."""
        if type(tool) is not BaseTool:  # In the place of one that the model made up.
            _stand_before(tool)
            setattr(tool_context, _SEEN, self)
        return None

    def declared(self, tool: BaseTool) -> Tool | None:
        """What is said where a tool is defined: in its metadata, by our decorator, or by its server."""
        said = (tool.custom_metadata or {}).get(METADATA)
        if isinstance(said, Tool):
            return said
        function = getattr(tool, "func", None)
        if getattr(function, "__module__", None) in _OF_ADK or type(tool).__module__ in _OF_ADK:
            return Tool(READ_ONLY)
        annotations = getattr(getattr(tool, "raw_mcp_tool", None), "annotations", None)
        return declared_tool(function) or (tool_from_annotations(annotations) if self._trust else None)

    async def call(
        self, tool: BaseTool, run_async: Callable[..., Any], args: dict[str, Any], context: ToolContext
    ) -> Any:
        """Make a call once. What it returns, or words for the model."""
        declared = self.declared(tool)
        said = self.gate.tool(tool.name, declared)
        if not said.gated or tool._defers_response or _are_invalid(tool, args):
            return await run_async(args=args, tool_context=context)
        call = await self._identify(tool, args, context, said)
        work = partial(_work, tool, run_async, args, context)
        answer = await self.gate.acall(call, work, framework=FRAMEWORK, declared=declared)
        if isinstance(answer, ForModel):
            return {"error": answer.text, METADATA: answer.code}
        if isinstance(answer, _Answer):
            _act(context, answer.actions)
            return answer.result
        return answer  # Not final: as the tool returned it.

    async def _identify(self, tool: BaseTool, args: dict[str, Any], context: ToolContext, said: Tool) -> ToolCall:
        """Which call this is, from the events of the session."""
        id, events = context.function_call_id or "", context.session.events
        asked = next((event for event in reversed(events) if _call(event, tool.name, id) is not None), None)
        if self.run is None:  # ADK goes on with the same invocation, also when a confirmation comes.
            run, events = context.invocation_id, [one for one in events if one.invocation_id == context.invocation_id]
        else:
            run = self.run if isinstance(self.run, str) else check_run(self.run(context))
        made = None if asked is None else _call(asked, tool.name, id)
        call = ToolCall(run, tool.name, to_jsonable_python(args) if made is None else made.args or {}, 0, id)
        answers = [event for event in events if event.get_function_calls()]
        at = next((turn for turn, event in enumerate(answers) if event is asked), len(answers))
        done = set(_done(events))
        equal = [
            [
                PastCall(f"{turn}:{one.id}", (turn, one.id) in done)
                for one in event.get_function_calls()
                if one.name == tool.name and (one.args or {}) == call.arguments
            ]
            for turn, event in enumerate(answers)
        ]
        number = await number_past_doubt(self.gate, call, said, equal, at, f"{at}:{id}")
        return call._replace(nth=number, turn=at)


def _stand_before(tool: BaseTool) -> None:
    """Have the calls of this tool that a plugin has seen made by the plugin. Others are made as ever."""
    run_async = tool.run_async
    if getattr(run_async, _SEEN, False):
        return

    async def gated(*, args: dict[str, Any], tool_context: ToolContext) -> Any:
        plugin: OncewardPlugin | None = getattr(tool_context, _SEEN, None)
        if plugin is None:
            return await run_async(args=args, tool_context=tool_context)
        setattr(tool_context, _SEEN, None)  # What the tool calls in its turn belongs to it.
        return await plugin.call(tool, run_async, args, tool_context)

    setattr(gated, _SEEN, True)
    tool.run_async = gated  # type: ignore[method-assign]


async def _work(tool: BaseTool, run_async: Callable[..., Any], args: dict[str, Any], context: ToolContext) -> _Answer:
    """Run the tool; raises `NotFinal` where it has not acted."""
    before = _actions(context)
    result = await run_async(args=args, tool_context=context)
    if _has_not_acted(tool, context, result):
        raise NotFinal(result)
    after = _actions(context)
    return _Answer(result, {name: value for name, value in after.items() if value != before.get(name)})


def _are_invalid(tool: BaseTool, args: dict[str, Any]) -> bool:
    """Whether ADK will refuse these arguments and not call the function: such a call is not claimed."""
    if not isinstance(tool, FunctionTool) or type(tool).run_async is not FunctionTool.run_async:
        return False  # Somebody else decides, and may have other arguments to add.
    given = {*args, *tool._ignore_params}
    if any(name not in given for name in tool._get_mandatory_args()):
        return True
    check = getattr(tool, "_preprocess_args_with_validation", None)  # Later than 2.0.
    return check is not None and bool(check(args)[1])


def _has_not_acted(tool: BaseTool, context: ToolContext, result: Any) -> bool:
    """Whether a tool waits for the user's word or credentials, was refused it, or answered with an error."""
    id, actions = context.function_call_id, context.actions
    if id in actions.requested_tool_confirmations or id in actions.requested_auth_configs:
        return True
    if not isinstance(result, dict):
        return False
    if result.get("isError") or result.get("is_error"):  # Of an MCP server.
        return True
    confirmation = context.tool_confirmation
    if confirmation is not None and not confirmation.confirmed and result.keys() == {"error"}:
        return True
    # ADK answers so if it could not call the function.
    return result.keys() == {"error"} and str(result["error"]).startswith(f"Invoking `{tool.name}()` failed")


def _actions(context: ToolContext) -> dict[str, Any]:
    """What was done to the context so far, without what is still asked for."""
    asked = {"requested_auth_configs", "requested_tool_confirmations"}
    return dict(context.actions.model_dump(mode="json", exclude_defaults=True, exclude=asked))


def _act(context: ToolContext, actions: dict[str, Any]) -> None:
    """Do to the context what the tool did; the second time changes nothing."""
    if not actions:
        return
    done = type(context.actions).model_validate(actions)
    for name in actions:
        value, present = getattr(done, name), getattr(context.actions, name)
        if isinstance(value, dict) and isinstance(present, dict):
            present.update(value)
        else:
            setattr(context.actions, name, value)


def _call(event: Event, name: str, id: str) -> types.FunctionCall | None:
    """The call of this id in an event of the model."""
    return next((call for call in event.get_function_calls() if call.id == id and call.name == name), None)


def _done(events: Sequence[Event]) -> Iterator[tuple[int, str | None]]:
    """The calls that came to an answer: by the turn that asked, as not every model makes up new ids."""
    asked: dict[str | None, int] = {}
    turn = -1
    for event in events:
        if calls := event.get_function_calls():
            turn += 1
            asked.update({call.id: turn for call in calls})
        waiting = event.actions.requested_tool_confirmations.keys() | event.actions.requested_auth_configs.keys()
        for response in event.get_function_responses():
            ours = isinstance(response.response, dict) and METADATA in response.response
            if response.id in asked and response.id not in waiting and not ours:
                yield asked[response.id], response.id
