"""
Makes notes of attempts at tool calls: from a `with journal.call(...)` block, or from a gate's events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from onceward._core.errors import (
    ConfigurationError,
    NothingHappened,
    OncewardError,
    OutcomeUnknown,
    OwnershipLost,
    RecordedFailure,
    StoreForgot,
    StoreUnavailable,
)
from onceward._core.events import Event, EventType
from onceward._core.fingerprint import fingerprint_canonical, fingerprint_keyed
from onceward._core.keys import check_scope, digest_of, key_digest
from onceward._core.operation import Outcome
from onceward.gate.operator_actions import id_of_key
from onceward.journal.note_writer import log
from onceward.journal.notes import CallDetails, CallNote, CallOutcome, CallSubject, JournalNote, RunStatus
from onceward.runtime.environment import Environment

OPEN_MAX = 10_000
"""Claims that a listener remembers until they end."""

Redactor = Callable[[str, Any], str]
"""A function from a tool's name and its arguments to the text that may be kept of them."""


class RunPosition(NamedTuple):
    """Where in a run we are."""

    run: str | None = None
    turn: int | None = None
    call_id: str | None = None
    """The model's own name of the tool call that is being made."""


NO_POSITION = RunPosition()
current_position: ContextVar[RunPosition] = ContextVar("onceward_journal_place", default=NO_POSITION)
"""Set by `run` and `turn`, so that a gate's events are noted under them."""


@contextmanager
def in_run(run: str, turn: int | None = None) -> Iterator[None]:
    """
    Say which run this is, for the length of the block: what is noted in it (by `call`, by a gate's listener) is its.

    Nothing is written by this itself. For code that works for a run which somebody else has begun, such as a tool of an
    agent, or a sub-agent in another process. An `AgentGate` says so around every tool by itself.
    """
    before = current_position.get()
    current_position.set(RunPosition(run, turn))
    try:
        yield
    finally:
        current_position.set(before)


class NoteFactory(NamedTuple):
    """Who keeps the journal, and how arguments are kept."""

    environment: Environment
    scope: str
    worker: str
    secret: bytes | None
    redacted: Redactor | None

    @classmethod
    def checked(
        cls, environment: Environment, scope: str, worker: str, secret: bytes | None, redacted: Redactor | None
    ) -> NoteFactory:
        """Make one, with its arguments checked."""
        if not isinstance(worker, str) or not worker:
            raise ConfigurationError("a journal needs the name of its worker: worker='reconciler-v1'")
        if secret is not None:
            fingerprint_keyed(None, secret)  # It says what is wrong with it.
        return cls(environment, check_scope(scope), worker, secret, redacted)

    def attempt(self, tool: str, key: str | None, arguments: Any, where: RunPosition) -> CallAttempt:
        """An attempt that begins now."""
        digest = None if key is None else self._digest(key)
        fingerprint, text = self._kept(tool, arguments)
        details = CallDetails(
            scope=self.scope,
            worker=self.worker,
            tool=tool,
            run=where.run,
            turn=where.turn,
            digest=digest,
            fingerprint=fingerprint,
            arguments=text,
            call_id=where.call_id,
        )
        return CallAttempt(CallSubject(self.environment, details))

    def _digest(self, key: str) -> str:
        """The record's digest, as `onceward records show` takes it. The gate refuses a wrong key, not the journal."""
        try:
            return digest_of(id_of_key(self.scope, key))
        except OncewardError:
            return key_digest(str(key))

    def _kept(self, tool: str, arguments: Any) -> tuple[str | None, str | None]:
        """What is kept of arguments. Never raises, whatever they are."""
        if arguments is None:
            return None, None
        fingerprint = text = None
        try:
            found = (
                fingerprint_canonical(arguments) if self.secret is None else fingerprint_keyed(arguments, self.secret)
            )
            fingerprint = found.hex()
            text = None if self.redacted is None else str(self.redacted(tool, arguments))
        except Exception as error:
            log.warning("onceward: the arguments of %s are not recorded (%s)", tool, type(error).__name__)
        return fingerprint, text


