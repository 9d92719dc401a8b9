"""
A keyed request whose response the server pulls piece by piece: WSGI, and Django's streams.

Its claim is held open: the server pulls long after the handler has returned, so it cannot run inside the gate's `call`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onceward._core.errors import OncewardError
from onceward._core.flow import Raised, Returned
from onceward._core.operation import Outcome
from onceward._core.reply import Reply
from onceward.gate.held_operation import HeldOperation
from onceward.http.server.handler_run import CLEAN_REPORT, HandlerReport
from onceward.http.server.keyed_exchange import KeyedExchange
from onceward.http.server.request_admission import log


class PullExchange(KeyedExchange):
    """A keyed request whose claim is held until its response has been pulled."""

    _holding: HeldOperation

    def hold(self) -> Reply | None:
        """Claim it. The reply to send at once; None: run the handler, then call `completed` or `failed`."""
        key, plan = self.admitted.identity
        goes_on = False
        try:
            if plan is None:
                found = self.gate.held(self._ready)
            else:
                found = self.gate.plan(plan).hold(key, **self.step_arguments())
            if isinstance(found, Outcome):
                return self.response_for_outcome(found)
            self._holding = found
            self.start(found.operation)
            goes_on = True
        except OncewardError as error:
            return self.response_for_error(error)
        finally:
            if not goes_on:
                self.body.close()
        return None

    def completed(self, report: HandlerReport = CLEAN_REPORT) -> Reply | None:
        """The handler's response is complete. The reply to send in its place; None: send that."""
        return self._end(self.result_for_gate(report))

    def failed(self, error: BaseException) -> Reply:
        """The handler raised. The reply to send, or the error is raised again."""
        instead = self._end(self.failure_for_gate(error))
        if instead is None:
            raise error
        return instead

    def _end(self, how: Returned | Raised) -> Reply | None:
        try:
            outcome = self._holding.end(how)
        except BaseException as error:
            raised = error
        else:
            return self.response_for_outcome(outcome)
        return self.response_for_error(raised)


class PulledResponse:
    """
    The pieces of one response.

    Call `until_passing` first: it pulls as long as everything is held back. If it returns True, send what iterating
    gives. If not, the response is complete and stored: send `substitute`, or the handler's own. Always call `close`: it
    records the rest of a response whose client has left.
    """

    def __init__(
        self,
        exchange: PullExchange,
        pieces: Iterator[tuple[bytes, bool]],
        release: Callable[[], None],
        report: Callable[[], HandlerReport] = lambda: CLEAN_REPORT,
    ) -> None:
        self._exchange = exchange
        self._pieces = pieces
        self._release: Callable[[], None] | None = release
        self._report = report
        self._ready: list[bytes] = []
        self._ended = False
        self.substitute: Reply | None = None
        """What is sent in place of the handler's response."""

    def until_passing(self) -> bool:
        """Whether the response may begin before it is complete. If not, it is complete and stored."""
        piece = self._pull()
        if piece is None:
            return False
        self._ready.append(piece)
        return True

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._ready:
            return self._ready.pop()
        if self._ended:
            raise StopIteration
        piece = self._pull()
        if piece is None:
            piece = self._exchange.handler_response().body
        if not piece:
            raise StopIteration
        return piece

    def close(self) -> None:
        """The server sends no more of it. The rest is recorded for a retry, unless it is too long to be stored."""
        while not self._ended and self._exchange.recorder.keeps:
            self._pull()
        if not self._ended:
            self._settle(left=True)

    def _pull(self) -> bytes | None:
        """The next piece that may be sent; None: that was all, and it is stored."""
        recorder = self._exchange.recorder
        try:
            for piece, more in self._pieces:
                free = recorder.feed(piece, more=more)
                if recorder.complete:
                    break
                if free:
                    return free
        except BaseException as error:
            self._fail(error)
            return None
        self._settle()
        return None

    def _settle(self, *, left: bool = False) -> None:
        self._ended = True
        try:
            self._close_source()
        except BaseException as error:
            self.substitute = self._exchange.failed(error)
        else:
            if not self._exchange.recorder.complete:
                self._exchange.recorder.feed(b"", more=False)
            self.substitute = self._exchange.completed(self._report()._replace(left=left))

    def _fail(self, error: BaseException) -> None:
        self._ended = True
        try:
            self._close_source()
        except Exception:
            log.exception("onceward: a response ended early, and closing it also failed")
        self.substitute = self._exchange.failed(error)

    def _close_source(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()
