# blocking half: working.py
"""
What a retry flow asks for, done. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from onceward._core.attempts import refuse
from onceward._core.breaker import Refused
from onceward._core.colour import AWAITS
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
from onceward.drive import arun, run
from onceward.retry.performing import INSTANT, WorkBase, awaited, not_awaited, patiently, probed, within
from onceward.retry.switch import SWITCH

if TYPE_CHECKING:
    from onceward._core.stops import StopReason


class AsyncWork(WorkBase):
    """One call that did not succeed at once, and how it goes on."""

    __slots__ = ()

    async def persist(self, ended: Ended) -> Ended:
        """Go on from a failed first attempt."""
        flow = self.flow(ended)
        return await arun(flow, self.instant, self.perform) if AWAITS else run(flow, self.perform)

    async def refuse(self, reason: StopReason, after: float | None) -> Ended:
        """End before the first attempt."""
        flow = refuse(self, reason, after)
        return await arun(flow, self.instant, self.perform) if AWAITS else run(flow, self.perform)

    def perform(self, effect: Effect) -> Awaitable[Any]:
        """What a flow asks for; if it can be awaited, without what takes no time: that is `instant`'s."""
        return _PERFORMING[type(effect)](self, effect)

    if AWAITS:

        async def in_turn(self, effect: Effect) -> Any:
            """Same as `perform`, also for what takes no time."""
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

    async def _admitted(self, effect: Admit) -> int | Refused:
        breaker = self.policy.breaker
        return 0 if breaker is None else await breaker.aadmit(peek=effect.peek)

    async def _reported(self, effect: Report) -> None:
        if effect.ticket is not None and self.policy.breaker is not None:
            await self.policy.breaker.areport(effect.ticket, effect.end)
        self._count(effect)

    async def _probed(self, effect: Probe) -> Returned | Raised:
        probe, attempt = self.policy.probe, effect.operation
        return await awaited(probed(probe, attempt)) if AWAITS else probed(probe, attempt)

    async def _tried(self, effect: Try) -> Ended:
        try:
            kwargs = self._given(effect) if self.shape.wants else self.kwargs
            if AWAITS:
                value = await within(effect.timeout, self.fn(*self.args, **kwargs))
            else:
                value = self.fn(*self.args, **kwargs)
        except Exception as error:
            return Raised(error)
        except BaseException as struck:
            if effect.ticket is not None and self.policy.breaker is not None:
                await self.policy.breaker.ainterrupted(effect.ticket, struck)
            raise
        return Returned(value) if self.policy.failed is None else self._judged(value)

    async def _told(self, effect: Tell) -> None:
        what, told = f"on_{effect.hook}", self._tell(effect)
        if AWAITS:
            await patiently(what, told)
        else:
            not_awaited(what, told, "this hook is awaited, and the call was not: it is not run")

    async def _buried(self, effect: Bury) -> None:
        kept = self._bury(effect)
        if AWAITS:
            await patiently("dead.put", kept)
        else:
            not_awaited("dead.put", kept, "these dead letters are awaited, and the call was not: nothing is kept")


_PERFORMING: dict[type, Callable[..., Awaitable[Any]]] = {
    **INSTANT,
    Try: AsyncWork._tried,
    Sleep: AsyncWork._slept,
    Withdraw: AsyncWork._withdrawn,
    Admit: AsyncWork._admitted,
    Report: AsyncWork._reported,
    Tell: AsyncWork._told,
    Bury: AsyncWork._buried,
    Probe: AsyncWork._probed,
}
