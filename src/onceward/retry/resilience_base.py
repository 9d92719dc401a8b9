"""
The part of `OperationResilience` that has no colour: a policy, a breaker and a budget around a gate's operation.

What a gate adds to a policy is certainty: which attempt is proved to have done nothing (`Operation.attempt_failed`),
and whether one that is not may be repeated, which its guarantee says. A breaker's fallback is not asked: its value
would be stored as the operation's answer, and the effect would never take place.
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
    """Policy, breaker and budget of one operation, without the ways to run it: see `OperationResilience`."""

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
        """An open circuit, or a deadline that is over. Nothing is taken: the probe's slot goes to who has claimed."""
        policy, breaker = self._policy, self._breaker
        frame = nearest_live(CURRENT.get())
        if policy is not None and frame is not None and frame.limit <= policy.environment.monotonic():
            return DeadlineExceeded("the deadline is over, so nothing was claimed or called")
        if breaker is None or breaker.retries_only:
            return None
        admitted = breaker.admit(peek=True)
        return breaker.refusal(admitted) if isinstance(admitted, BreakerRefusal) else None

    def _bound(self, policy: Retry, operation: Operation, called: PreparedCall, probe: Callable[..., Any]) -> Retry:
        terms, record = called.request.terms, operation.record
        return policy.gated(
            judge=_OperationJudge(policy.classifier, operation, called),
            key=bare_key(record.scope, record.key) if record.kind == KEY else None,
            safe=terms.guarantee in REPEATED_GUARANTEES,
            probe=None if called.probe is None else probe,
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
    """A classifier's verdicts, with what the gate knows about the attempt besides."""

    __slots__ = ("_called", "_harmless", "_judge", "_operation")

    def __init__(self, judge: SupportsJudge, operation: Operation, called: PreparedCall) -> None:
        self._judge, self._operation, self._called = judge, operation, called
        self._harmless: tuple[type[BaseException], ...] = (NothingHappened, *called.request.terms.before)

    def judge(self, problem: Any, *, now: datetime | None = None) -> Verdict:
        """What is known about an attempt: whether it happened is the gate's to say."""
        verdict = self._judge.judge(problem, now=now)
        if not isinstance(problem, BaseException):
            return verdict
        ask = self._called.request
        clean = self._operation.attempt_failed(
            problem, self._harmless, marked=ask.marked, classifier=ask.terms.classifier
        )
        if clean and verdict.happened is not False:
            return verdict._replace(certainty=Certainty.NOT_SENT)
        return verdict if clean or verdict.happened is not False else verdict._replace(certainty=Certainty.UNKNOWN)


def clear_if_not_found(operation: Operation, answer: Any) -> Any:
    """What a probe said; that nothing is there clears the operation of its doubt."""
    if isinstance(answer, NotFound):
        operation.clear()
    return answer


def unwrapped_cause(error: OutcomeUnknown) -> BaseException:
    """What the function raised: that its outcome is unknown is what its record says, in its own way."""
    cause, stop = error.__cause__, getattr(error, "__onceward_stop__", None)
    if cause is None or stop is None or not stop.attempts:
        return error
    attach_stop(cause, stop._replace(problem=None))
    return cause


def check_only_one(name: str, ours: object, given: object) -> None:
    """One operation has one breaker and one budget."""
    if ours is not None and given is not None and ours is not given:
        raise ConfigurationError(f"the policy has a {name} of its own, and {name}= names another: give one of them")
