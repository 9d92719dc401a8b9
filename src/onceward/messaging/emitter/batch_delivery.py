"""
One batch while it is sent: which items were accepted, which are to be retried, and which were given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from onceward._core.attempt_history import summarize_attempt
from onceward._core.errors import ConfigurationError
from onceward._core.retry_flow import verdict_on
from onceward._core.spool import Item, SpooledItem, item_errors
from onceward._core.stops import GivenUp, Stop, StopReason
from onceward.retry.policy import Retry, stop_of
from onceward.runtime.environment import Environment


class Flushed(NamedTuple):
    """What a flush (or a tick, or closing) did."""

    batches: int = 0
    """Batches that were sent, or tried."""
    sent: int = 0
    """Items that the receiver accepted."""
    given_up: int = 0
    """Items that the policy gave up: dead letters, or set aside in the spool."""
    waiting: int = 0
    """Items that wait in this emitter's spool now."""
    error: Exception | None = None
    """Why not everything was sent: the last error, if there was one."""

    def plus(self, other: Flushed) -> Flushed:
        """Both together."""
        return Flushed(
            self.batches + other.batches,
            self.sent + other.sent,
            self.given_up + other.given_up,
            other.waiting,
            other.error or self.error,
        )


class GivenUpItem(NamedTuple):
    """An item that was given up, and why."""

    held: SpooledItem
    error: Exception | None
    stop: Stop


class NullDeadLetters:
    """The dead letters of the policy that sends: the emitter writes one per item itself, so this keeps nothing."""

    def put(self, stop: Stop, call: GivenUp) -> None:
        """Do nothing: the emitter puts a dead letter for each item that was given up."""


class BatchDelivery:
    """A batch under a retry policy. Each attempt sends the items that are still pending."""

    def __init__(self, batch: Sequence[SpooledItem], policy: Retry, environment: Environment) -> None:
        self._policy, self._environment = policy, environment
        self._began = environment.monotonic()
        self.pending: list[SpooledItem] = list(batch)
        self.sent: list[SpooledItem] = []
        self._refused: list[GivenUpItem] = []
        self.attempts = 0

    def items(self) -> list[Item]:
        """The items for the next attempt."""
        self.attempts += 1
        return [held.item for held in self.pending]

    def take_result(self, result: Any) -> Any:
        """Take what `send` returned: note the result of each item, and raise the first failure worth a retry."""
        if self._policy.is_problem(result):
            return result
        again: list[tuple[SpooledItem, Exception]] = []
        for held, error in zip(self.pending, self._item_errors(result), strict=True):
            if error is None:
                self.sent.append(held)
            elif verdict_on(self._policy.classifier, error, self._environment.wall_us()).retryable(keyed=True):
                again.append((held, error))
            else:
                self._refused.append(self._lost(held, error, StopReason.NEVER))
        self.pending = [held for held, _ in again]
        if again:
            raise again[0][1]
        return result

    def _item_errors(self, result: Any) -> list[Exception | None]:
        try:
            return item_errors(result, [held.item for held in self.pending])
        except ConfigurationError:
            if self._policy.failed is None:
                raise
            return [None] * len(self.pending)  # Judged by the policy already, as a whole.

    def lost(self, ended: Any) -> list[GivenUpItem]:
        """The items that were given up, by what the policy raised or returned. None if the batch was never tried."""
        if not self.attempts:
            return []
        stop, error = stop_of(ended), ended if isinstance(ended, Exception) else None
        return [
            *self._refused,
            *(
                self._lost(held, error, StopReason.ATTEMPTS)
                if stop is None
                else GivenUpItem(held, error, _stop_of_item(held, stop))
                for held in self.pending
            ),
        ]

    def _lost(self, held: SpooledItem, error: Exception | None, reason: StopReason) -> GivenUpItem:
        wall_us, seconds = self._environment.wall_us(), self._environment.monotonic() - self._began
        verdict = verdict_on(self._policy.classifier, error, wall_us)
        line = summarize_attempt(self.attempts, wall_us, seconds, verdict, error)
        stop = Stop(reason, self.attempts, seconds, verdict, verdict, self._policy.name or "", tries=(line,))
        return GivenUpItem(held, error, _stop_of_item(held, stop))


def _stop_of_item(held: SpooledItem, stop: Stop) -> Stop:
    return stop._replace(key=held.item.key)
