"""
The part of `OperationResilience` that has no colour: a policy, a breaker and a budget around a gate's operation.

What a gate adds to a policy is certainty. It knows which attempts are proved to have done nothing
(`Operation.attempt_failed`), and by its guarantee whether the others may be repeated. A breaker's fallback is not
called: its value would be stored as the operation's result, and the effect would never take place.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from onceward._core.circuit import BreakerRefusal
from onceward._core.errors import (
    ConfigurationError,
    DeadlineExceeded,
    NothingHappened,
    OncewardError,
    OutcomeUnknown,
)
from onceward._core.flow import Raised, Returned
from onceward._core.keys import bare_key
from onceward._core.operation import NotFound, Operation
from onceward._core.operation_flow import OperationRequest
from onceward._core.record import Guarantee
from onceward._core.retry_flow import SupportsJudge
from onceward._core.stops import attach_stop
from onceward._core.verdict import Certainty, Verdict
from onceward.gate.call_factory import KEY, PreparedCall
from onceward.retry.call_context import CURRENT, nearest_live

if TYPE_CHECKING:
    from onceward.retry.breaker import Breaker
    from onceward.retry.budget import Budget
    from onceward.retry.policy import Retry

REPEATED_GUARANTEES = frozenset({Guarantee.KEYED.value, Guarantee.REPEATABLE.value})
"""Guarantees under which an attempt that may have had its effect is simply made again."""


class ResilienceBase:
    """Policy, breaker and budget of one operation. `OperationResilience` adds the ways to run it."""

    def __init__(self, retry: Retry | None, breaker: Breaker | None, budget: Budget | None) -> None:
        if retry is not None:
            retry = retry.joined_with(breaker, budget)
            breaker, budget = retry.breaker, retry.budget
        self._policy, self._budget = retry, budget
        self._breaker = breaker if breaker is None or breaker.enabled else None

    @property
    def repeats(self) -> bool:
        """Whether there is a policy."""
        return self._policy is not None

    def refusal(self) -> OncewardError | None:
        """The error if the circuit is open or the deadline is over. Takes no probe's slot: that needs a claim first."""
        policy, breaker = self._policy, self._breaker
        frame = nearest_live(CURRENT.get())
        if policy is not None and frame is not None and frame.limit <= policy.environment.monotonic():
            return DeadlineExceeded("the deadline is over, so nothing was claimed or called")
        if breaker is None or breaker.retries_only:
            return None
        admitted = breaker.admit(peek=True)
        return breaker.refusal(admitted) if isinstance(admitted, BreakerRefusal) else None

    def _bound(self, policy: Retry, operation: Operation, prepared: PreparedCall, probe: Callable[..., Any]) -> Retry:
        terms, record = prepared.request.terms, operation.record
        return policy.gated(
            judge=_OperationJudge(policy.classifier, operation, prepared.request),
            key=bare_key(record.scope, record.key) if record.kind == KEY else None,
            safe=terms.guarantee in REPEATED_GUARANTEES,
            probe=None if prepared.probe is None else probe,
            name=policy.name or record.operation,
        )

    def _count(self, ended: Returned | Raised) -> None:
        if self._budget is None:
            return
        if isinstance(ended, Returned):
            self._budget.succeeded()
        elif isinstance(ended.error, Exception):
            self._budget.failed()


class _OperationJudge:
    """A classifier's verdicts, corrected by what the gate knows about the attempt."""

    __slots__ = ("_harmless", "_judge", "_operation", "_request")

    def __init__(self, judge: SupportsJudge, operation: Operation, request: OperationRequest) -> None:
        self._judge, self._operation, self._request = judge, operation, request
        self._harmless: tuple[type[BaseException], ...] = (NothingHappened, *request.terms.before)

    def judge(self, problem: Any, *, now: datetime | None = None) -> Verdict:
        """The verdict on an attempt. Whether it had its effect is for the gate to say."""
        verdict = self._judge.judge(problem, now=now)
        if not isinstance(problem, BaseException):
            return verdict
        request = self._request
        clean = self._operation.attempt_failed(
            problem, self._harmless, marked=request.marked, classifier=request.terms.classifier
        )
        if clean and verdict.happened is not False:
            return verdict._replace(certainty=Certainty.NOT_SENT)
        return verdict if clean or verdict.happened is not False else verdict._replace(certainty=Certainty.UNKNOWN)


def clear_if_not_found(operation: Operation, found: Any) -> Any:
    """Return what a probe found. If it found nothing, the operation is no longer in doubt."""
    if isinstance(found, NotFound):
        operation.clear()
    return found


def unwrapped_cause(error: OutcomeUnknown) -> BaseException:
    """The error that the function raised itself: its record already says that the outcome is unknown."""
    cause, stop = error.__cause__, getattr(error, "__onceward_stop__", None)
    if cause is None or stop is None or not stop.attempts:
        return error
    attach_stop(cause, stop._replace(problem=None))
    return cause


def check_only_one(name: str, ours: object, given: object) -> None:
    """Refuse a second breaker or budget for one operation."""
    if ours is not None and given is not None and ours is not given:
        raise ConfigurationError(f"the policy has a {name} already, and {name}= gives another. Give only one of them")
