"""
What came of a delivered message, and what its queue is to do with it. Of no colour, and no I/O.

    done      it happened, now or before: acknowledge
    later     not run now (another worker has it, the store is away): put back, for `delay` seconds
    dead      not to be run again, or not before somebody has decided: a dead letter is kept; acknowledge
    failed    it failed and may be tried again: as the queue does it; `delay` is for one that has no rule of its own

Nothing is acknowledged before it is settled, or its dead letter is stored. Doubt is never repeated by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from onceward._core import record
from onceward._core.attempt_history import summarize_attempt
from onceward._core.classifier import Classifier
from onceward._core.dead_letters import DeadLetter
from onceward._core.errors import (
    BudgetExhausted,
    CircuitOpen,
    ConfigurationError,
    DeadlineExceeded,
    Expired,
    KeyInvalid,
    NothingHappened,
    NotReplayable,
    OncewardError,
    OwnershipLost,
    RetryAdvice,
    SchemaMismatch,
    SealBroken,
    SealKeyMissing,
    StoreCorrupt,
    StoreForgot,
    Unrecorded,
)
from onceward._core.operation import Operation, Outcome
from onceward._core.stops import GivenUp, Stop, StopReason
from onceward._core.terms import Options
from onceward._core.verdict import Action, Certainty, Verdict
from onceward.queues.message import MessageKind, QueueMessage

_log = logging.getLogger("onceward.queues")

DELAY_SECONDS = 5.0
"""Until a message is tried again that could not be begun, if nobody says how long: a store needs a while to be back."""
DELAY_MIN, DELAY_MAX = 0.1, 60.0
"""Between these, whatever is asked: no storm of redeliveries, and nobody waits an hour for a mended store."""

_NOT_NOW = (CircuitOpen, BudgetExhausted, DeadlineExceeded)
_NOT_ITS_FAULT = (SchemaMismatch, SealBroken, SealKeyMissing, StoreCorrupt, ConfigurationError)
"""What is wrong with the worker, and not with the message: it is put back until somebody has mended that."""


class AskedAgain(NothingHappened):
    """The work was begun and asks to be begun again; `result` is what it returned to say so."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class Poisoned(NothingHappened):
    """
    This message was begun as often as it may be, and came to no end. It was not begun again.

    A loop must not repeat it: look at its dead letter.
    """

    retry = RetryAdvice.NEVER


@dataclass(frozen=True, slots=True)
class MessageQueue:
    """What an adapter says about its queue, once."""

    name: str
    retries: tuple[type[BaseException], ...] = ()
    """Exceptions by which work asks for a retry. If one has a reason (its `exc`, its cause), that is what happened."""
    control_flow: tuple[type[BaseException], ...] = ()
    """Other exceptions that are no failures: they pass through, and the key is free again."""
    sends_first: bool = False
    """Whether such a retry is in the queue already when it is raised, as Celery's is: it cannot be called back."""

    def reason_of(self, error: BaseException) -> BaseException:
        """What happened, in an exception that asks for a retry."""
        if not isinstance(error, self.retries):
            return error
        for reason in (getattr(error, "exc", None), error.__cause__, error.__context__):
            if isinstance(reason, BaseException):
                return reason
        return error

    def terms(self, kind: MessageKind) -> Options:
        """What the gate is told about this kind of message, in this queue."""
        said = kind.terms()
        before = said.get("before", ())
        said["before"] = (*(before if isinstance(before, tuple) else (before,)), *self.retries, *self.control_flow)
        return said


PLAIN = MessageQueue("plain")


class DeliveryEnd(NamedTuple):
    """What came of a delivered message."""

    end: Literal["done", "later", "dead", "failed"]
    value: Any = None
    """If done: what the work returned, now or before."""
    error: BaseException | None = None
    """Why not; if done, that its result is not kept any more (a queue with results must say so)."""
    delay: float = 0.0
    """Seconds until it may be delivered again."""
    replayed: bool = False
    letter: DeadLetter | None = None
    """If dead: the letter that was kept."""


