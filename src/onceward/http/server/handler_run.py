"""
One run of a handler, whoever serves it: how it ended, what of it is stored, and what the client gets.

    how_answered, how_failed    what the gate is told: the answer is complete, or the handler raised
    given, refused              what the client gets, by what the gate says to that: a `Reply`; None: the handler's own
    own                         the handler's own answer, as it leaves

Nothing here waits, acts on a server or knows one: see `exchange_async.py` for the way of a request through this.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from onceward._core.errors import ConfigurationError, HandlerFailed, NotSettled, OncewardError, ResultInvalid
from onceward._core.flow import Raised, Returned
from onceward._core.operation import Operation, Outcome
from onceward._core.reply import Reply
from onceward.http.server.handler_outcomes import (
    CommittedAnswer,
    FailedResponse,
    LetGo,
    RolledBackError,
    UnstoredResponse,
    handler_result,
    has_settled,
    is_own_refusal,
    remembers,
)
from onceward.http.server.problems import refusal_response
from onceward.http.server.profile import Profile
from onceward.http.server.request_admission import AdmittedRequest, RequestAdmission, log
from onceward.http.server.response_recorder import ResponseRecorder
from onceward.http.server.responses import BODY_HEADERS, enveloped_body, settled_response, with_body_marker


class HandlerReport(NamedTuple):
    """A handler has given its answer, and this is known besides."""

    raised: BaseException | None = None
    """What it raised, if a framework has made the answer from that."""
    committed: bool = False
    """Whether something of the application's was seen to be committed while it ran."""
    commits: bool = False
    """Whether the framework commits what a handler has written if it returns, whatever that is."""
    left: bool = False
    """Whether it was let go in the middle: its client has left, and the answer could not be kept."""


CLEAN_REPORT = HandlerReport()


class HandlerResponse(NamedTuple):
    """What is left to send of a handler's own answer, and how its head is changed, if that has not been sent."""

    body: bytes
    without: frozenset[str] = frozenset()
    """Headers, in lower case, that are not true any more."""
    more: tuple[tuple[str, str], ...] = ()
    """Headers that are added."""


