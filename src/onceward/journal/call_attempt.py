"""
Makes notes of attempts at tool calls: from a `with journal.call(...)` block, or from a gate's events.
"""

from __future__ import annotations

from collections import OrderedDict
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
from onceward.journal.notes import CallDetails, CallOutcome, Note, NoteSubject, RunStatus, call_subject
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
        return CallAttempt(call_subject(self.environment, details))

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
            log.warning("onceward: arguments of %s are not noted (%s)", tool, type(error).__name__)
        return fingerprint, text


class CallAttempt:
    """An attempt under way: executed, or failed if its block raises, unless you say how it ended."""

    def __init__(self, subject: NoteSubject) -> None:
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

    def begun(self) -> Note:
        """The note of its beginning."""
        return self._subject.begun()

    def over(self, error: BaseException | None) -> Note:
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
    EventType.SETTLED: CallOutcome.EXECUTED,
    EventType.NOT_REPLAYABLE: CallOutcome.EXECUTED,
    EventType.RELEASED: CallOutcome.FAILED,
    EventType.IN_DOUBT: CallOutcome.UNKNOWN,
    EventType.OVERTAKEN: CallOutcome.UNKNOWN,
}
_AT_ONCE = {EventType.REPLAYED: CallOutcome.REPLAYED, EventType.REFUSED: CallOutcome.REFUSED}


class GateListener:
    """A listener for gates: makes notes of their events."""

    def __init__(self, note_factory: NoteFactory, put: Callable[[list[Note]], object]) -> None:
        self._note_factory = note_factory
        self._put = put
        self._open: OrderedDict[tuple[str, str, int], NoteSubject] = OrderedDict()

    def __call__(self, event: Event) -> None:
        """Note one event. Only the process that claimed notes the end: a dead one's attempt stays without an end."""
        if (ended := _AT_ONCE.get(event.type)) is not None:
            self._put([self._subject(event).ended(ended.value, event.detail or None)])
            return
        claim = (event.scope, event.digest, event.fence)
        if event.type is EventType.CLAIMED:
            subject = self._open[claim] = self._subject(event)
            if len(self._open) > OPEN_MAX:
                self._open.popitem(last=False)
            self._put([subject.begun()])
        elif (ended := _ENDS.get(event.type)) is not None:
            found = self._open.pop(claim, None)
            if found is not None:
                self._put([found.ended(ended.value, event.detail or None)])

    def _subject(self, event: Event) -> NoteSubject:
        where = current_position.get()
        tool = event.operation or "operation"
        details = CallDetails(event.scope, self._note_factory.worker, tool, where.run, where.turn, event.digest)
        if where.call_id is not None:
            details = details._replace(call_id=where.call_id)
        return call_subject(self._note_factory.environment, details)
