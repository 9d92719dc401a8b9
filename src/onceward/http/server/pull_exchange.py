"""
An answer that is pulled from its handler piece by piece, by the server that sends it: WSGI's, and Django's streams.

Its claim is held: the server pulls long after the handler has returned, so nothing can run to its end inside the gate.
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
    """A keyed request whose claim is held until its answer has been pulled."""

    _holding: HeldOperation

    def hold(self) -> Reply | None:
        """Claim it; what its client gets at once. None: run the handler, and tell how that ended."""
        gate, claim = self.claim_arguments()
        key, plan = self.admitted.identity
        hold = gate.hold if plan is None else gate.plan(plan).hold
        goes_on = False
        try:
            found = hold(key, marked=False, **claim, **self.admitted.options)
            if isinstance(found, Outcome):
                return self.given(found)
            self._holding = found
            self.start(found.operation)
            goes_on = True
        except OncewardError as error:
            return self.refused(error)
        finally:
            if not goes_on:
                self.spool.close()
        return None

    def answered(self, answered: HandlerReport = CLEAN_REPORT) -> Reply | None:
        """The answer is complete. What its client gets in its place; None: that."""
        return self._end(self.result_for_gate(answered))

    def failed(self, error: BaseException) -> Reply:
        """The handler raised: that is raised again, or this is answered."""
        instead = self._end(self.failure_for_gate(error))
        if instead is None:
            raise error
        return instead

    def _end(self, how: Returned | Raised) -> Reply | None:
        try:
            outcome = self._holding.end(how)
        except BaseException as error:
            struck = error
        else:
            return self.given(outcome)
        return self.refused(struck)


class PulledResponse:
    """
    The pieces of one answer.

    `until_passing` first: it pulls as long as everything is held back. If it says True, what iterating gives may be
    sent. If not, the answer is complete and stored: `substitute`, or the handler's own. `close`, always: a client that
    left does not end what it began.
    """

    def __init__(
        self,
        exchange: PullExchange,
        pieces: Iterator[tuple[bytes, bool]],
        release: Callable[[], None],
        answered: Callable[[], HandlerReport] = lambda: CLEAN_REPORT,
    ) -> None:
        self._exchange = exchange
        self._pieces = pieces
        self._release: Callable[[], None] | None = release
        self._answered = answered
        self._ready: list[bytes] = []
        self._ended = False
        self.substitute: Reply | None = None
        """What is answered in place of the handler's answer."""

    def until_passing(self) -> bool:
        """Whether the answer may begin before it is complete. If not, it is complete and stored."""
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
            piece = self._exchange.own().body
        if not piece:
            raise StopIteration
        return piece

    def close(self) -> None:
        """
        The server sends no more of it. The rest is recorded, so that a retry has it; unless it cannot be kept anyway.
        """
        while not self._ended and self._exchange.recording.keeps:
            self._pull()
        if not self._ended:
            self._settle(left=True)

    def _pull(self) -> bytes | None:
        """The next piece that may be sent; None: that was all, and it is stored."""
        recording = self._exchange.recording
        try:
            for piece, more in self._pieces:
                free = recording.feed(piece, more=more)
                if recording.complete:
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
            self._let_go()
        except BaseException as error:
            self.substitute = self._exchange.failed(error)
        else:
            if not self._exchange.recording.complete:
                self._exchange.recording.feed(b"", more=False)
            self.substitute = self._exchange.answered(self._answered()._replace(left=left))

    def _fail(self, error: BaseException) -> None:
        self._ended = True
        try:
            self._let_go()
        except Exception:
            log.exception("onceward: an answer that broke off could not be closed, either")
        self.substitute = self._exchange.failed(error)

    def _let_go(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()
