# Made from retry_runner_async.py by `make halves`: change that file, not this one.
"""
Performs the effects of a retry flow: attempts, sleeps, hooks, dead letters. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onceward._core.circuit import BreakerRefusal
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
    run_probe,
    warn_not_awaited,
)
from onceward.retry.retry_switch import SWITCH
from onceward.runtime.flow_driver import run

if TYPE_CHECKING:
    from onceward._core.stops import StopReason


class RetryRunner(RetryRunnerBase):
    """One call that did not succeed at once, and how it goes on."""

    __slots__ = ()

    def persist(self, ended: AttemptResult) -> AttemptResult:
        """Go on from a failed first attempt."""
        flow = self.flow(ended)
        return run(flow, self.perform)

    def refuse(self, reason: StopReason, after: float | None) -> AttemptResult:
        """End before the first attempt."""
        flow = refuse_call(self, reason, after)
        return run(flow, self.perform)

    def perform(self, effect: Effect) -> Any:
        """Perform an effect that may take time; `instant` performs the others."""
        return _PERFORMING[type(effect)](self, effect)

    def _slept(self, effect: Sleep) -> float:
        environment = self.policy.environment
        if not SWITCH.no_sleeping:
            environment.sleep(effect.seconds)
        return environment.monotonic()

    def _withdrawn(self, effect: Withdraw) -> float | None:
        budget = self.policy.budget
        return 0.0 if budget is None else budget.withdraw(throttled=effect.throttled)

    def _admitted(self, effect: Admit) -> int | BreakerRefusal:
        breaker = self.policy.breaker
        return 0 if breaker is None else breaker.admit(peek=effect.peek)

    def _reported(self, effect: ReportAttempt) -> None:
        if effect.ticket is not None and self.policy.breaker is not None:
            self.policy.breaker.report(effect.ticket, effect.end)
        self._count(effect)

    def _probed(self, effect: Probe) -> Returned | Raised:
        probe, attempt = self.policy.probe, effect.operation
        return run_probe(probe, attempt)

    def _tried(self, effect: Try) -> AttemptResult:
        try:
            kwargs = self._given(effect) if self.shape.wants else self.kwargs
            value = self.fn(*self.args, **kwargs)
        except Exception as error:
            return new_tuple(Raised, (error,))
        except BaseException as struck:
            if effect.ticket is not None and self.policy.breaker is not None:
                self.policy.breaker.interrupted(effect.ticket, struck)
            raise
        return new_tuple(Returned, (value,)) if self.policy.failed is None else self._judged(value)

    def _hook_called(self, effect: CallHook) -> None:
        name, result = f"on_{effect.hook}", self._call_hook(effect)
        warn_not_awaited(name, result, "this hook is async, and a blocking call cannot await it. It was not run")

    def _dead_letter_put(self, effect: PutDeadLetter) -> None:
        result = self._put_dead_letter(effect)
        warn_not_awaited("dead.put", result, "`put` is async, and a blocking call cannot await it. Nothing was kept")


_PERFORMING: dict[type, Callable[..., Any]] = {
    **INSTANT,
    Try: RetryRunner._tried,
    Sleep: RetryRunner._slept,
    Withdraw: RetryRunner._withdrawn,
    Admit: RetryRunner._admitted,
    ReportAttempt: RetryRunner._reported,
    CallHook: RetryRunner._hook_called,
    PutDeadLetter: RetryRunner._dead_letter_put,
    Probe: RetryRunner._probed,
}
