"""
How attempts are told: what a call's exception says about its outcome, and what a gate's events say.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
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
"""Claims that a listener keeps in mind until they end."""

Redactor = Callable[[str, Any], str]
"""From a tool's name and its arguments to what may be kept of them."""


class RunPosition(NamedTuple):
    """Where in a run we are."""

    run: str | None = None
    turn: int | None = None


NO_POSITION = RunPosition()
current_position: ContextVar[RunPosition] = ContextVar("onceward_journal_place", default=NO_POSITION)
"""Set by `run` and `turn`, so that what a gate tells is noted where it belongs."""


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
        """The same, if everything is as it has to be."""
        if not isinstance(worker, str) or not worker:
            raise ConfigurationError("a journal needs to know who works: worker='reconciler-v1'")
        if secret is not None:
            fingerprint_keyed(None, secret)  # It says what is wrong with it.
        return cls(environment, check_scope(scope), worker, secret, redacted)

    def attempt(self, tool: str, key: str | None, arguments: Any, where: RunPosition) -> CallAttempt:
        """An attempt that begins now."""
        digest = None if key is None else self._digest(key)
        fingerprint, text = self._kept(tool, arguments)
        what = CallDetails(self.scope, self.worker, tool, where.run, where.turn, digest, fingerprint, text)
        return CallAttempt(call_subject(self.environment, what))

    def _digest(self, key: str) -> str:
        """The record's, so that a line here leads to `onceward records show`. Judging a key is the gate's business."""
        try:
            return digest_of(id_of_key(self.scope, key))
        except OncewardError:
            return key_digest(str(key))

    def _kept(self, tool: str, arguments: Any) -> tuple[str | None, str | None]:
        """What is kept of arguments. Whatever they are, the call itself is not to suffer."""
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
    """An attempt under way: say how it ended, if it is not what it looks like."""

    def __init__(self, subject: NoteSubject) -> None:
        self._subject = subject
        self._ended: CallOutcome | None = None
        self._detail: str | None = None

    @property
    def id(self) -> str:
        """Names this attempt in the journal."""
        return self._subject.about

    def wrote(self, rows: int) -> int:
        """As many rows were written: none means that it was done before. Gives the number back."""
        self.end(CallOutcome.EXECUTED if rows else CallOutcome.REPLAYED)
        return rows

    def told(self, outcome: Outcome[Any]) -> Any:
        """A gate answered: from its record, or because it ran. Gives the value back."""
        self.end(CallOutcome.REPLAYED if outcome.replayed else CallOutcome.EXECUTED)
        return outcome.value

    def end(self, how: CallOutcome | str, detail: str | None = None) -> None:
        """It ended so; written when the block ends. Without a word: executed, or what an exception says."""
        if how not in tuple(CallOutcome):
            raise ConfigurationError(f"an attempt ends as one of {', '.join(CallOutcome)}")
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
    """How a run or a turn stands after its block, and why."""
    if error is None:
        return RunStatus.COMPLETED.value, None
    return (RunStatus.FAILED if isinstance(error, Exception) else RunStatus.CANCELLED).value, error_name(error)


def error_name(error: BaseException) -> str:
    """An error without what it says: messages have arguments in them."""
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
    """A listener for gates: what it hears becomes notes."""

    def __init__(self, teller: NoteFactory, put: Callable[[list[Note]], object]) -> None:
        self._note_factory = teller
        self._put = put
        self._open: OrderedDict[tuple[str, str, int], NoteSubject] = OrderedDict()

    def __call__(self, event: Event) -> None:
        """One event. Only whoever claimed is believed about the end: what a dead holder left is not ended by others."""
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
        what = CallDetails(event.scope, self._note_factory.worker, tool, where.run, where.turn, event.digest)
        return call_subject(self._note_factory.environment, what)
