"""
One attempt at a tool call: what came of it, in the words of the framework or of the model. Of no colour, and no I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from onceward._core import record
from onceward._core.errors import OncewardError, OwnershipLost, StoreForgot, Unrecorded
from onceward._core.operation import Operation
from onceward._core.terms import Options
from onceward.agents.framework import FailedResult, Framework, NotFinal
from onceward.agents.model_text import ForModel, failure_text, refusal_text
from onceward.agents.tool_call import ToolCall
from onceward.agents.tools import Tool

_log = logging.getLogger("onceward.agents")


class ToolAttempt:
    """What is known of an attempt while it is made."""

    __slots__ = ("_unfinished", "call", "error", "framework", "operation", "tool")

    def __init__(
        self, call: ToolCall, tool: Tool, framework: Framework, unfinished: Callable[[], None] | None = None
    ) -> None:
        self.call, self.tool, self.framework = call, tool, framework
        self._unfinished = unfinished
        self.operation: Operation | None = None
        """Of the claim under which the tool was run; None: it was not run."""
        self.error: BaseException | None = None
        """What the tool raised, or what its result says as much as."""

    def begin(self, operation: Operation) -> None:
        """The tool is about to run."""
        self.operation, self.error = operation, None

    def raised(self, error: BaseException) -> None:
        """The tool raised this, or its result says as much."""
        self.error = error

    def stored(self, result: Any) -> Any:
        """What is stored of a result. Raises `NotFinal` and `FailedResult`, as `dump` does."""
        if self.tool.kind == "atomic":
            return result  # The tool has settled by itself, with what it chose.
        return self.framework.stored(result)

    def answer(self, value: Any) -> Any:
        """The framework's result, from what was stored."""
        return self.framework.restored(value, self.call)

    def came_to(self, error: BaseException, *, tell_errors: bool) -> Any:
        """
        What a call that raised comes to: a result all the same, words for the model, or the error again.

        Whether it is the tool's error or ours is known, not guessed: the tool's own was seen when it was raised.
        """
        if error is self.error:
            return self._failed(error, tell_errors=tell_errors)
        if not isinstance(error, OncewardError):
            raise error
        if self.operation is None:
            return self._refused(error)
        return self._not_recorded(error)

    def _failed(self, error: BaseException, *, tell_errors: bool) -> Any:
        if isinstance(error, NotFinal):
            if self._unfinished is not None:
                self._unfinished()
            return error.result
        doubt = self.operation is not None and record.is_in_doubt(self.operation.record)
        told = isinstance(error, FailedResult) or (tell_errors and isinstance(error, Exception))
        if not told or isinstance(error, self.framework.control_flow):
            raise error
        return ForModel(failure_text(self.call.tool, self.tool, error, in_doubt=doubt), error, True, doubt)

    def _refused(self, error: OncewardError) -> ForModel:
        text = refusal_text(self.call.tool, self.tool, error)
        if text is None:
            raise error
        in_doubt = error.code in _DOUBTFUL
        level = logging.WARNING if in_doubt else logging.INFO  # Doubt waits for a person.
        _log.log(level, "onceward: %s was not run (%s); record %s", self.call.tool, error.code, error.digest)
        return ForModel(text, error, False, in_doubt)

    def _not_recorded(self, error: OncewardError) -> Any:
        """The tool ran, and its record could not be ended: what it returned is the answer, if it is known."""
        _log.error("onceward: %s ran, and: %s (record %s)", self.call.tool, error, error.digest)
        if isinstance(error, OwnershipLost) and error.outcome is not None:
            return self.answer(error.outcome.value)
        if isinstance(error, Unrecorded | StoreForgot) and error.value is not None:
            return self.answer(error.value)
        return self._refused(error)


_DOUBTFUL = frozenset({"in_doubt", "store_forgot", "ownership_lost"})


def probe_of(tool: Tool, call: ToolCall) -> Callable[[Operation], Any] | None:
    """The probe as a gate takes it; a tool's own is given the call."""
    probe = tool.probe
    return None if probe is None else lambda operation: probe(call)


def tool_terms(tool: Tool, framework: Framework) -> Options:
    """What the gate is told about this tool, in this framework."""
    said = tool.terms()
    before = said.get("before", ())
    said["before"] = (*(before if isinstance(before, tuple) else (before,)), *framework.control_flow)
    return said