class HandlerRun:
    """A keyed request, and what its handler makes of it."""

    admission: RequestAdmission[Any]
    admitted: AdmittedRequest
    profile: Profile
    recording: ResponseRecorder
    """The handler's answer, once it has been started."""
    operation: Operation | None = None
    """What the handler is running; None: nothing was run."""
    begun = False
    """Whether the client has been sent something."""
    _told: BaseException | None = None
    _raised: BaseException | None = None
    _substitute: Reply | None = None
    _outcome: Outcome[Any] | None = None

    def start(self, operation: Operation) -> None:
        """The handler is about to run, for the first time or again: nothing is left of an answer that failed."""
        if self.begun:
            raise RuntimeError("a part of the handler's answer has been sent, so it cannot be run again")
        self.recording = ResponseRecorder(self.profile, self.admitted.terms.result_bytes_max)
        self.operation, self._told, self._raised, self._substitute = operation, None, None, None

    # --- what the gate is told ---

    def result_for_gate(self, answered: HandlerReport) -> Returned | Raised:
        """The answer is complete, or nobody is left to complete it for."""
        result, (raised, committed, commits, left) = self.recording.result(), answered
        if left and not remembers(self.profile, 500):
            return self._telling(LetGo("its client left, and nobody asked for the rest of its answer"))
        if raised is None and result.status >= 500 and (committed or commits):
            raised = CommittedAnswer(result)
        if _is_error_page_of(raised) and result.status >= 500:
            if remembers(self.profile, result.status):
                return self._remembered(raised)
            if raised is not None and self.profile.transactional and has_settled(self.operation):
                return self._telling(raised)  # What was settled is for the next request; this one has failed.
        try:
            return Returned(handler_result(self.profile, result, self.operation, committed=committed))
        except FailedResponse as failure:
            return self._telling(failure if raised is None else self._meant(raised, committed=committed))

    def failure_for_gate(self, error: BaseException) -> Returned | Raised:
        """The handler raised. That is raised again, unless it is what its key is remembered by."""
        if isinstance(error, Exception) and remembers(self.profile, 500):
            return self._remembered(error)
        self._raised = error
        return self._telling(self._meant(error))

    def _remembered(self, error: BaseException | None) -> Returned:
        """One answer for everybody; if a part of another has been sent, that breaks off."""
        log.error("onceward: the handler of %s raised; its failure is remembered", self.admitted.name, exc_info=error)
        if self.begun:
            self._raised = error
            return Returned(UnstoredResponse(500, error))
        self._substitute = refusal_response(HandlerFailed(), self.profile, pages=self.admission.well_known)
        return Returned(self._substitute)

    def _telling(self, error: BaseException) -> Raised:
        self._told = error
        return Raised(error)

    def _meant(self, error: BaseException, *, committed: bool = False) -> BaseException:
        """What the gate is told that the handler raised."""
        if self.profile.guarantee != "atomic" or isinstance(error, FailedResponse) or not isinstance(error, Exception):
            return error
        if committed:
            return error  # It says that all of it rolls back, and some of it was seen to stay.
        rolled_back = RolledBackError(f"{type(error).__name__}: {error}")
        rolled_back.__cause__ = error
        return rolled_back

    # --- what the client gets ---

    def given(self, outcome: Outcome[Any]) -> Reply | None:
        """The gate has an answer: the handler's, or that of an earlier request."""
        if self.operation is None:
            return self.admission.answer(self.admitted, outcome)
        self._outcome = outcome
        if self._raised is not None:
            raise self._raised  # It broke off in the middle; so does the answer.
        if self._substitute is not None:
            return with_body_marker(
                self._substitute, self.profile, replayed=False, first_at=outcome.first_at.isoformat()
            )
        return settled_response(outcome, self.profile, self.recording.result()) if self.profile.transactional else None

    def refused(self, error: BaseException) -> Reply | None:
        """The gate raised: what it was told, or something of its own. What is nobody's answer is raised again."""
        if error is self._told or isinstance(error, FailedResponse | RolledBackError):
            self._log_failure(error)
            if self._raised is not None:
                raise self._raised
            return None  # It is about this attempt.
        if not isinstance(error, OncewardError):
            raise error
        if isinstance(error, NotSettled) and self._refuses_by_itself():
            return None
        reply = self.admission.refused(self.admitted, error)  # Told to the log, too.
        if self.begun:
            raise error  # Too late to say anything else: the answer breaks off.
        return reply

    def _refuses_by_itself(self) -> bool:
        """Whether the handler's own answer says that it did not work."""
        return self.operation is not None and self.recording.complete and is_own_refusal(self.recording.result())

    def _log_failure(self, error: BaseException) -> None:
        """Say why a keyed request was answered 5xx, and what that means for its key."""
        known = isinstance(error, FailedResponse | RolledBackError)
        words = str(error) if known else f"{type(error).__name__}: {error}"
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        log.error("onceward: the handler of %s failed: %s%s", self.admitted.name, words, notes)

    # --- the handler's own answer ---

    def begin(self) -> tuple[tuple[str, str], ...]:
        """The head of the answer leaves before its end: what is added to it."""
        self.begun = True
        return self.recording.notice

    def own(self) -> HandlerResponse:
        """What is left of it. It is stored now, or does not have to be."""
        body = self.recording.rest()
        if self.begun:
            return HandlerResponse(body)
        notice = self.recording.notice
        wrapped = enveloped_body(self.recording.result(), self.profile, self._outcome)
        if wrapped is None:
            return HandlerResponse(body, more=notice)
        return HandlerResponse(wrapped, BODY_HEADERS, (("content-length", str(len(wrapped))), *notice))

    def rendered(self) -> Reply:
        """The handler's whole answer, for whoever settles with it; refused while there is none."""
        if not self.recording.complete:
            raise ConfigurationError(
                "the answer is not rendered yet: rendered(request) is for what runs after it, such as the code after "
                "`yield` in a dependency of FastAPI 0.118 or later"
            )
        result = self.recording.result()
        if isinstance(result, UnstoredResponse):
            raise ResultInvalid("this answer is too large to be kept, so it cannot be settled with")
        return result


def _is_error_page_of(raised: BaseException | None) -> bool:
    """Whether an answer is a framework's page about an exception, and not what the handler answered."""
    return isinstance(raised, Exception) and not isinstance(raised, FailedResponse)
