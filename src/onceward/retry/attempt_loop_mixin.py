# Made from attempt_loop_mixin_async.py by `make halves`: change that file, not this one.
"""
The loop over one call's attempts: each step of the loop resumes the retry flow.
"""

from __future__ import annotations

from typing import Self, cast

from onceward._core.circuit import BreakerRefusal
from onceward._core.flow import Try
from onceward._core.stops import StopReason
from onceward.retry.attempt_loop_base import AttemptBlock, AttemptLoopBase, refusal_error
from onceward.retry.retry_runner import RetryRunner
from onceward.runtime.flow_driver import drive_steps


class AttemptLoopMixin(AttemptLoopBase):
    """The iteration over the attempts."""

    def __iter__(self) -> Self:
        self._once()
        return self

    def __next__(self) -> AttemptBlock:
        """The next attempt; the last error, unchanged, if there is none."""
        breaker = self._policy.breaker
        if self._done:
            if breaker is not None:
                breaker.caught_up()  # The end of a block cannot await, so its report may still be on its way.
            raise StopIteration
        if not self._begun:
            begun = self._begin(RetryRunner)
            if self._is_late():
                raise refusal_error(begun.refuse(StopReason.DEADLINE, None))
            ticket = None if breaker is None else breaker.first()
            if isinstance(ticket, BreakerRefusal):
                self._finish()
                raise refusal_error(begun.refuse(StopReason.BREAKER, ticket.retry_after))
            return self._first(ticket)
        work = cast("RetryRunner", self.work)
        step = drive_steps(self._resumed(), work.perform)
        if isinstance(step, Try):
            return self._block(step.number, step.timeout, step.ticket)
        try:
            raise self._end(step) or StopIteration
        finally:
            del step  # The error holds this frame now.
