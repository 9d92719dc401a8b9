"""
Tool calls of LangChain and LangGraph through the gate: the two wrappers that middleware and `ToolNode` have in common.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph import errors as langgraph_errors
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command
from pydantic import BaseModel, ValidationError

from onceward._core.canonical import canonical
from onceward._core.errors import RequestInvalid
from onceward.agents._langchain_results import LANGCHAIN, error_in
from onceward.agents._langchain_runs import Run, RunSource, since_asked
from onceward.agents._langchain_watch import WatchedTool
from onceward.agents.agent_gate import AgentGate
from onceward.agents.framework import FailedResult, NotFinal
from onceward.agents.model_text import ForModel
from onceward.agents.tool_call import PastCall, ToolCall, number_in_history
from onceward.agents.tools import Tool, declared_tool, tool_from_annotations

Result: TypeAlias = ToolMessage | Command[Any]

# It is there since an interrupt may have a schema for its answer.
_is_invalid_resume: Callable[[BaseException], bool] = getattr(
    langgraph_errors, "is_invalid_resume", lambda error: False
)


class _Raise:
    """In the place of a result: an error that leaves the key free, and is raised."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Attempt:
    """One tool call on its way through the gate and the framework."""

    def __init__(self, request: ToolCallRequest, call: ToolCall, said: Tool) -> None:
        self.call = call
        self._watched = None if request.tool is None else WatchedTool(request.tool, said, call)
        self.request = request if self._watched is None else request.override(tool=cast(BaseTool, self._watched))
        self._escaped: BaseException | None = None
        self._result: Any = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around the framework: what it lets escape is to be raised to it again, and not told."""
        try:
            yield
        except Exception as error:
            if _is_invalid_resume(error):
                raise NotFinal(_Raise(error)) from error
            self._escaped = error
            raise

    def returned(self, result: Any) -> Any:
        """The framework's result, or the error that it has made a text of."""
        failed = error_in(result)
        if failed is None:
            self._result = result
            return result
        if self._watched is None:  # No such tool, most likely: nobody has run it.
            raise NotFinal(result)
        raised = self._watched.raised
        raise FailedResult(result, str(failed.text)) if raised is None else raised

    def came_to(self, result: Any, *, tell_errors: bool) -> Any:
        """What the framework is given: the result, words for the model in its form, or the tool's own error."""
        if isinstance(result, _Raise):
            raise result.error
        if isinstance(result, ForModel):
            if result.error is self._escaped and not tell_errors:
                raise result.error
            return ToolMessage(result.text, status="error", tool_call_id=self.call.id or "", name=self.call.tool)
        mine = self._result
        if mine is None or (isinstance(mine, ToolMessage) and mine.content != result.content):
            return result
        return mine  # It ran now: the very object, with all that a record does not keep.


