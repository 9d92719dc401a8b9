# Made from tool_runner_async.py by `make halves`: change that file, not this one.
"""
Runs tool calls of one colour through its gate: the identity, the terms and the words are decided elsewhere.

What is kept besides the record is kept here, too: after the claim and before the tool runs, the price is reserved and
the attempt is noted; both are ended when the gate has said what came of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onceward._core.flow import Raised, Returned
from onceward._core.operation import Operation, Outcome
from onceward._core.terms import Terms
from onceward.agents.call_notes import CallNotes, RunNotes
from onceward.agents.framework import Framework
from onceward.agents.spend import PriceTag
from onceward.agents.spend_book import SpendBook
from onceward.agents.tool_attempt import ToolAttempt, probe_of, tool_terms
from onceward.agents.tool_call import ToolCall, key_of_call, request_of_call
from onceward.agents.tool_context import enter_tool
from onceward.agents.tools import Tool
from onceward.gate.gate import Gate
from onceward.gate.held_operation import HeldOperation
from onceward.journal.journal import Journal


class ToolRunner:
    """Tool calls through one gate; with a journal and a cap on what they cost, if it is given them."""

    def __init__(
        self,
        gate: Gate,
        journal: Journal | None = None,
        notes: RunNotes | None = None,
        book: SpendBook | None = None,
    ) -> None:
        self.gate, self.book = gate, book
        self._journal, self._notes = journal, notes
        self._terms: dict[tuple[int, str], tuple[Tool, Terms]] = {}

    def call_tool(
        self,
        call: ToolCall,
        fn: Callable[[], Any],
        tool: Tool,
        framework: Framework,
        *,
        tell_errors: bool,
        unfinished: Callable[[], None] | None = None,
    ) -> Any:
        """The framework's result; or words for the model. What the tool raises is raised, unless it is to be told."""
        key = key_of_call(call, tool)
        attempt = ToolAttempt(call, tool, framework, unfinished)
        beside = self._beside(attempt, key)

        def run(operation: Operation) -> Any:
            if beside is not None:
                beside.begin(operation)
            attempt.begin(operation)
            inside = enter_tool(call, None if beside is None else beside.tag)
            try:
                return attempt.stored(fn())
            except BaseException as error:
                attempt.raised(error)
                raise
            finally:
                inside.leave()

        probe = probe_of(tool, call)
        try:
            outcome = self.gate.call_on(
                self._terms_of(tool, framework), key, run, request=request_of_call(call), name=call.tool, probe=probe
            )
        except GeneratorExit:
            raise
        except BaseException as error:
            if beside is not None:
                beside.raised(error)
            return attempt.came_to(error, tell_errors=tell_errors)
        if beside is not None:
            beside.returned(outcome)
        return attempt.answer(outcome.answer)

    def hold(self, call: ToolCall, tool: Tool, framework: Framework) -> HeldCall | Any:
        """Claim a call that somebody else makes; or its result, or words for the model."""
        key = key_of_call(call, tool)
        attempt = ToolAttempt(call, tool, framework)
        beside, probe = self._beside(attempt, key), probe_of(tool, call)
        try:
            held = self.gate.hold(
                key, request=request_of_call(call), name=call.tool, probe=probe, **tool_terms(tool, framework)
            )
            if beside is not None and not isinstance(held, Outcome):
                self._begin_held(beside, held)
        except Exception as error:
            if beside is not None:
                beside.raised(error)
            return attempt.came_to(error, tell_errors=False)
        if isinstance(held, Outcome):
            if beside is not None:
                beside.returned(held)
            return attempt.answer(held.answer)
        attempt.begin(held.operation)
        return HeldCall(held, attempt, beside)

    def _begin_held(self, beside: BesideCall, held: HeldOperation) -> None:
        try:
            beside.begin(held.operation)
        except GeneratorExit:
            raise
        except BaseException as error:
            held.end(Raised(error))  # Raises it again, once the claim is released.
            raise

    def _beside(self, attempt: ToolAttempt, key: str) -> BesideCall | None:
        """What is kept of a call besides its record; None: nothing."""
        notes = None if self._notes is None else CallNotes(self._notes, attempt.call, key)
        book = self.book if attempt.tool.price is not None else None
        return None if notes is None and book is None else BesideCall(attempt, self._journal, notes, book)

    def _terms_of(self, tool: Tool, framework: Framework) -> Terms:
        """What the gate is told about this tool, in this framework. Remembered: most calls repeat the same few."""
        known = self._terms.get((id(tool), framework.name))
        if known is not None:
            return known[1]
        terms = self.gate.agreed(**tool_terms(tool, framework))
        if len(self._terms) < 1_000:
            self._terms[id(tool), framework.name] = tool, terms  # With the tool, so that its id stays its own.
        return terms

    def close(self) -> None:
        """Write the notes that still wait, and close the gate."""
        if self._journal is not None:
            self._journal.close()
        self.gate.close()


class BesideCall:
    """What is kept of one call besides its record: its price, and its notes."""

    __slots__ = ("_attempt", "_book", "_journal", "_notes", "tag")

    def __init__(
        self,
        attempt: ToolAttempt,
        journal: Journal | None,
        notes: CallNotes | None,
        book: SpendBook | None,
    ) -> None:
        self._attempt, self._journal, self._notes, self._book = attempt, journal, notes, book
        self.tag: PriceTag | None = None

    def begin(self, operation: Operation) -> None:
        """Claimed, and about to run: reserve the price, note the attempt. If that is stopped, nothing has happened."""
        operation.rest()
        if self._book is not None:
            self.tag = self.tag or self._book.tag(self._attempt.call, self._attempt.tool, operation)
            self._book.reserve(self.tag)
        if self._notes is not None and self._journal is not None:
            self._journal.write(self._notes.begun(operation, self._attempt.error))
        operation.begin_attempt()

    def returned(self, outcome: Outcome[Any]) -> None:
        """The call came to a result, now or before."""
        if self._book is not None and self.tag is not None:
            self._book.end(self.tag, ran=True)
        if self._notes is not None and self._journal is not None:
            self._journal.put(self._notes.returned(outcome))

    def raised(self, error: BaseException) -> None:
        """The call came to an error."""
        if self._book is not None and self.tag is not None:
            self._book.end(self.tag, ran=False)
        if self._notes is not None and self._journal is not None:
            self._journal.put(self._notes.raised(error, self._attempt))


class HeldCall:
    """A claimed call that somebody else makes, until `end` or `fail`."""

    def __init__(self, held: HeldOperation, attempt: ToolAttempt, beside: BesideCall | None = None) -> None:
        self._held, self._attempt, self._beside = held, attempt, beside
        self.operation = held.operation

    def end(self, result: Any) -> Any:
        """The call returned this: the result, or words for the model."""
        try:
            stored = self._attempt.stored(result)
        except Exception as error:
            return self.fail(error, tell_errors=True)
        try:
            outcome = self._held.end(Returned(stored))
        except Exception as error:
            if self._beside is not None:
                self._beside.raised(error)
            return self._attempt.came_to(error, tell_errors=True)
        if self._beside is not None:
            self._beside.returned(outcome)
        return self._attempt.answer(outcome.answer)

    def fail(self, error: BaseException, *, tell_errors: bool) -> Any:
        """The call raised this: words for the model, or raised again."""
        self._attempt.raised(error)
        try:
            self._held.end(Raised(error))
        except GeneratorExit:
            raise
        except BaseException as raised:
            if self._beside is not None:
                self._beside.raised(raised)
            return self._attempt.came_to(raised, tell_errors=tell_errors)
        raise error
