"""
Notes every call that may change something: who called what, under which key, and how it ended.

Written behind the calls, so that no call waits for it. A key is noted as the digest that the logs show.
"""

from __future__ import annotations

from operator import itemgetter
from threading import Lock

from starlette.requests import Request
from starlette.responses import Response

from onceward._core.errors import OncewardError
from onceward.journal import AsyncJournal, CallOutcome
from onceward.journal.notes import CallDetails, CallSubject, JournalNote
from onceward.runtime.environment import REAL, Environment
from onceward.service.access import Caller
from onceward.service.web.calls import OnCallEnded, only_read
from onceward.service.web.request_head import KEY_FIELDS, head_of

PATH_MAX = 200
_CHANGES_NOTHING = ("GET", "HEAD", "OPTIONS")
_name_of = itemgetter(0)
_REPLAYED = frozenset((b"idempotency-replayed", b"plan-replayed"))
IDEMPOTENCY_KEY, PLAN_KEY, PLAN_STEP = KEY_FIELDS


def open_service_journal(url: str) -> AsyncJournal:
    """The journal beside a service's records. Each note has its tenant's scope."""
    return AsyncJournal(url, scope="operator:service", worker="service")


class JournalObserver:
    """
    A `CallObserver` that notes every call which may change something. A call that has only read is left out, unless it
    took so long that its beginning is there.

    Only ends are handed to the journal. Whoever writes it asks, before each writing, for the beginnings of what is
    still under way: most calls have ended by then, and need one row.
    """

    def __init__(self, journal: AsyncJournal, environment: Environment = REAL) -> None:
        self._journal = journal
        self._environment = environment
        self._open: dict[str, CallSubject] = {}
        self._noting = Lock()
        """Held while beginnings are noted: what has only read must not be noted after it was found that it was not."""
        journal.ask_for_more(self._begun_meanwhile)

    def begun(self, caller: Caller, request: Request) -> OnCallEnded:
        """A call begins."""
        if request.method in _CHANGES_NOTHING:
            return _unnoted
        digests = head_of(request.scope).digests()
        plan = digests.get(PLAN_KEY)
        what = CallDetails(
            scope=caller.scope,
            worker=caller.token,
            # As it was routed: `request.url` is made from the header Host, too.
            tool=f"{request.method} {str(request.scope['path'])[:PATH_MAX]}",
            run=None if plan is None else f"plan:{plan}",
            digest=digests.get(PLAN_STEP if plan is not None else IDEMPOTENCY_KEY),
        )
        subject = CallSubject(self._environment, what)
        if not self._open:
            self._journal.put([])  # So that somebody writes, whether or not any call ends.
        self._open[subject.about] = subject

        def ended(response: Response | None, refused: OncewardError | None) -> None:
            if only_read(request) and refused is None and self._leaves_out(subject):
                return
            how = call_outcome(response, refused)
            detail = refused.code if refused is not None else str(response.status_code) if response else None
            self._journal.put([subject.ended(how.value, detail)])
            self._open.pop(subject.about, None)

        return ended

    def _begun_meanwhile(self) -> list[JournalNote]:
        """The beginnings of what is under way, each once. Called by whoever writes, in a thread of its own."""
        with self._noting:
            return [one.begun() for one in tuple(self._open.values()) if not one.noted]

    def _leaves_out(self, subject: CallSubject) -> bool:
        """Leave a call out of the journal, unless its beginning is there."""
        with self._noting:
            if not subject.noted:
                del self._open[subject.about]
            return not subject.noted


def _unnoted(response: Response | None, refused: OncewardError | None) -> None:
    """Of a call that changes nothing."""


def call_outcome(response: Response | None, refused: OncewardError | None) -> CallOutcome:
    """How a call ended, as far as its response tells."""
    if response is None or response.status_code >= 499:
        return CallOutcome.UNKNOWN
    if refused is not None:
        # The statement ran, and was undone.
        return CallOutcome.FAILED if refused.code == "sql_error" else CallOutcome.REFUSED
    if response.status_code == 202:
        return CallOutcome.REFUSED  # Another request with its key runs; this one did nothing.
    fresh = _REPLAYED.isdisjoint(map(bytes.lower, map(_name_of, response.raw_headers)))
    return CallOutcome.EXECUTED if fresh else CallOutcome.REPLAYED
