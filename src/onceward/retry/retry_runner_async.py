# blocking half: retry_runner.py
"""
Performs the effects of a retry flow: attempts, sleeps, hooks, dead letters. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from onceward._core.circuit import BreakerRefusal
from onceward._core.colour import AWAITS
from onceward._core.flow import (
    Admit,
    AttemptResult,
    CallHook,
    Effect,
    Probe,
    PutDeadLetter,
    Raised,
    ReportAttempt,
    Returned,
    Sleep,
    Try,
    Withdraw,
    new_tuple,
)
from onceward._core.retry_flow import refuse_call
from onceward.retry.retry_runner_base import (
    INSTANT,
    RetryRunnerBase,
    await_hook,
    await_result,
    await_within,
    run_probe,
    warn_not_awaited,
)
from onceward.retry.retry_switch import SWITCH
from onceward.runtime.flow_driver import arun, run

if TYPE_CHECKING:
    from onceward._core.stops import StopReason


class AsyncRetryRunner(RetryRunnerBase):
    """One call that did not succeed at once, and how it goes on."""

    __slots__ = ()

    async def persist(self, ended: AttemptResult) -> AttemptResult:
        """Go on from a failed first attempt."""
        flow = self.flow(ended)
        return await arun(flow, self.instant, self.perform) if AWAITS else run(flow, self.perform)

    async def refuse(self, reason: StopReason, after: float | None) -> AttemptResult:
        """End before the first attempt."""
        flow = refuse_call(self, reason, after)
        return await arun(flow, self.instant, self.perform) if AWAITS else run(flow, self.perform)

    def perform(self, effect: Effect) -> Awaitable[Any]:
        """Perform an effect that may take time; `instant` performs the others."""
        return _PERFORMING[type(effect)](self, effect)

    if AWAITS:

        async def in_turn(self, effect: Effect) -> Any:
            """Perform any effect, whether it takes time or not."""
            return self.instant(effect) if type(effect) in INSTANT else await self.perform(effect)

    async def _slept(self, effect: Sleep) -> float:
        environment = self.policy.environment
        if AWAITS:
            await environment.asleep(0 if SWITCH.no_sleeping else effect.seconds)
        else:
            if not SWITCH.no_sleeping:
                environment.sleep(effect.seconds)
        return environment.monotonic()

    async def _withdrawn(self, effect: Withdraw) -> float | None:
        budget = self.policy.budget
        return 0.0 if budget is None else await budget.awithdraw(throttled=effect.throttled)

    async def _admitted(self, effect: Admit) -> int | BreakerRefusal:
        breaker = self.policy.breaker
        return 0 if breaker is None else await breaker.aadmit(peek=effect.peek)

    async def _reported(self, effect: ReportAttempt) -> None:
        if effect.ticket is not None and self.policy.breaker is not None:
            await self.policy.breaker.areport(effect.ticket, effect.end)
        self._count(effect)

    async def _probed(self, effect: Probe) -> Returned | Raised:
        probe, attempt = self.policy.probe, effect.operation
        return await await_result(run_probe(probe, attempt)) if AWAITS else run_probe(probe, attempt)

    async def _tried(self, effect: Try) -> AttemptResult:
        try:
            kwargs = self._given(effect) if self.shape.wants else self.kwargs
            if AWAITS:
                value = await await_within(effect.timeout, self.fn(*self.args, **kwargs))
            else:
                value = self.fn(*self.args, **kwargs)
        except Exception as error:
            return new_tuple(Raised, (error,))
        except BaseException as struck:
            if effect.ticket is not None and self.policy.breaker is not None:
                await self.policy.breaker.ainterrupted(effect.ticket, struck)
            raise
        return new_tuple(Returned, (value,)) if self.policy.failed is None else self._judged(value)

    async def _hook_called(self, effect: CallHook) -> None:
        name, result = f"on_{effect.hook}", self._call_hook(effect)
        if AWAITS:
            await await_hook(name, result)
        else:
            warn_not_awaited(name, result, "this hook is async, and a blocking call cannot await it. It was not run")

    async def _dead_letter_put(self, effect: PutDeadLetter) -> None:
        result = self._put_dead_letter(effect)
        if AWAITS:
            await await_hook("dead.put", result)
        else:
            warn_not_awaited(
                "dead.put", result, "`put` is async, and a blocking call cannot await it. Nothing was kept"
            )


_PERFORMING: dict[type, Callable[..., Awaitable[Any]]] = {
    **INSTANT,
    Try: AsyncRetryRunner._tried,
    Sleep: AsyncRetryRunner._slept,
    Withdraw: AsyncRetryRunner._withdrawn,
    Admit: AsyncRetryRunner._admitted,
    ReportAttempt: AsyncRetryRunner._reported,
    CallHook: AsyncRetryRunner._hook_called,
    PutDeadLetter: AsyncRetryRunner._dead_letter_put,
    Probe: AsyncRetryRunner._probed,
}
