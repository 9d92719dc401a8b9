# blocking half: resilience_mixin.py; apay=pay, arun=run, aenter=enter, _arun_guarded=_run_guarded
"""
Runs a gate's operation under its policy, breaker and budget: the implementation of `_core/resilience.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from onceward._core.circuit import BreakerRefusal
from onceward._core.colour import AWAITS
from onceward._core.errors import OutcomeUnknown
from onceward._core.flow import Raised, Returned
from onceward._core.operation import Operation
from onceward.gate.call_factory import PreparedCall
from onceward.retry.function_shape import maybe_await
from onceward.retry.resilience_base import ResilienceBase, clear_if_not_found, unwrapped_cause


class AsyncResilienceMixin(ResilienceBase):
    """The parts that call: paying for an operation, and running it."""

    async def apay(self) -> bool:
        """Pay for a run that follows a failed one."""
        return self._budget is None or await self._budget.awithdraw() is not None

    async def arun(self, operation: Operation, prepared: PreparedCall) -> Any:
        """Call the function under the claim, and again if need be."""
        operation.rest()
        if self._policy is None:
            return await self._arun_guarded(operation, prepared.invoke)

        async def attempt() -> Any:
            operation.begin_attempt()
            invoke = prepared.invoke
            return await maybe_await(invoke(operation)) if AWAITS else invoke(operation)

        async def probe(_: Any) -> Any:
            found = prepared.probe(operation) if prepared.probe is not None else None
            return clear_if_not_found(operation, await maybe_await(found) if AWAITS else found)

        policy = self._bound(self._policy, operation, prepared, probe)
        try:
            return await policy.acall(attempt)
        except OutcomeUnknown as error:
            raise unwrapped_cause(error) from None

    async def _arun_guarded(self, operation: Operation, invoke: Callable[[Operation], Any]) -> Any:
        report_end = await self.aenter(operation)
        try:
            value = await maybe_await(invoke(operation)) if AWAITS else invoke(operation)
        except BaseException as error:
            await report_end(Raised(error))
            raise
        await report_end(Returned(value))
        return value

    async def aenter(self, operation: Operation) -> Callable[[Returned | Raised], Awaitable[None]]:
        """Begin one attempt, or refuse it. Returns a function to report how the attempt ended."""
        breaker = self._breaker
        operation.rest()
        ticket = None if breaker is None else await breaker.afirst()
        if breaker is not None and isinstance(ticket, BreakerRefusal):
            raise breaker.refusal(ticket)
        operation.begin_attempt()

        async def report_end(ended: Returned | Raised) -> None:
            self._count(ended)
            if breaker is None:
                return
            error, value = (ended.error, None) if isinstance(ended, Raised) else (None, ended.value)
            if error is not None and not isinstance(error, Exception):
                await breaker.ainterrupted(ticket, error)
            else:
                await breaker.areport(ticket, breaker.end_of(error, value))

        return report_end
