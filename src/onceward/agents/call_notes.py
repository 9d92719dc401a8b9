"""
What is noted in the journal of an agent's calls: notes of runs and attempts. Of no colour, and no I/O.

A run has a row of its own, begun when a process first sees it. An attempt is noted before its tool runs, so that a
process that is killed leaves an attempt without an end; replays and refusals are noted when they are over.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from onceward._core import record
from onceward._core.errors import OncewardError, RecordedFailure
from onceward._core.operation import Operation, Outcome
from onceward.agents.framework import NotFinal
from onceward.agents.tool_attempt import ToolAttempt
from onceward.agents.tool_call import ToolCall
from onceward.gate.operator_actions import digest_of_key
from onceward.journal.call_attempt import error_name
from onceward.journal.journal_base import RETAIN_SECONDS
from onceward.journal.notes import CallDetails, CallOutcome, CallSubject, JournalNote, run_subject
from onceward.journal.views import prune_notes
from onceward.runtime.environment import Environment
from onceward.runtime.processes import fork_count

RUNS_MAX = 10_000
"""Runs that a process remembers having seen. One that is forgotten is noted as begun once more."""

PRUNE_EVERY = 500
"""Attempts after which a little of what is old is deleted, behind the work."""

PAUSED = "paused"
"""In front of the detail of an attempt that ended with the framework's own control flow: it is no failure."""


class RunNotes:
    """Makes the notes of one `AgentGate`, for both of its colours. Safe for threads."""

    def __init__(self, environment: Environment, scope: str, worker: str) -> None:
        self._environment, self.scope, self._worker = environment, scope, worker
        self._begin()

    def _begin(self) -> None:
        self._process = fork_count()
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._ended = 0

    def run_begun(self, run: str) -> list[JournalNote]:
        """The note of a run that this process has not seen before."""
        if self._process != fork_count():
            self._begin()  # A forked process is another one.
        with self._lock:
            if run in self._seen:
                self._seen.move_to_end(run)
                return []
            self._seen[run] = None
            if len(self._seen) > RUNS_MAX:
                self._seen.popitem(last=False)
        return [run_subject(self._environment, self.scope, run, self._worker, None).begun()]

    def subject(self, call: ToolCall, digest: str | None) -> CallSubject:
        """An attempt that begins now."""
        details = CallDetails(self.scope, self._worker, call.tool, call.run, call.turn, digest, call_id=call.id)
        return CallSubject(self._environment, details)

    def upkeep(self) -> list[JournalNote]:
        """Now and then, what deletes a little of what is old."""
        with self._lock:
            self._ended += 1
            due = self._ended % PRUNE_EVERY == 1
        return prune_notes(self._environment, RETAIN_SECONDS) if due else []


class CallNotes:
    """The notes of one call, which may come to several attempts under one claim."""

    __slots__ = ("_call", "_key", "_notes", "_subject")

    def __init__(self, notes: RunNotes, call: ToolCall, key: str) -> None:
        self._notes, self._call, self._key = notes, call, key
        self._subject: CallSubject | None = None

    def begun(self, operation: Operation, before: BaseException | None) -> list[JournalNote]:
        """The tool is about to run; `before` is what it raised when it was run last, under the same claim."""
        made = self._notes.run_begun(self._call.run)
        if self._subject is not None:
            made.append(self._subject.ended(CallOutcome.FAILED.value, None if before is None else error_name(before)))
        self._subject = self._notes.subject(self._call, operation.digest)
        return [*made, self._subject.begun()]

    def returned(self, outcome: Outcome[object]) -> list[JournalNote]:
        """The call came to a result, now or before."""
        if outcome.pending:
            return self._ended(CallOutcome.REFUSED, "in_flight")
        return self._ended(CallOutcome.REPLAYED if self._subject is None else CallOutcome.EXECUTED, None)

    def raised(self, error: BaseException, attempt: ToolAttempt) -> list[JournalNote]:
        """The call came to an error."""
        name = error_name(error)
        if self._subject is None:
            outcome = CallOutcome.REPLAYED if isinstance(error, RecordedFailure) else CallOutcome.REFUSED
            return self._ended(outcome, name, error)
        operation = attempt.operation
        if error is not attempt.error or operation is None:
            return self._ended(CallOutcome.UNKNOWN, name)  # It ran, and its record could not be ended.
        ended = operation.record
        if not (record.is_released(ended) or record.is_settled(ended)):
            return self._ended(CallOutcome.UNKNOWN, name)
        paused = isinstance(error, (NotFinal, *attempt.framework.control_flow))
        return self._ended(CallOutcome.FAILED, f"{PAUSED}: {name}" if paused else name)

    def _ended(self, how: CallOutcome, detail: str | None, error: BaseException | None = None) -> list[JournalNote]:
        made = [] if self._subject is not None else self._notes.run_begun(self._call.run)
        subject = self._subject or self._notes.subject(self._call, self._digest(error))
        return [*made, subject.ended(how.value, detail), *self._notes.upkeep()]

    def _digest(self, error: BaseException | None) -> str | None:
        if isinstance(error, OncewardError) and error.digest is not None:
            return error.digest
        try:
            return digest_of_key(self._notes.scope, self._key)
        except OncewardError:
            return None