class ToolCalls:
    """Gated tool calls of one agent."""

    def __init__(
        self, gate: AgentGate, run: Run, *, messages_key: str, tell_errors: bool, trust_annotations: bool
    ) -> None:
        self._gate, self._messages_key = gate, messages_key
        self._tell_errors, self._trust_annotations = tell_errors, trust_annotations
        self._runs = RunSource(run)

    def wrap(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]) -> Any:
        """Make a tool call once."""
        declared = self._declared(request.tool)
        attempt = self._attempt(request, declared)
        if attempt is None:
            return handler(request)

        def run() -> Any:
            with attempt.watching():
                result = handler(attempt.request)
            return attempt.returned(result)

        result = self._gate.call(attempt.call, run, framework=LANGCHAIN, declared=declared, tell_errors=True)
        return attempt.came_to(result, tell_errors=self._tell_errors)

    async def awrap(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]) -> Any:
        """Make a tool call once, awaiting it."""
        declared = self._declared(request.tool)
        attempt = self._attempt(request, declared)
        if attempt is None:
            return await handler(request)

        async def run() -> Any:
            with attempt.watching():
                result = await handler(attempt.request)
            return attempt.returned(result)

        result = await self._gate.acall(attempt.call, run, framework=LANGCHAIN, declared=declared, tell_errors=True)
        return attempt.came_to(result, tell_errors=self._tell_errors)

    def _attempt(self, request: ToolCallRequest, declared: Tool | None) -> _Attempt | None:
        """The call, to be gated; None if it is to be left to the framework."""
        said = self._gate.tool(request.tool_call["name"], declared)
        if not said.gated or (request.tool is not None and _are_invalid(request.tool, request.tool_call["args"])):
            return None
        return _Attempt(request, self._place(request, said), said)

    def _place(self, request: ToolCallRequest, said: Tool) -> ToolCall:
        """The call's place in its run, from the stored messages."""
        wanted, messages = request.tool_call, _messages(request.state, self._messages_key)
        run = self._runs.named(request)
        if run is None:
            asked, messages = since_asked(messages)
            if said.key is None:
                run = self._runs.of_messages(request.runtime.execution_info, request.runtime.config, asked)
            else:
                info = request.runtime.execution_info  # The tool's own key is the key: this is for people.
                run = (info and info.thread_id) or ""
        stored = _stored_call(messages, wanted)
        answers = _answers(messages, stored)
        arguments = (stored if said.key is None else wanted)["args"]
        nth = number_in_history(answers, wanted["id"])
        return ToolCall(run, wanted["name"], arguments, nth, wanted["id"], len(answers))

    def _declared(self, tool: BaseTool | None) -> Tool | None:
        """What the tool says of itself: with our decorator, or by annotations that are trusted."""
        if tool is None:
            return None
        for function in (getattr(tool, "func", None), getattr(tool, "coroutine", None), type(tool)._run, type(tool)):
            said = declared_tool(function)
            if said is not None:
                return said
        return tool_from_annotations(tool.metadata) if self._trust_annotations else None


def _messages(state: Any, key: str) -> Sequence[Any]:
    if isinstance(state, list):
        return state
    found = state.get(key) if isinstance(state, dict) else getattr(state, key, None)
    return found if isinstance(found, list) else []


def _stored_call(messages: Sequence[Any], wanted: Any) -> Any:
    """The call as the model made it: middleware farther out may have rewritten its arguments, and two into the same."""
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            for past in message.tool_calls:
                if past["id"] == wanted["id"] and past["name"] == wanted["name"]:
                    return past
    return wanted


def _answers(messages: Sequence[Any], wanted: Any) -> list[list[PastCall]]:
    """
    The answers of the model up to the one that wants this call; of each, the calls that are equal to it.

    Some models count their ids from the same number in every answer: the last one with this id is meant, and what came
    to a result is looked for between an answer and the next.
    """
    answers: list[list[PastCall]] = []
    here, equal = 0, list[PastCall]()
    for message in messages:
        if isinstance(message, AIMessage):
            equal = [PastCall(past["id"], False) for past in message.tool_calls if _are_equal(past, wanted)]
            answers.append(equal)
            if any(past.id == wanted["id"] for past in equal):
                here = len(answers)
        elif equal and isinstance(message, ToolMessage) and message.status != "error":
            equal[:] = [past._replace(answered=past.answered or past.id == message.tool_call_id) for past in equal]
    answers = answers[: here or None]
    return [*([past._replace(id="") for past in answer] for answer in answers[:-1]), *answers[-1:]]


def _are_equal(one: Any, other: Any) -> bool:
    """Whether two calls are of one tool, with arguments that have one canonical form."""
    if one["name"] != other["name"] or one["args"] != other["args"]:
        return False
    try:  # Python has True equal to 1; a canonical form has not.
        return one["args"] is other["args"] or canonical(one["args"]) == canonical(other["args"])
    except RequestInvalid:
        return False


def _are_invalid(tool: BaseTool, arguments: Any) -> bool:
    """Whether the framework will refuse these arguments before the tool runs."""
    schema = tool.args_schema
    if not isinstance(schema, type) or not issubclass(schema, BaseModel):
        return False
    try:
        schema.model_validate(arguments)
    except ValidationError as error:
        shown = tool.tool_call_schema
        injected = schema.model_fields.keys() - getattr(shown, "model_fields", schema.model_fields).keys()
        return any(not found["loc"] or found["loc"][0] not in injected for found in error.errors(include_url=False))
    return False
