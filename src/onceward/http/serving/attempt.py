"""
One run of a handler under a blocking gate: its answer is recorded as it is given, and its end is told to the gate.

    answered    the answer is complete: it is stored, and then it may be given
    failed      the handler raised

Both say what the client gets: None is the handler's own answer, a `Reply` stands in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onceward._core.errors import HandlerFailed, NotSettled, OncewardError
from onceward._core.flow import Raised, Returned
from onceward._core.operation import Operation, Outcome
from onceward._core.reply import Reply
from onceward.gate import Gate
from onceward.gate.holding import Holding
from onceward.http.serving.answers import settled_answer
from onceward.http.serving.profile import Profile
from onceward.http.serving.reception import Admitted, Reception, log
from onceward.http.serving.recording import Recording
from onceward.http.serving.running import (
    FailedAnswer,
    RaisedAndRolledBack,
    Unkept,
    ended,
    refuses_by_itself,
    remembers,
)


def hold(reception: Reception[Gate], admitted: Admitted, gate: Gate) -> Attempt | Reply:
    """Claim a keyed request whose body is there; or what its client is told at once."""
    identity = admitted.identity
    claim = gate.hold if identity.plan is None else gate.plan(identity.plan).hold
    found = claim(
        identity.key,
        request=admitted.fingerprint.digest(),
        name=admitted.name,
        probe=admitted.profile.probe,
        marked=False,
        **admitted.options,
    )
    if isinstance(found, Outcome):
        return reception.answer(admitted, found)
    return Attempt(reception, admitted, found, admitted.terms.result_bytes_max)


class Attempt:
    """A handler's run."""

    def __init__(self, reception: Reception[Gate], admitted: Admitted, holding: Holding, limit: int) -> None:
        self._reception, self._admitted, self._holding = reception, admitted, holding
        self.profile = admitted.profile
        self.recording = Recording(admitted.profile, limit)
        self.begun = False
        """Whether the client has been sent something."""
        self.outcome: Outcome[object] | None = None
        """What the gate made of it."""

    @property
    def operation(self) -> Operation:
        """What the handler is running."""
        return self._holding.operation

    def answered(self, raised: BaseException | None = None, *, committed: bool = False) -> Reply | None:
        """
        The answer is complete. `raised`, if a framework has made it from an exception; `committed`, if something of
        the application's is known to be.
        """
        result = self.recording.result()
        return self._end(how_it_ended(self.profile, result, raised, self.operation, committed=committed))

    def failed(self, error: BaseException) -> Reply:
        """The handler raised; raised again, unless that is what its key is remembered by."""
        if isinstance(error, Exception) and remembers(self.profile, 500):
            log_remembered(self._admitted, error)
            reply = self._reception.refuse(HandlerFailed(), self.profile)
            instead = self._end(Returned(Unkept(500, error) if self.begun else reply))
            if self.begun:
                raise error  # It broke off in the middle; so does the answer.
            return instead or reply
        instead = self._end(Raised(meant(self.profile, error)))
        if instead is None or self.begun:
            raise error
        return instead

    def _end(self, how: Returned | Raised) -> Reply | None:
        told = how.error if isinstance(how, Raised) else None
        try:
            outcome = self.outcome = self._holding.end(how)
        except BaseException as error:
            if error is told:
                log_failure(self._admitted, error)
                return None
            if isinstance(error, NotSettled) and refuses_by_itself(self.recording.result()):
                return None
            if not isinstance(error, OncewardError):
                raise
            refusal = self._reception.refused(self._admitted, error)
            if self.begun:
                raise  # Too late to say anything else: the answer breaks off.
            return refusal
        return settled_answer(outcome, self.profile, self.recording.result()) if self.profile.transactional else None


def how_it_ended(
    profile: Profile,
    result: Reply | Unkept,
    raised: BaseException | None,
    operation: Operation,
    *,
    committed: bool = False,
) -> Returned | Raised:
    """A handler's answer, as the gate is told. See `Attempt.answered`."""
    try:
        return Returned(ended(profile, result, operation, committed=committed))
    except FailedAnswer as failure:
        return Raised(failure if raised is None else meant(profile, raised, committed=committed))


