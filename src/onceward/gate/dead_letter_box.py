# Made from dead_letter_box_async.py by `make halves`: change that file, not this one.
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

from onceward._core.dead_letters import (
    DeadLetter,
    dead_letter_of,
    discard,
    is_dead_letter,
    lookup,
    put_dead_letter,
    readable_dead_letters,
)
from onceward._core.errors import OncewardError
from onceward._core.flow import Flow
from onceward._core.stops import GivenUp, Stop
from onceward._core.terms import Seconds
from onceward.gate.call_factory import SCAN_PAGE, CallFactory
from onceward.gate.dead_letter_box_base import DeadLetterBoxBase, RequeueJob, log_not_updated
from onceward.gate.dead_letter_handlers import PayloadMode
from onceward.gate.operator_actions import CANDIDATES_MAX, scan_start_of

if TYPE_CHECKING:
    from onceward.gate import Gate

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class DeadLetterBox(DeadLetterBoxBase):
    """The dead letters of one scope, in its gate's store. Made by `gate.dead_letters()`; given to `Retry(dead=...)`."""

    _awaits = False

    def __init__(
        self, gate: Gate, call_factory: CallFactory, payload: PayloadMode, keep: Seconds, payload_bytes_max: int
    ) -> None:
        super().__init__(call_factory, payload, keep, payload_bytes_max)
        self.gate = gate

    def put(self, stop: Stop, call: GivenUp) -> DeadLetter:
        """Keep a call that was given up; given up again, it is the same letter, counted up. Policies call this."""
        letter = self._drive(put_dead_letter(self._draft(stop, call), self._keep))
        return self._call_factory.dead_lettered(letter)

    def get(self, which: DeadLetter | str) -> DeadLetter | None:
        """The letter about a key (or a letter, as it is now); None if there is none."""
        found = self._drive(lookup(self._id(which)))
        return dead_letter_of(found) if is_dead_letter(found) else None

    def list(self, *, after: str = "", limit: int = SCAN_PAGE) -> tuple[DeadLetter, ...]:
        """One page of letters in order of id, beginning after an id."""
        last, letters = bytes.fromhex(after), ()
        while len(letters) < limit and (page := self.gate.store.scan(last, limit - len(letters), self._selection)):
            letters, last = (*letters, *readable_dead_letters(page)), page[-1].id  # type: ignore[assignment]
        return letters

    def find(self, digits: str) -> tuple[DeadLetter, ...]:
        """The letters whose ids begin with these hex digits (a digest, say), ten at most."""
        page = self.gate.store.scan(scan_start_of(digits), CANDIDATES_MAX, self._selection)
        return tuple(one for one in readable_dead_letters(page) if one.id.startswith(digits))

    def requeue(self, which: DeadLetter | str, *, did_not_happen: bool = False) -> Any:
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
            flow = self._requeue_failed(job, error)
            if flow is not None:
                self._drive_logged(flow, letter)
            raise
        self._drive_logged(discard(bytes.fromhex(letter.id)), letter)
        return value

    def discard(self, which: DeadLetter | str) -> bool:
        """Let go of a letter and all that it holds; whether there was one."""
        return self._drive(discard(self._id(which)))

    def _done(self, job: RequeueJob) -> Any:
        if job.prepared is None:
            value = job.handler.fn(*job.arguments.args, **job.arguments.kwargs)
        else:
            value = self.gate.operate(job.prepared).answer
        return value

    def _drive(self, flow: Flow[T]) -> T:
        return self.gate.drive(flow, self._about())

    def _drive_logged(self, flow: Flow[Any], letter: DeadLetter) -> None:
        try:
            self._drive(flow)
        except OncewardError as error:
            log_not_updated(letter, error)
