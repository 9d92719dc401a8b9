# blocking half: tool_runner.py
"""
Runs tool calls of one colour through its gate: the identity, the terms and the words are decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from onceward._core.flow import Raised, Returned
from onceward._core.operation import Operation, Outcome
from onceward._core.terms import Terms
from onceward.agents.framework import Framework
from onceward.agents.tool_attempt import ToolAttempt, probe_of, tool_terms
from onceward.agents.tool_call import ToolCall, key_of_call, request_of_call
from onceward.agents.tools import Tool
from onceward.gate.gate_async import AsyncGate
from onceward.gate.held_operation_async import AsyncHeldOperation


class AsyncToolRunner:
    """Tool calls through one gate."""

    def __init__(self, gate: AsyncGate) -> None:
        self.gate = gate
        self._terms: dict[tuple[int, str], tuple[Tool, Terms]] = {}

    async def call_tool(
        self, call: ToolCall, fn: Callable[[], Awaitable[Any]], tool: Tool, framework: Framework, *, tell_errors: bool
    ) -> Any:
        """The framework's result; or words for the model. What the tool raises is raised, unless it is to be told."""
        attempt = ToolAttempt(call, tool, framework)

        async def run(operation: Operation) -> Any:
            attempt.begin(operation)
            try:
                return attempt.stored(await fn())
            except BaseException as error:
                attempt.raised(error)
                raise

        key = key_of_call(call, tool)
        probe = probe_of(tool, call)
        try:
            outcome = await self.gate.call_on(
                self._terms_of(tool, framework), key, run, request=request_of_call(call), name=call.tool, probe=probe
            )
        except GeneratorExit:
            raise
        except BaseException as error:
            return attempt.came_to(error, tell_errors=tell_errors)
        return attempt.answer(outcome.answer)

    async def hold(self, call: ToolCall, tool: Tool, framework: Framework) -> AsyncHeldCall | Any:
        """Claim a call that somebody else makes; or its result, or words for the model."""
        attempt = ToolAttempt(call, tool, framework)
        probe = probe_of(tool, call)
        try:
            held = await self.gate.hold(
                key_of_call(call, tool),
                request=request_of_call(call),
                name=call.tool,
                probe=probe,
                **tool_terms(tool, framework),
            )
        except Exception as error:
            return attempt.came_to(error, tell_errors=False)
        if isinstance(held, Outcome):
            return attempt.answer(held.answer)
        attempt.begin(held.operation)
        return AsyncHeldCall(held, attempt)

    def _terms_of(self, tool: Tool, framework: Framework) -> Terms:
        """What the gate is told about this tool, in this framework. Remembered: most calls repeat the same few."""
        known = self._terms.get((id(tool), framework.name))
        if known is not None:
            return known[1]
        terms = self.gate.agreed(**tool_terms(tool, framework))
        if len(self._terms) < 1_000:
            self._terms[id(tool), framework.name] = tool, terms  # With the tool, so that its id stays its own.
        return terms


class AsyncHeldCall:
    """A claimed call that somebody else makes, until `end` or `fail`."""

    def __init__(self, held: AsyncHeldOperation, attempt: ToolAttempt) -> None:
        self._held, self._attempt = held, attempt
        self.operation = held.operation

    async def end(self, result: Any) -> Any:
        """The call returned this: the result, or words for the model."""
        try:
            stored = self._attempt.stored(result)
        except Exception as error:
            return await self.fail(error, tell_errors=True)
        try:
            outcome = await self._held.end(Returned(stored))
        except Exception as error:
            return self._attempt.came_to(error, tell_errors=True)
        return self._attempt.answer(outcome.answer)

    async def fail(self, error: BaseException, *, tell_errors: bool) -> Any:
        """The call raised this: words for the model, or raised again."""
        self._attempt.raised(error)
        try:
            await self._held.end(Raised(error))
        except GeneratorExit:
            raise
        except BaseException as raised:
            return self._attempt.came_to(raised, tell_errors=tell_errors)
        raise error