def stands_for(profile: Profile, status: int, raised: BaseException | None) -> bool:
    """Whether a framework's page for an exception is remembered: then everybody gets `handler_failed` in its place."""
    is_raised = isinstance(raised, Exception) and not isinstance(raised, FailedAnswer)
    return is_raised and status >= 500 and remembers(profile, status)


def meant(profile: Profile, error: BaseException, *, committed: bool = False) -> BaseException:
    """What the gate is told that a handler raised."""
    if profile.guarantee != "atomic" or isinstance(error, FailedAnswer) or not isinstance(error, Exception):
        return error
    if committed:
        return error  # It says that all of it rolls back, and some of it was seen to stay.
    rolled_back = RaisedAndRolledBack(f"{type(error).__name__}: {error}")
    rolled_back.__cause__ = error
    return rolled_back


def log_remembered(admitted: Admitted, error: BaseException | None) -> None:
    """Say why a keyed request is answered `handler_failed` from now on."""
    log.error("onceward: the handler of %s raised; its failure is remembered", admitted.name, exc_info=error)


def log_failure(admitted: Admitted, error: BaseException) -> None:
    """Say why a keyed request was answered 5xx, and what that means for its key."""
    known = isinstance(error, FailedAnswer | RaisedAndRolledBack)
    words = str(error) if known else f"{type(error).__name__}: {error}"
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    log.error("onceward: the handler of %s failed: %s%s", admitted.name, words, notes)


class Pulled:
    """
    An answer that is pulled from its handler piece by piece, by the server that sends it.

    `until_passing` first: it pulls as long as everything is held back. What it returns may be sent, then what
    iterating gives. If nothing may pass before all of it is stored, it returns None; `instead` and `rest` are the
    answer then. `close`, always: a client that left does not end what it began.
    """

    def __init__(self, attempt: Attempt, pieces: Iterator[tuple[bytes, bool]], release: Callable[[], None]) -> None:
        self._attempt = attempt
        self._pieces = pieces
        self._release: Callable[[], None] | None = release
        self._ready: list[bytes] = []
        self._ended = False
        self.instead: Reply | None = None
        """What is answered in place of the handler's answer."""

    def until_passing(self) -> bool:
        """Whether the answer may begin before it is complete. If not, it is complete and stored."""
        piece = self._pull()
        if piece is None:
            return False
        self._ready.append(piece)
        return True

    @property
    def rest(self) -> bytes:
        """What was held back."""
        return self._attempt.recording.rest()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._ready:
            return self._ready.pop()
        if self._ended:
            raise StopIteration
        piece = self._pull()
        if piece is None:
            piece = self.rest
        if not piece:
            raise StopIteration
        return piece

    def close(self) -> None:
        """
        The server sends no more of it. The rest is recorded, so that a retry has it; unless it cannot be kept anyway.
        """
        while not self._ended and self._attempt.recording.keeps:
            self._pull()
        if not self._ended:
            self._settle()

    def _pull(self) -> bytes | None:
        """The next piece that may be sent; None: that was all, and it is stored."""
        recording = self._attempt.recording
        try:
            for piece, more in self._pieces:
                free = recording.feed(piece, more=more)
                if recording.complete:
                    break
                if free:
                    self._attempt.begun = True
                    return free
        except BaseException as error:
            self._fail(error)
            return None
        self._settle()
        return None

    def _settle(self) -> None:
        self._ended = True
        try:
            self._let_go()
        except BaseException as error:
            self.instead = self._attempt.failed(error)
        else:
            if not self._attempt.recording.complete:
                self._attempt.recording.feed(b"", more=False)
            self.instead = self._attempt.answered()

    def _fail(self, error: BaseException) -> None:
        self._ended = True
        try:
            self._let_go()
        except Exception:
            log.exception("onceward: an answer that broke off could not be closed, either")
        self.instead = self._attempt.failed(error)

    def _let_go(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()
