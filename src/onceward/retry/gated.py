"""
A policy, a breaker and a budget around a gate's operation: what `_core/composing.py` asks for, done.

What a gate adds to a policy is certainty: which attempt is proved to have done nothing (`Operation.attempt_failed`),
and whether one that is not may be repeated, which its guarantee says. A breaker's fallback is not asked: its value
would be stored as the operation's answer, and the effect would never take place.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from onceward._core.attempts import Judge
from onceward._core.breaker import Refused
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
from onceward._core.stops import marked
from onceward._core.verdict import Certainty, Verdict
from onceward.gate.asking import KEY, Called
from onceward.retry.frames import CURRENT, living

if TYPE_CHECKING:
    from onceward.retry.breaker import Breaker
    from onceward.retry.budget import Budget
    from onceward.retry.policy import Retry

REPEATED = frozenset({Guarantee.KEYED.value, Guarantee.REPEATABLE.value})
"""Guarantees under which an attempt that may have had its effect is simply made again."""


class Around:
    """Policy, breaker and budget of one operation."""

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

    # --- before the claim ---

    def refusal(self) -> OncewardError | None:
        """An open circuit, or a deadline that is over. Nothing is taken: the probe's slot goes to who has claimed."""
        policy, breaker = self._policy, self._breaker
        frame = living(CURRENT.get())
        if policy is not None and frame is not None and frame.limit <= policy.environment.monotonic():
            return DeadlineExceeded("the deadline is over, so nothing was claimed and nothing was called")
        if breaker is None or breaker.retries_only:
            return None
        admitted = breaker.admit(peek=True)
        return breaker.refusal(admitted) if isinstance(admitted, Refused) else None

    def pay(self) -> bool:
        """Pay for a run that follows a failed one."""
        return self._budget is None or self._budget.withdraw() is not None

    async def apay(self) -> bool:
        """Same as `pay`, but awaits."""
        return self._budget is None or await self._budget.awithdraw() is not None

    # --- under the claim ---

    def run(self, operation: Operation, called: Called) -> Any:
        """Call the function, and again if need be."""
        operation.rest()
        if self._policy is None:
            return self._run_guarded(operation, called.invoke)

        def attempt() -> Any:
            operation.begin_attempt()
            return called.invoke(operation)

        def probe(_: Any) -> Any:
            return _probed(operation, called.probe(operation) if called.probe is not None else None)

        policy = self._bound(self._policy, operation, called, probe)
        try:
            return policy.call(attempt)
        except OutcomeUnknown as error:
            raise _unwrapped(error) from None

    async def arun(self, operation: Operation, called: Called) -> Any:
        """Same as `run`, but awaits."""
        operation.rest()
        if self._policy is None:
            return await self._arun_guarded(operation, called.invoke)

        async def attempt() -> Any:
            operation.begin_attempt()
            value = called.invoke(operation)
            return await value if inspect.isawaitable(value) else value

        async def probe(_: Any) -> Any:
            found = called.probe(operation) if called.probe is not None else None
            return _probed(operation, await found if inspect.isawaitable(found) else found)

        policy = self._bound(self._policy, operation, called, probe)
        try:
            return await policy.acall(attempt)
        except OutcomeUnknown as error:
            raise _unwrapped(error) from None

    def _bound(self, policy: Retry, operation: Operation, called: Called, probe: Callable[..., Any]) -> Retry:
        terms, record = called.ask.terms, operation.record
        return policy.gated(
            judge=_Judge(policy.classifier, operation, called),
            key=bare_key(record.scope, record.key) if record.kind == KEY else None,
            safe=terms.guarantee in REPEATED,
            probe=None if called.probe is None else probe,
            name=policy.name or record.operation,
        )

    def _run_guarded(self, operation: Operation, invoke: Callable[[Operation], Any]) -> Any:
        left = self.enter(operation)
        try:
            value = invoke(operation)
        except BaseException as error:
            left(Raised(error))
            raise
        left(Returned(value))
        return value

    async def _arun_guarded(self, operation: Operation, invoke: Callable[[Operation], Any]) -> Any:
        breaker = self._breaker
        ticket = None if breaker is None else await breaker.afirst()
        if breaker is not None and isinstance(ticket, Refused):
            raise breaker.refusal(ticket)
        operation.begin_attempt()
        try:
            value = invoke(operation)
            if inspect.isawaitable(value):
                value = await value
        except Exception as error:
            self._count(Raised(error))
            if breaker is not None:
                await breaker.areport(ticket, breaker.end_of(error))
            raise
        except BaseException as struck:
            if breaker is not None:
                await breaker.ainterrupted(ticket, struck)
            raise
        self._count(Returned(value))
        if breaker is not None:
            await breaker.areport(ticket, breaker.end_of(None, value))
        return value

    def enter(self, operation: Operation) -> Callable[[Returned | Raised], None]:
        """Begin one attempt, or refuse it; what it returns is told how that ended."""
        breaker = self._breaker
        operation.rest()
        ticket = None if breaker is None else breaker.first()
        if breaker is not None and isinstance(ticket, Refused):
            raise breaker.refusal(ticket)
        operation.begin_attempt()

        def left(ended: Returned | Raised) -> None:
            self._count(ended)
            if breaker is not None:
                error, value = (ended.error, None) if isinstance(ended, Raised) else (None, ended.value)
                breaker.report(ticket, breaker.end_of(error, value))

        return left

    async def aenter(self, operation: Operation) -> Callable[[Returned | Raised], Awaitable[None]]:
        """Same as `enter`, but awaits."""
        breaker = self._breaker
        operation.rest()
        ticket = None if breaker is None else await breaker.afirst()
        if breaker is not None and isinstance(ticket, Refused):
            raise breaker.refusal(ticket)
        operation.begin_attempt()

        async def left(ended: Returned | Raised) -> None:
            self._count(ended)
            if breaker is not None:
                error, value = (ended.error, None) if isinstance(ended, Raised) else (None, ended.value)
                await breaker.areport(ticket, breaker.end_of(error, value))

        return left

    def _count(self, ended: Returned | Raised) -> None:
        if self._budget is None:
            return
        if isinstance(ended, Returned):
            self._budget.succeeded()
        elif isinstance(ended.error, Exception):
            self._budget.failed()


