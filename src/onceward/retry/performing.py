"""
What a retry flow asks for, done: in both colours. It decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any

from onceward._core.attempts import Attempt, persist, refuse
from onceward._core.breaker import Refused
from onceward._core.errors import ConfigurationError
from onceward._core.flow import (
    Admit,
    Answered,
    Bury,
    Clocks,
    Effect,
    Ended,
    Flow,
    Probe,
    Raised,
    Refund,
    Report,
    Returned,
    Sleep,
    Tell,
    Try,
    Withdraw,
)
from onceward._core.record import Guarantee
from onceward._core.stops import GivenUp, Stop, note
from onceward.drive import arun, run
from onceward.gate.declaring import name_of, published
from onceward.retry.frames import Frame
from onceward.retry.functions import ATTEMPT, TIMEOUT, Shape, log_stop, warn
from onceward.retry.switch import SWITCH

if TYPE_CHECKING:
    from onceward._core.stops import StopReason
    from onceward.retry.policy import Retry

HOOK_SECONDS = 5.0
"""How long an awaited hook may take before the call goes on without it."""


class Work:
    """One call that did not succeed at once: what the flow goes by, and what is needed to do as it says."""

    __slots__ = (
        "args",
        "began",
        "fn",
        "frame",
        "key",
        "kwargs",
        "limit",
        "owner",
        "policy",
        "published",
        "replayable",
        "shape",
        "ticket",
    )

    def __init__(
        self,
        policy: Retry,
        frame: Frame,
        began: float,
        fn: Callable[..., Any],
        shape: Shape,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: str | None,
        ticket: Any,
    ) -> None:
        self.policy, self.frame, self.began, self.key = policy, frame, began, key
        self.fn, self.shape, self.args, self.kwargs = fn, shape, args, kwargs
        self.limit, self.owner, self.replayable = frame.limit, frame.owner is None, policy.replayable
        self.ticket: int | None = ticket if isinstance(ticket, int) else None
        self.published = published(fn)
        if key is None and self.published is not None:
            with suppress(Exception):  # Arguments that have no key: the function has refused them, too.
                self.key = self.published.key_of(*args, **kwargs)

    @property
    def name(self) -> str:
        """The policy's, or the function's."""
        return self.policy.name or name_of(self.fn)

    @property
    def secured(self) -> bool:
        """Keyed, or declared safe. Under a gate, or around one, the guarantee says it."""
        if self.published is not None:
            return self.policy.safe or self.published.guarantee != Guarantee.BLIND
        return self.policy.safe or (self.key is not None and not self.policy.under_gate)

    @property
    def declared(self) -> bool:
        """Published by a gate."""
        return self.published is not None

    @property
    def limit_is_own(self) -> bool:
        """Nobody around it has less time."""
        return self.limit >= self.began + self.policy.elapsed

    @property
    def amplification(self) -> int:
        """As counted down the tree."""
        return self.frame.amplification

    # --- the two ways in, in both colours ---

    def persist(self, ended: Ended) -> Ended:
        """Go on from a failed first attempt."""
        return run(self.flow(ended), self.perform)

    async def apersist(self, ended: Ended) -> Ended:
        """Same as `persist`, but awaits."""
        return await arun(self.flow(ended), self.instant, self.aperform)

    def refuse(self, reason: StopReason, after: float | None) -> Ended:
        """End before the first attempt."""
        return run(refuse(self, reason, after), self.perform)

    async def arefuse(self, reason: StopReason, after: float | None) -> Ended:
        """Same as `refuse`, but awaits."""
        return await arun(refuse(self, reason, after), self.instant, self.aperform)

    def flow(self, ended: Ended) -> Flow[Ended]:
        """What decides from here on."""
        return persist(self.policy.terms(), self, ended, self._clocks())

    # --- performing ---

    def instant(self, effect: Effect) -> Any:
        """What takes no time in either colour."""
        return _INSTANT[type(effect)](self, effect)

    def perform(self, effect: Effect) -> Any:
        """Everything, by blocking."""
        return _BLOCKING[type(effect)](self, effect)

    async def aperform(self, effect: Effect) -> Any:
        """Same as `perform`, but awaits."""
        return await _AWAITING[type(effect)](self, effect)

    def _clocks(self, _: Any = None) -> tuple[float, int, float]:
        environment = self.policy.environment
        return environment.monotonic(), environment.wall_us(), environment.chance()

    def _sleep(self, effect: Sleep) -> float:
        environment = self.policy.environment
        if not SWITCH.no_sleeping:
            environment.sleep(effect.seconds)
        return environment.monotonic()

    async def _asleep(self, effect: Sleep) -> float:
        environment = self.policy.environment
        await environment.asleep(0 if SWITCH.no_sleeping else effect.seconds)
        return environment.monotonic()

    def _withdraw(self, effect: Withdraw) -> float | None:
        budget = self.policy.budget
        return 0.0 if budget is None else budget.withdraw(throttled=effect.throttled)

    async def _awithdraw(self, effect: Withdraw) -> float | None:
        budget = self.policy.budget
        return 0.0 if budget is None else await budget.awithdraw(throttled=effect.throttled)

    def _refund(self, effect: Refund) -> None:
        if self.policy.budget is not None:
            self.policy.budget.refund(effect.paid)

    def _admit(self, effect: Admit) -> int | Refused:
        breaker = self.policy.breaker
        return 0 if breaker is None else breaker.admit(peek=effect.peek)

    async def _aadmit(self, effect: Admit) -> int | Refused:
        breaker = self.policy.breaker
        return 0 if breaker is None else await breaker.aadmit(peek=effect.peek)

    def _report(self, effect: Report) -> None:
        if effect.ticket is not None and self.policy.breaker is not None:
            self.policy.breaker.report(effect.ticket, effect.end)
        self._count(effect)

    async def _areport(self, effect: Report) -> None:
        if effect.ticket is not None and self.policy.breaker is not None:
            await self.policy.breaker.areport(effect.ticket, effect.end)
        self._count(effect)

    def _count(self, effect: Report) -> None:
        budget = self.policy.budget
        if budget is not None and effect.end == "failed":
            budget.failed(first=effect.first)
        elif budget is not None and effect.end == "succeeded":
            budget.succeeded(effect.paid)

    def _probed(self, effect: Probe) -> Returned | Raised:
        return _ended(self.policy.probe, effect.operation)

    async def _aprobed(self, effect: Probe) -> Returned | Raised:
        answer = _ended(self.policy.probe, effect.operation)
        return await _awaited(answer.value) if isinstance(answer, Returned) else answer

    def _tried(self, effect: Try) -> Ended:
        try:
            value = self.fn(*self.args, **(self._given(effect) if self.shape.wants else self.kwargs))
        except Exception as error:
            return Raised(error)
        except BaseException:
            if effect.ticket is not None and self.policy.breaker is not None:
                self.policy.breaker.report(effect.ticket, "ended")
            raise
        return Returned(value) if self.policy.failed is None else self._judged(value)

    async def _atried(self, effect: Try) -> Ended:
        try:
            kwargs = self._given(effect) if self.shape.wants else self.kwargs
            value = await within(effect.timeout, self.fn(*self.args, **kwargs))
        except Exception as error:
            return Raised(error)
        except BaseException as struck:
            if effect.ticket is not None and self.policy.breaker is not None:
                await self.policy.breaker.ainterrupted(effect.ticket, struck)
            raise
        return Returned(value) if self.policy.failed is None else self._judged(value)

    def _given(self, effect: Try) -> dict[str, Any]:
        attempt = Attempt(effect.number, self.key, effect.timeout, self.limit, self.name)
        return given(self.shape, self.kwargs, attempt)

    def _judged(self, value: Any) -> Ended:
        return Answered(value) if self.policy.is_problem(value) else Returned(value)

    async def _atold(self, effect: Tell) -> None:
        await _patiently(f"on_{effect.hook}", self._told(effect))

    async def _aburied(self, effect: Bury) -> None:
        await _patiently("dead.put", self._buried(effect))

    def _told(self, effect: Tell) -> Any:
        """Call a hook; what it returns may be awaited. Its errors are its own."""
        policy = self.policy
        if effect.hook == "stop" and isinstance(effect.what, Stop) and self.owner:
            stop = effect.what
            log_stop(stop.name, stop.reason.value, note(stop), policy.environment)
        if effect.hook == "auth" and not policy.first_alert():
            return None
        hook = {"retry": policy.on_retry, "stop": policy.on_stop, "auth": policy.on_auth}[effect.hook]
        return None if hook is None else _harmless(f"on_{effect.hook}", hook, effect.what)

    def _told_here(self, effect: Tell) -> None:
        _not_awaited(
            f"on_{effect.hook}", self._told(effect), "this hook is awaited, and the call was not: it is not run"
        )

    def _buried_here(self, effect: Bury) -> None:
        _not_awaited(
            "dead.put", self._buried(effect), "these dead letters are awaited, and the call was not: nothing is kept"
        )

    def _buried(self, effect: Bury) -> Any:
        dead = self.policy.dead
        if dead is None:
            return None
        return _harmless("dead.put", lambda: dead.put(effect.stop, self._given_up()))

    def _given_up(self) -> GivenUp:
        request = self.policy.request
        sent = None if request is None else request()
        return GivenUp(self.name, self.key, self.fn, self.args, self.kwargs, sent)


_INSTANT: dict[type, Callable[..., Any]] = {Clocks: Work._clocks, Refund: Work._refund}
_BLOCKING: dict[type, Callable[..., Any]] = {
    **_INSTANT,
    Try: Work._tried,
    Sleep: Work._sleep,
    Withdraw: Work._withdraw,
    Admit: Work._admit,
    Report: Work._report,
    Tell: Work._told_here,
    Bury: Work._buried_here,
    Probe: Work._probed,
}
_AWAITING: dict[type, Callable[..., Any]] = {
    Try: Work._atried,
    Sleep: Work._asleep,
    Withdraw: Work._awithdraw,
    Admit: Work._aadmit,
    Report: Work._areport,
    Tell: Work._atold,
    Bury: Work._aburied,
    Probe: Work._aprobed,
}


def given(shape: Shape, kwargs: dict[str, Any], attempt: Attempt) -> dict[str, Any]:
    """The arguments by name, with what the function asked for. What the caller gave itself is left alone."""
    kwargs = dict(kwargs)
    if shape.attempt:
        kwargs.setdefault(ATTEMPT, attempt)
    if shape.timeout:
        kwargs.setdefault(TIMEOUT, attempt.timeout)
    return kwargs


class _Rest:
    """The rest of a coroutine that has been started by hand."""

    __slots__ = ("_first", "_steps")

    def __init__(self, steps: Generator[Any, Any, Any], first: Any) -> None:
        self._steps, self._first = steps, first

    def __await__(self) -> Generator[Any, Any, Any]:
        steps, waiting = self._steps, self._first
        while True:
            try:
                answer = yield waiting
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                struck: BaseException | None = error
            else:
                struck = None
            try:
                waiting = steps.send(answer) if struck is None else steps.throw(struck)
            except StopIteration as stop:
                return stop.value


async def within(seconds: float, work: Any) -> Any:
    """
    Await `work` for so long at most.

    It is begun first, and the timer is set when it really waits: what never waits needs no timer, and could not be
    interrupted by one, either.
    """
    if not hasattr(work, "__await__"):
        raise ConfigurationError(f"acall awaits what the function returns, and {type(work).__name__} cannot be awaited")
    steps = work.__await__()
    try:
        first = next(steps)
    except StopIteration as stop:
        return stop.value
    async with asyncio.timeout(seconds):
        return await _Rest(steps, first)


def _harmless(what: str, hook: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return hook(*arguments)
    except Exception as error:
        warn(what, error)
        return None


def _not_awaited(what: str, result: Any, why: str) -> None:
    """What a hook gave back to be awaited, where nobody awaits."""
    if not isawaitable(result):
        return
    if iscoroutine(result):
        result.close()
    warn(what, ConfigurationError(why))


async def _patiently(what: str, result: Any) -> None:
    if not isawaitable(result):
        return
    try:
        async with asyncio.timeout(HOOK_SECONDS):
            await result
    except Exception as error:
        warn(what, error)


def _ended(probe: Any, attempt: Attempt) -> Returned | Raised:
    try:
        return Returned(probe(attempt))
    except Exception as error:
        return Raised(error)


async def _awaited(value: Any) -> Returned | Raised:
    try:
        return Returned(await value if isawaitable(value) else value)
    except Exception as error:
        return Raised(error)
