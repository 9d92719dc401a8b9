# Made from working_async.py by `make halves`: change that file, not this one.
"""
What a retry flow asks for, done. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onceward._core.attempts import refuse
from onceward._core.breaker import Refused
from onceward._core.flow import (
    Admit,
    Bury,
    Effect,
    Ended,
    Probe,
    Raised,
    Report,
    Returned,
    Sleep,
    Tell,
    Try,
    Withdraw,
)
from onceward.drive import run
from onceward.retry.performing import INSTANT, WorkBase, not_awaited, probed
from onceward.retry.switch import SWITCH

if TYPE_CHECKING:
    from onceward._core.stops import StopReason


class Work(WorkBase):
    """One call that did not succeed at once, and how it goes on."""

    __slots__ = ()

    def persist(self, ended: Ended) -> Ended:
        """Go on from a failed first attempt."""
        flow = self.flow(ended)
        return run(flow, self.perform)

    def refuse(self, reason: StopReason, after: float | None) -> Ended:
        """End before the first attempt."""
        flow = refuse(self, reason, after)
        return run(flow, self.perform)

    def perform(self, effect: Effect) -> Any:
        """What a flow asks for; if it can be awaited, without what takes no time: that is `instant`'s."""
        return _PERFORMING[type(effect)](self, effect)

    def _slept(self, effect: Sleep) -> float:
        environment = self.policy.environment
        if not SWITCH.no_sleeping:
            environment.sleep(effect.seconds)
        return environment.monotonic()

    def _withdrawn(self, effect: Withdraw) -> float | None:
        budget = self.policy.budget
        return 0.0 if budget is None else budget.withdraw(throttled=effect.throttled)

    def _admitted(self, effect: Admit) -> int | Refused:
        breaker = self.policy.breaker
        return 0 if breaker is None else breaker.admit(peek=effect.peek)

    def _reported(self, effect: Report) -> None:
        if effect.ticket is not None and self.policy.breaker is not None:
            self.policy.breaker.report(effect.ticket, effect.end)
        self._count(effect)

    def _probed(self, effect: Probe) -> Returned | Raised:
        probe, attempt = self.policy.probe, effect.operation
        return probed(probe, attempt)

    def _tried(self, effect: Try) -> Ended:
        try:
            kwargs = self._given(effect) if self.shape.wants else self.kwargs
            value = self.fn(*self.args, **kwargs)
        except Exception as error:
            return Raised(error)
        except BaseException as struck:
            if effect.ticket is not None and self.policy.breaker is not None:
                self.policy.breaker.interrupted(effect.ticket, struck)
            raise
        return Returned(value) if self.policy.failed is None else self._judged(value)

    def _told(self, effect: Tell) -> None:
        what, told = f"on_{effect.hook}", self._tell(effect)
        not_awaited(what, told, "this hook is awaited, and the call was not: it is not run")

    def _buried(self, effect: Bury) -> None:
        kept = self._bury(effect)
        not_awaited("dead.put", kept, "these dead letters are awaited, and the call was not: nothing is kept")


_PERFORMING: dict[type, Callable[..., Any]] = {
    **INSTANT,
    Try: Work._tried,
    Sleep: Work._slept,
    Withdraw: Work._withdrawn,
    Admit: Work._admitted,
    Report: Work._reported,
    Tell: Work._told,
    Bury: Work._buried,
    Probe: Work._probed,
}