class _Judge:
    """A classifier's verdicts, with what the gate knows about the attempt besides."""

    __slots__ = ("_called", "_harmless", "_judge", "_operation")

    def __init__(self, judge: Judge, operation: Operation, called: Called) -> None:
        self._judge, self._operation, self._called = judge, operation, called
        self._harmless: tuple[type[BaseException], ...] = (NothingHappened, *called.ask.terms.before)

    def judge(self, problem: Any, *, now: datetime | None = None) -> Verdict:
        """What is known about an attempt: whether it happened is the gate's to say."""
        verdict = self._judge.judge(problem, now=now)
        if not isinstance(problem, BaseException):
            return verdict
        ask = self._called.ask
        clean = self._operation.attempt_failed(
            problem, self._harmless, marked=ask.marked, classifier=ask.terms.classifier
        )
        if clean and verdict.happened is not False:
            return verdict._replace(certainty=Certainty.NOT_SENT)
        return verdict if clean or verdict.happened is not False else verdict._replace(certainty=Certainty.UNKNOWN)


def _probed(operation: Operation, answer: Any) -> Any:
    if isinstance(answer, NotFound):
        operation.clear()
    return answer


def _unwrapped(error: OutcomeUnknown) -> BaseException:
    """What the function raised: that its outcome is unknown is what its record says, in its own way."""
    cause, stop = error.__cause__, getattr(error, "__onceward_stop__", None)
    if cause is None or stop is None or not stop.attempts:
        return error
    marked(cause, stop._replace(problem=None))
    return cause


def check_two(name: str, ours: object, given: object) -> None:
    """One operation has one breaker and one budget."""
    if ours is not None and given is not None and ours is not given:
        raise ConfigurationError(f"the policy has a {name} of its own, and {name}= names another: give one of them")
