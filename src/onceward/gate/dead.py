# Made from dead_async.py by `make halves`: change that file, not this one.
"""
Dead letters in a gate's store: put by a retry policy, looked at and decided by people and programs.

    dead = gate.dead_letters(payload="plain")
    policy = Retry(key="charge:{order_id}", dead=dead)

    @dead.handler("charge")
    def charge(order_id: str, amount: Decimal) -> dict: ...

    dead.requeue("charge:o-17")      under the same key, through the gate

A requeue runs the handler under the operation's own key: once it has succeeded, another requeue replays its answer,
also if this process dies before the letter is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from onceward._core.engine import operate
from onceward._core.errors import OncewardError
from onceward._core.flow import Flow
from onceward._core.letters import (
    Letter,
    bury,
    discard,
    is_letter,
    letter_of,
    lookup,
    readable,
)
from onceward._core.stops import GivenUp, Stop
from onceward._core.terms import Seconds
from onceward.gate.asking import SCAN_PAGE, Asking
from onceward.gate.handling import (
    Sealing,
)
from onceward.gate.letterbox import Job, Letters, not_updated
from onceward.gate.operating import CANDIDATES_MAX, after_just_before

if TYPE_CHECKING:
    from onceward.gate import Gate

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class DeadLetterBox(Letters):
    """The dead letters of one scope, in its gate's store. Made by `gate.dead_letters()`; given to `Retry(dead=...)`."""

    _awaits = False

    def __init__(self, gate: Gate, asking: Asking, payload: Sealing, keep: Seconds, payload_bytes_max: int) -> None:
        super().__init__(asking, payload, keep, payload_bytes_max)
        self.gate = gate

    def put(self, stop: Stop, call: GivenUp) -> Letter:
        """Keep a call that was given up; given up again, it is the same letter, counted up. Policies call this."""
        return self._drive(bury(self._draft(stop, call), self._keep))

    def get(self, which: Letter | str) -> Letter | None:
        """The letter about a key (or a letter, as it is now); None if there is none."""
        found = self._drive(lookup(self._id(which)))
        return letter_of(found) if is_letter(found) else None

    def list(self, *, after: str = "", limit: int = SCAN_PAGE) -> tuple[Letter, ...]:
        """One page of letters in order of id, beginning after an id."""
        last, letters = bytes.fromhex(after), ()
        while len(letters) < limit and (page := self.gate.store.scan(last, limit - len(letters), self._selection)):
            letters, last = (*letters, *readable(page)), page[-1].id  # type: ignore[assignment]
        return letters

    def find(self, digits: str) -> tuple[Letter, ...]:
        """The letters whose ids begin with these hex digits (a digest, say), ten at most."""
        page = self.gate.store.scan(after_just_before(digits), CANDIDATES_MAX, self._selection)
        return tuple(one for one in readable(page) if one.id.startswith(digits))

    def requeue(self, which: Letter | str, *, did_not_happen: bool = False) -> Any:
        """
        Do it again, under the same key, with the handler of its name; what that returned.

        Refused while the operation's record is in doubt (reconcile it first), without a handler, or without the
        payload that the handler needs. `did_not_happen` says, of a call without a key that may have happened, that you
        have looked. If it succeeds, the letter is discarded; if not, it is updated and the error is raised.
        """
        letter = self.get(which)
        if letter is None:
            raise self._missing(which)
        job = self._job(letter, self._drive(lookup(self._record_id(letter))), did_not_happen)
        try:
            value = self._done(job)
        except Exception as error:
            flow = self._in_vain(job, error)
            if flow is not None:
                self._quietly(flow, letter)
            raise
        self._quietly(discard(bytes.fromhex(letter.id)), letter)
        return value

    def discard(self, which: Letter | str) -> bool:
        """Let go of a letter and all that it holds; whether there was one."""
        return self._drive(discard(self._id(which)))

    def _done(self, job: Job) -> Any:
        if job.called is None:
            value = job.handler.fn(*job.arguments.args, **job.arguments.kwargs)
        else:
            value = self.gate.drive(operate(job.called.ask), job.called).answer
        return value

    def _drive(self, flow: Flow[T]) -> T:
        return self.gate.drive(flow, self._about())

    def _quietly(self, flow: Flow[Any], letter: Letter) -> None:
        try:
            self._drive(flow)
        except OncewardError as error:
            not_updated(letter, error)
