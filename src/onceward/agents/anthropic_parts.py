"""
What the tools of Anthropic's runner have in common behind the gate, whatever their colour: results, errors, words.

Imported by `anthropic.py`, after it has looked for the SDK.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
from pydantic import ValidationError

from onceward._core.errors import NothingHappened
from onceward.agents.agent_run import AgentRun
from onceward.agents.framework import Framework
from onceward.agents.message_history import field, model_content
from onceward.agents.model_text import ForModel
from onceward.agents.tool_call import ToolCall
from onceward.agents.tools import Tool


def _content(value: Any) -> Any:
    """A result as it is stored and read: a text, or blocks of content, also from a generator of them."""
    if isinstance(value, str | dict) or not isinstance(value, Iterable):
        return model_content(value)
    return model_content(list(value))


def _given(value: Any, call: ToolCall) -> Any:
    return _content(value)


class InvalidArguments(NothingHappened):
    """The arguments do not fit the function, which was not entered."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


FRAMEWORK = Framework("anthropic", dump=_content, plain=_given, control_flow=(InvalidArguments,))


class ToolDelegate:
    """What is not the call itself is that of the tool: its definition, and how it is closed."""

    def __init__(self, run: AgentRun, tool: Any, declared: Tool | None) -> None:
        self._numbered, self._tool, self._known = run, tool, declared

    def to_dict(self) -> Any:
        """Its definition, for the model."""
        return self._tool.to_dict()

    @property
    def name(self) -> str:
        """Its name, for the model."""
        return str(self._tool.name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_tool"], name)

    def _only_looks(self, input: Any) -> bool:
        """Whether this is a memory tool that is asked to show something."""
        memory = isinstance(self._tool, BetaAbstractMemoryTool | BetaAsyncAbstractMemoryTool)
        return memory and field(input, "command") == "view"


def looked_at(error: ValueError, tool: Any) -> Exception:
    """
    The error itself, or that the arguments were invalid.

    The SDK says "invalid arguments" of any ValidationError, also of one that the function ran into after its effect.
    Only if the function was never entered has nothing happened.
    """
    invalid, code = error.__cause__, getattr(getattr(tool, "func", None), "__code__", None)
    if not isinstance(invalid, ValidationError) or code is None:
        return error
    at = invalid.__traceback__
    while at is not None:
        if at.tb_frame.f_code is code:
            return error
        at = at.tb_next
    return InvalidArguments(error)


def told(result: Any) -> Any:
    """The result; or words of ours as the runner passes them on. A tool's own words stand if it had no effect."""
    if not isinstance(result, ForModel):
        return result
    if isinstance(result.error, ToolError) and not result.in_doubt:
        raise result.error
    raise ToolError(result.text) from result.error