class CallAttempt:
    """An attempt under way: executed, or failed if its block raises, unless you say how it ended."""

    def __init__(self, subject: CallSubject) -> None:
        self._subject = subject
        self._ended: CallOutcome | None = None
        self._detail: str | None = None

    @property
    def id(self) -> str:
        """Names this attempt in the journal."""
        return self._subject.about

    def wrote(self, rows: int) -> int:
        """So many rows were written: none means that it was done before. Returns the number."""
        self.end(CallOutcome.EXECUTED if rows else CallOutcome.REPLAYED)
        return rows

    def gate_outcome(self, outcome: Outcome[Any]) -> Any:
        """It was replayed or executed, as a gate's outcome says. Returns the outcome's value."""
        self.end(CallOutcome.REPLAYED if outcome.replayed else CallOutcome.EXECUTED)
        return outcome.value

    def end(self, how: CallOutcome | str, detail: str | None = None) -> None:
        """Say how it ended; written when the block ends."""
        if how not in tuple(CallOutcome):
            raise ConfigurationError(f"the end of an attempt must be one of {', '.join(CallOutcome)}")
        self._ended, self._detail = CallOutcome(how), detail

    def begun(self) -> CallNote:
        """The note of its beginning."""
        return self._subject.begun()

    def over(self, error: BaseException | None) -> CallNote:
        """The note of its end."""
        if error is not None:
            return self._subject.ended(outcome_of(error).value, error_name(error))
        return self._subject.ended((self._ended or CallOutcome.EXECUTED).value, self._detail)


def outcome_of(error: BaseException) -> CallOutcome:
    """What an exception says about the attempt that raised it."""
    if isinstance(error, OutcomeUnknown | OwnershipLost | StoreForgot | StoreUnavailable) or not isinstance(
        error, Exception
    ):
        return CallOutcome.UNKNOWN
    if isinstance(error, RecordedFailure):
        return CallOutcome.REPLAYED
    if isinstance(error, OncewardError) and not isinstance(error, NothingHappened):
        return CallOutcome.REFUSED
    return CallOutcome.FAILED


def status_of(error: BaseException | None) -> tuple[str, str | None]:
    """The status of a run or a turn after its block, and the error."""
    if error is None:
        return RunStatus.COMPLETED.value, None
    return (RunStatus.FAILED if isinstance(error, Exception) else RunStatus.CANCELLED).value, error_name(error)


def error_name(error: BaseException) -> str:
    """The name of an error, without its message: messages may contain arguments."""
    return error.code if isinstance(error, OncewardError) else type(error).__qualname__


_ENDS = {
    EventType.SETTLED: CallOutcome.EXECUTED.value,
    EventType.NOT_REPLAYABLE: CallOutcome.EXECUTED.value,
    EventType.RELEASED: CallOutcome.FAILED.value,
    EventType.IN_DOUBT: CallOutcome.UNKNOWN.value,
    EventType.OVERTAKEN: CallOutcome.UNKNOWN.value,
}
_AT_ONCE = {EventType.REPLAYED: CallOutcome.REPLAYED.value, EventType.REFUSED: CallOutcome.REFUSED.value}


class GateListener:
    """
    A listener for gates: makes notes of their events.

    Notes of beginnings are handed on at once only to somebody who writes them at once. One who writes behind the work
    asks now and then for what has begun (`begun_meanwhile`): most attempts have ended by then, and need one row.
    """

    def __init__(
        self, note_factory: NoteFactory, put: Callable[[list[JournalNote]], object], *, behind: bool = False
    ) -> None:
        self._note_factory = note_factory
        self._put = put
        self.behind = behind
        self._open: dict[tuple[str, str, int], CallSubject] = {}

    def __call__(self, event: Event) -> None:
        """Note one event. Only the process that claimed notes the end: a dead one's attempt stays without an end."""
        happening = event.type
        if happening is EventType.CLAIMED:
            subject = self._open[event.scope, event.digest, event.fence] = self._subject(event)
            if len(self._open) > OPEN_MAX:
                self._forget_oldest()
            self._put([] if self.behind else [subject.begun()])
        elif (ended := _ENDS.get(happening)) is not None:
            found = self._open.pop((event.scope, event.digest, event.fence), None)
            if found is not None:
                self._put([found.ended(ended, event.detail or None)])
        elif (ended := _AT_ONCE.get(happening)) is not None:
            self._put([self._subject(event).ended(ended, event.detail or None)])

    def begun_meanwhile(self) -> list[JournalNote]:
        """The beginnings of what is under way, each once."""
        return [one.begun() for one in tuple(self._open.values()) if not one.noted]

    def _forget_oldest(self) -> None:
        oldest = next(iter(tuple(self._open)), None)
        if oldest is not None:
            self._open.pop(oldest, None)

    def _subject(self, event: Event) -> CallSubject:
        where = current_position.get()
        tool, worker = event.operation or "operation", self._note_factory.worker
        details = CallDetails(event.scope, worker, tool, where.run, where.turn, event.digest, call_id=where.call_id)
        return CallSubject(self._note_factory.environment, details)
