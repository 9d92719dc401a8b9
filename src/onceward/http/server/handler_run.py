"""
One run of a handler: how it ended, what is stored, and what the client gets.

    result_for_gate, failure_for_gate           what the gate gets: the response is complete, or the handler raised
    response_for_outcome, response_for_error    what the client gets: a `Reply`; None: the handler's own response
    handler_response                            the handler's own response, as it is sent

Nothing here does I/O or knows a server; `keyed_exchange_async.py` shows how a request passes through this.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from onceward._core.errors import HandlerFailed, NotSettled, OncewardError
from onceward._core.flow import Raised, Returned
from onceward._core.operation import Operation, Outcome
from onceward._core.reply import Reply
from onceward.http.server.handler_outcomes import (
    ClientLeft,
    CommittedResponse,
    FailedResponse,
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
    """What is known about a handler whose response is complete."""

    raised: BaseException | None = None
    """What it raised, if a framework has made the response from that."""
    committed: bool = False
    """Whether a write of the application was seen to be committed while it ran."""
    commits: bool = False
    """Whether the framework commits the handler's writes whenever it returns, whatever the status."""
    left: bool = False
    """Whether it was stopped in the middle: its client has left, and the response is too long to be stored."""


CLEAN_REPORT = HandlerReport()


class HandlerResponse(NamedTuple):
    """The rest of a handler's own response, and the changes to its headers if they have not been sent."""

    body: bytes
    without: frozenset[str] = frozenset()
    """Headers to leave out, in lower case."""
    more: tuple[tuple[str, str], ...] = ()
    """Headers to add."""


class HandlerRun:
    """A keyed request, and the run of its handler."""

    admission: RequestAdmission[Any]
    admitted: AdmittedRequest
    profile: Profile
    recorder: ResponseRecorder
    """The handler's response, once it has been started."""
    operation: Operation | None = None
    """What the handler is running; None: it was not run."""
    begun = False
    """Whether something has been sent to the client."""
    _reported: BaseException | None = None
    _raised: BaseException | None = None
    _substitute: Reply | None = None
    _outcome: Outcome[Any] | None = None

    def start(self, operation: Operation) -> None:
        """Get ready to run the handler, for the first time or again."""
        if self.begun:
            raise RuntimeError("part of the response has already been sent, so the handler cannot run again")
        self.recorder = ResponseRecorder(self.profile, self.admitted.terms.result_bytes_max)
        self.operation, self._reported, self._raised, self._substitute = operation, None, None, None

    # --- the result for the gate ---

    def result_for_gate(self, report: HandlerReport) -> Returned | Raised:
        """The response is complete, or its client has left: what the gate's function returns or raises."""
        result, (raised, committed, commits, left) = self.recorder.result(), report
        if left and not remembers(self.profile, 500):
            return self._raise_in_gate(ClientLeft("its client left before the end of its response"))
        if raised is None and result.status >= 500 and (committed or commits):
            raised = CommittedResponse(result)
        if result.status >= 500 and _is_error_page_of(raised):
            if remembers(self.profile, result.status):
                return self._remembered(raised)
            if raised is not None and self.profile.transactional and has_settled(self.operation):
                return self._raise_in_gate(raised)  # What was settled is for the next request; this one has failed.
        try:
            return Returned(handler_result(self.profile, result, self.operation, committed=committed))
        except FailedResponse as failure:
            return self._raise_in_gate(failure if raised is None else self._error_for_gate(raised, committed=committed))

    def failure_for_gate(self, error: BaseException) -> Returned | Raised:
        """The handler raised. That is raised again, unless the profile remembers failures."""
        if isinstance(error, Exception) and remembers(self.profile, 500):
            return self._remembered(error)
        self._raised = error
        return self._raise_in_gate(self._error_for_gate(error))

    def _remembered(self, error: BaseException | None) -> Returned:
        """Store a 500 for this key, and send it, too. If a part of another response has been sent, that breaks off."""
        log.error("onceward: the handler of %s raised; its failure is remembered", self.admitted.name, exc_info=error)
        if self.begun:
            self._raised = error
            return Returned(UnstoredResponse(500, error))
        self._substitute = refusal_response(HandlerFailed(), self.profile, pages=self.admission.well_known)
        return Returned(self._substitute)

    def _raise_in_gate(self, error: BaseException) -> Raised:
        self._reported = error
        return Raised(error)

    def _error_for_gate(self, error: BaseException, *, committed: bool = False) -> BaseException:
        """The error that the gate gets for what the handler raised."""
        if self.profile.guarantee != "atomic" or isinstance(error, FailedResponse) or not isinstance(error, Exception):
            return error
        if committed:
            return error  # The profile says that everything rolls back, but some of it was seen to be committed.
        rolled_back = RolledBackError(f"{type(error).__name__}: {error}")
        rolled_back.__cause__ = error
        return rolled_back

    # --- what the client gets ---

    def response_for_outcome(self, outcome: Outcome[Any]) -> Reply | None:
        """The gate has a result: the handler's, or that of an earlier request."""
        if self.operation is None:
            return self.admission.response_for_outcome(self.admitted, outcome)
        self._outcome = outcome
        if self._raised is not None:
            raise self._raised  # It broke off in the middle; so does the response.
        if self._substitute is not None:
            return with_body_marker(
                self._substitute, self.profile, replayed=False, first_at=outcome.first_at.isoformat()
            )
        return settled_response(outcome, self.profile, self.recorder.result()) if self.profile.transactional else None

    def response_for_error(self, error: BaseException) -> Reply | None:
        """The gate raised: the handler's error, or its own. What is not for the client is raised again."""
        if error is self._reported or isinstance(error, FailedResponse | RolledBackError):
            self._log_failure(error)
            if self._raised is not None:
                raise self._raised
            return None  # The handler's own response says what happened to this attempt.
        if not isinstance(error, OncewardError):
            raise error
        if isinstance(error, NotSettled) and self._refuses_by_itself():
            return None
        reply = self.admission.response_for_error(self.admitted, error)  # Logged, too.
        if self.begun:
            raise error  # Too late to send anything else: the response breaks off.
        return reply

    def _refuses_by_itself(self) -> bool:
        """Whether the handler's own response is an error."""
        return self.operation is not None and self.recorder.complete and is_own_refusal(self.recorder.result())

    def _log_failure(self, error: BaseException) -> None:
        """Log why a keyed request failed, and what that means for its key."""
        known = isinstance(error, FailedResponse | RolledBackError)
        cause = str(error) if known else f"{type(error).__name__}: {error}"
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        log.error("onceward: the handler of %s failed: %s%s", self.admitted.name, cause, notes)

    # --- the handler's own response ---

    def begin(self) -> tuple[tuple[str, str], ...]:
        """The headers are about to be sent, before the end of the response: the headers to add to them."""
        self.begun = True
        return self.recorder.notice

    def handler_response(self) -> HandlerResponse:
        """The rest of the handler's own response. It is stored now, or need not be."""
        body = self.recorder.rest()
        if self.begun:
            return HandlerResponse(body)
        notice = self.recorder.notice
        wrapped = None
        if self.profile.marker == "envelope":
            wrapped = enveloped_body(self.recorder.result(), self.profile, self._outcome)
        if wrapped is None:
            return HandlerResponse(body, more=notice)
        return HandlerResponse(wrapped, BODY_HEADERS, (("content-length", str(len(wrapped))), *notice))


def _is_error_page_of(raised: BaseException | None) -> bool:
    """Whether a response is a framework's error page for an exception, and not the handler's own."""
    return isinstance(raised, Exception) and not isinstance(raised, FailedResponse)
