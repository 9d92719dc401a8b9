"""
Calls of a loop of your own: each function is looked up, its arguments are checked, and it is called through the gate.

Used by the adapters of protocols (`openai`, `anthropic`), which know how a call and its answer look as messages.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from onceward.agents.agent_gate import AgentGate
from onceward.agents.framework import Framework
from onceward.agents.message_history import PastMessages, WantedCall, model_content
from onceward.agents.model_text import ForModel, failure_text, not_run_text
from onceward.agents.tool_call import ToolCall, check_run
from onceward.agents.tools import declared_tool

Functions: TypeAlias = Mapping[str, Callable[..., Any]]
"""The tools by the names that the model knows."""


class LoopAnswer(NamedTuple):
    """What the model is told about a call."""

    content: Any
    """A text, or blocks of content."""
    failed: bool = False
    """Whether this is no result: a refusal, or a failure."""


class LoopCall:
    """A call that a loop makes, of either colour."""

    def __init__(
        self,
        gate: AgentGate,
        wanted: WantedCall,
        call: ToolCall,
        function: Callable[..., Any] | None,
        framework: Framework,
        tell_errors: bool,
    ) -> None:
        self.wanted = wanted
        self._gate, self._call, self._tell_errors = gate, call, tell_errors
        self._function: Any = function  # None only where there is a reason not to call it.
        self._terms: Any = {"framework": framework, "declared": declared_tool(function), "tell_errors": tell_errors}
        self._reason = _why_not(wanted, function)

    def made(self) -> LoopAnswer:
        """Make it once: what the model is told."""
        if self._reason is not None:
            return self._not_run(self._reason)
        try:
            return self._told(self._gate.call(self._call, self._run, **self._terms))
        except Exception as error:
            return self._raised(error)

    async def amade(self) -> LoopAnswer:
        """Make it once, awaiting it: what the model is told."""
        if self._reason is not None:
            return self._not_run(self._reason)
        try:
            return self._told(await self._gate.acall(self._call, self._run, **self._terms))
        except Exception as error:
            return self._raised(error)

    def _not_run(self, reason: str) -> LoopAnswer:
        return LoopAnswer(not_run_text(self._call.tool, reason), failed=True)

    def _run(self) -> Any:
        given = self._call.arguments
        return self._function(**given) if isinstance(given, dict) else self._function(given)

    def _told(self, result: Any) -> LoopAnswer:
        if isinstance(result, ForModel):
            return LoopAnswer(result.text, failed=True)
        return LoopAnswer(model_content(result))

    def _raised(self, error: Exception) -> LoopAnswer:
        """Of a tool that is not gated, an error is told like that of the others."""
        tool = self._gate.tool(self._call.tool, self._terms["declared"])
        if tool.gated or not self._tell_errors:
            raise error
        return LoopAnswer(failure_text(self._call.tool, tool, error, in_doubt=False), failed=True)


def calls_to_make(
    gate: AgentGate, run: str, past: PastMessages, functions: Functions, framework: Framework, *, tell_errors: bool
) -> list[LoopCall]:
    """The calls of the model's last answer that have no answer yet, numbered from the messages."""
    name = check_run(run)
    calls = []
    for wanted in past.wanted():
        nth = past.number(wanted.id, wanted.tool, wanted.arguments)
        call = ToolCall(name, wanted.tool, wanted.arguments, nth, wanted.id, past.turn)
        calls.append(LoopCall(gate, wanted, call, functions.get(wanted.tool), framework, tell_errors))
    return calls


def _why_not(wanted: WantedCall, function: Callable[..., Any] | None) -> str | None:
    """Why this can be no call. It is said before anything is claimed."""
    if function is None:
        return "there is no tool of this name"
    given = wanted.arguments
    if not isinstance(given, dict) and not wanted.free_text:
        return "its arguments are not a JSON object"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # It cannot be asked; it will say so itself.
    try:
        _ = signature.bind(**given) if isinstance(given, dict) else signature.bind(given)
    except TypeError as error:
        return f"its arguments do not fit ({error})"
    return None
