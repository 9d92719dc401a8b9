# blocking half: attempt_loop_mixin.py; __anext__=__next__, StopAsyncIteration=StopIteration
"""
The loop over one call's attempts: each step of the loop resumes the retry flow.
"""

from __future__ import annotations

from typing import Self, cast

from onceward._core.circuit import BreakerRefusal
from onceward._core.colour import AWAITS
from onceward._core.flow import Try
from onceward._core.stops import StopReason
from onceward.retry.attempt_loop_base import AttemptBlock, AttemptLoopBase, refusal_error
from onceward.retry.retry_runner_async import AsyncRetryRunner
from onceward.runtime.flow_driver import drive_steps_async


class AsyncAttemptLoopMixin(AttemptLoopBase):
    """The iteration over the attempts."""

    def __aiter__(self) -> Self:
        self._once()
        return self

    async def __anext__(self) -> AttemptBlock:
        """The next attempt; the last error, unchanged, if there is none."""
        breaker = self._policy.breaker
        if self._done:
            if breaker is not None:
                await breaker.acaught_up()  # The end of a block cannot await, so its report may still be on its way.
            raise StopAsyncIteration
        if not self._begun:
            begun = self._begin(AsyncRetryRunner)
            if self._is_late():
                raise refusal_error(await begun.refuse(StopReason.DEADLINE, None))
            ticket = None if breaker is None else await breaker.afirst()
            if isinstance(ticket, BreakerRefusal):
                self._finish()
                raise refusal_error(await begun.refuse(StopReason.BREAKER, ticket.retry_after))
            return self._first(ticket)
        work = cast("AsyncRetryRunner", self.work)
        step = await drive_steps_async(self._resumed(), work.in_turn if AWAITS else work.perform)
        if isinstance(step, Try):
            return self._block(step.number, step.timeout, step.ticket)
        try:
            raise self._end(step) or StopAsyncIteration
        finally:
            del step  # The error holds this frame now.
