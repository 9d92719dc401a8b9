# Made from resilience_mixin_async.py by `make halves`: change that file, not this one.
"""
Runs a gate's operation under its policy, breaker and budget: the implementation of `_core/resilience.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onceward._core.circuit import BreakerRefusal
from onceward._core.errors import OutcomeUnknown
from onceward._core.flow import Raised, Returned
from onceward._core.operation import Operation
from onceward.gate.call_factory import PreparedCall
from onceward.retry.resilience_base import ResilienceBase, clear_if_not_found, unwrapped_cause


class ResilienceMixin(ResilienceBase):
    """The parts that call: paying for an operation, and running it."""

    def pay(self) -> bool:
        """Pay for a run that follows a failed one."""
        return self._budget is None or self._budget.withdraw() is not None

    def run(self, operation: Operation, prepared: PreparedCall) -> Any:
        """Call the function under the claim, and again if need be."""
        operation.rest()
        if self._policy is None:
            return self._run_guarded(operation, prepared.invoke)

        def attempt() -> Any:
            operation.begin_attempt()
            invoke = prepared.invoke
            return invoke(operation)

        def probe(_: Any) -> Any:
            found = prepared.probe(operation) if prepared.probe is not None else None
            return clear_if_not_found(operation, found)

        policy = self._bound(self._policy, operation, prepared, probe)
        try:
            return policy.call(attempt)
        except OutcomeUnknown as error:
            raise unwrapped_cause(error) from None

    def _run_guarded(self, operation: Operation, invoke: Callable[[Operation], Any]) -> Any:
        report_end = self.enter(operation)
        try:
            value = invoke(operation)
        except BaseException as error:
            report_end(Raised(error))
            raise
        report_end(Returned(value))
        return value

    def enter(self, operation: Operation) -> Callable[[Returned | Raised], None]:
        """Begin one attempt, or refuse it. Returns a function to report how the attempt ended."""
        breaker = self._breaker
        operation.rest()
        ticket = None if breaker is None else breaker.first()
        if breaker is not None and isinstance(ticket, BreakerRefusal):
            raise breaker.refusal(ticket)
        operation.begin_attempt()

        def report_end(ended: Returned | Raised) -> None:
            self._count(ended)
            if breaker is None:
                return
            error, value = (ended.error, None) if isinstance(ended, Raised) else (None, ended.value)
            if error is not None and not isinstance(error, Exception):
                breaker.interrupted(ticket, error)
            else:
                breaker.report(ticket, breaker.end_of(error, value))

        return report_end