class MessageAttempt:
    """What is known of a delivered message while it is worked on."""

    __slots__ = ("_attempts", "_classifier", "_last", "_operation", "_queue", "_raised", "_reason", "kind", "message")

    def __init__(
        self,
        message: QueueMessage,
        kind: MessageKind,
        queue: MessageQueue,
        *,
        attempts: int,
        classifier: Classifier,
        last: Callable[[BaseException], bool] | None,
    ) -> None:
        self.message, self.kind, self._queue = message, kind, queue
        self._attempts = kind.attempts or attempts
        self._classifier, self._last = classifier, last
        self._operation: Operation | None = None
        self._raised: BaseException | None = None
        self._reason: BaseException | None = None

    # --- while it runs ---

    def begin(self, operation: Operation) -> None:
        """The work is about to begin. Raises `Poisoned` if it was begun often enough."""
        self._operation = operation
        if operation.attempt > self._attempts:
            self._raised = self._reason = Poisoned()
            raise self._reason

    def raised(self, error: BaseException) -> BaseException:
        """The work raised this; what the gate is to be told."""
        self._raised, self._reason = error, self._queue.reason_of(error)
        return self._reason

    # --- how it ended ---

    def done(self, outcome: Outcome[Any]) -> DeliveryEnd:
        """It happened, now or before."""
        return DeliveryEnd("done", outcome.answer, replayed=outcome.replayed)

    def came_to(self, error: BaseException) -> DeliveryEnd:
        """What a message comes to whose call raised. An error that is nobody's to decide (an interrupt) is raised."""
        if self._raised is not None and self._reason is not None and error is self._reason:
            return self._failed(self._raised, self._reason)
        if not isinstance(error, OncewardError):
            raise error
        return self._refused(error) if self._operation is None else self._not_recorded(error)

    def _failed(self, raised: BaseException, reason: BaseException) -> DeliveryEnd:
        if isinstance(raised, AskedAgain) or isinstance(reason, (*self._queue.retries, *self._queue.control_flow)):
            return DeliveryEnd("failed", error=raised)
        if not isinstance(raised, Exception):
            raise raised  # A shutdown, a time limit: the queue's own. The next delivery finds the record.
        if self._queue.sends_first and isinstance(raised, self._queue.retries):
            return DeliveryEnd("failed", error=raised)
        if self._doubtful() or self._permanent(reason) or self._spent() or (self._last and self._last(raised)):
            return DeliveryEnd("dead", error=raised)
        return DeliveryEnd("failed", error=raised, delay=_backoff(self._number()))

    def _refused(self, error: OncewardError) -> DeliveryEnd:
        if isinstance(error, Expired | NotReplayable):
            return DeliveryEnd("done", error=error, replayed=True)
        own = isinstance(error, _NOT_ITS_FAULT) and not isinstance(error, KeyInvalid)
        if own or error.retry is RetryAdvice.SAME_KEY or isinstance(error, _NOT_NOW):
            level = logging.ERROR if own else logging.INFO
            _log.log(
                level, "onceward: %s goes back to the queue: %s (record %s)", self.message.name, error, error.digest
            )
            return DeliveryEnd("later", error=error, delay=_asked(error))
        return DeliveryEnd("dead", error=error)

    def _not_recorded(self, error: OncewardError) -> DeliveryEnd:
        """The work ran, and its record could not be ended: what it returned is the answer, if it is known."""
        _log.error("onceward: %s ran, and: %s (record %s)", self.message.name, error, error.digest)
        if isinstance(error, OwnershipLost) and error.outcome is not None:
            return DeliveryEnd("done", error.outcome.value)
        if isinstance(error, Unrecorded | StoreForgot) and error.value is not None:
            return DeliveryEnd("done", error.value)
        return self._refused(error)

    # --- its dead letter ---

    def letter(self, end: DeliveryEnd, key: str | None, fn: Any, wall_us: int) -> tuple[Stop, GivenUp]:
        """What the dead letter of this message says."""
        error = self._reason if self._reason is not None else end.error
        verdict = self._verdict(error)
        stop = Stop(
            reason=self._why(verdict),
            attempts=self._number(),
            elapsed=0.0,
            verdict=verdict,
            last=verdict,
            name=self.message.name,
            key=key,
            problem=error,
            tries=(summarize_attempt(max(self._number(), 1), wall_us, 0.0, verdict, error),),
        )
        call = GivenUp(self.message.name, key, fn, self.message.args, dict(self.message.kwargs))
        return stop, call

    def _why(self, verdict: Verdict) -> StopReason:
        if self._spent():
            return StopReason.ATTEMPTS
        return StopReason.NO_KEY if verdict.happened is None else StopReason.NEVER

    def _verdict(self, error: BaseException | None) -> Verdict:
        verdict = self._classifier.judge(error)
        if self._operation is None:
            return verdict
        if not record.is_released(self._operation.record):
            return verdict._replace(certainty=Certainty.UNKNOWN)
        # Whatever else is released was proved not to have happened.
        freed = verdict.certainty is Certainty.UNKNOWN and self.kind.kind != "repeatable"
        return verdict._replace(certainty=Certainty.REJECTED) if freed else verdict

    def _number(self) -> int:
        return 0 if self._operation is None else self._operation.attempt

    def _doubtful(self) -> bool:
        """Whether it may have happened, and nothing makes it safe to begin again."""
        return (
            self.kind.kind == "blind" and self._operation is not None and not record.is_released(self._operation.record)
        )

    def _permanent(self, reason: BaseException) -> bool:
        if isinstance(reason, self.kind.permanent):
            return True
        verdict = self._classifier.judge(reason)
        return verdict.happened is False and verdict.action is not Action.SAME_KEY

    def _spent(self) -> bool:
        return self._number() >= self._attempts


def _asked(error: OncewardError) -> float:
    asked = error.retry_after_seconds
    return DELAY_SECONDS if asked is None else min(max(asked, DELAY_MIN), DELAY_MAX)


def _backoff(attempt: int) -> float:
    return min(2.0 ** min(attempt - 1, 10), DELAY_MAX)
