"""
One call whose first attempt failed: the facts that the retry flow decides by, and the effects that take no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import replace
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from onceward._core.errors import ConfigurationError
from onceward._core.events import EventType
from onceward._core.flow import (
    AttemptResult,
    CallHook,
    Clocks,
    Effect,
    Flow,
    PutDeadLetter,
    Raised,
    Refund,
    ReportAttempt,
    Returned,
    ReturnedFailure,
    Try,
)
from onceward._core.record import Guarantee
from onceward._core.retry_flow import Attempt, RetryEvent, run_retries
from onceward._core.stops import GivenUp, Stop, stop_note
from onceward.gate.function_inspection import find_published, function_name
from onceward.retry.call_context import CallContext
from onceward.retry.function_shape import ATTEMPT, TIMEOUT, FunctionShape, log_stop, warn_hook_failed
from onceward.runtime.event_stream import EVENT_STREAM
from onceward.runtime.flow_driver import rest_of

if TYPE_CHECKING:
    from onceward.retry.policy_base import RetryBase

HOOK_SECONDS = 5.0
"""How long an awaited hook may take before the call goes on without it."""


FunctionCall: TypeAlias = tuple[Callable[..., Any], FunctionShape, tuple[Any, ...], dict[str, Any], str | None]
"""A function, its shape, its arguments by place and by name, and the key of the call: the same on every attempt."""


class RetryRunnerBase:
    """One call whose first attempt failed: what the retry flow needs to know, and what performing its effects needs."""

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
        policy: RetryBase,
        frame: CallContext,
        began: float,
        call: FunctionCall,
        ticket: Any,
    ) -> None:
        self.policy, self.frame, self.began = policy, frame, began
        self.fn, self.shape, self.args, self.kwargs, self.key = call
        self.limit, self.owner, self.replayable = frame.limit, frame.owner is None, policy.replayable
        self.ticket: int | None = ticket if isinstance(ticket, int) else None
        self.published = published = find_published(self.fn)
        if published is not None and self.key is None:
            with suppress(Exception):  # Arguments that have no key: the function has refused them, too.
                self.key = published.key_of(*self.args, **self.kwargs)

    @property
    def name(self) -> str:
        """The name of the policy, or else of the function."""
        return self.policy.name or function_name(self.fn)

    @property
    def secured(self) -> bool:
        """Whether an unknown outcome may be repeated: keyed or safe, or by the guarantee of a gate's function."""
        if self.published is not None:
            return self.policy.safe or self.published.guarantee != Guarantee.BLIND
        return self.policy.safe or (self.key is not None and not self.policy.under_gate)

    @property
    def declared(self) -> bool:
        """Whether the function is declared at a gate."""
        return self.published is not None

    @property
    def limit_is_own(self) -> bool:
        """Whether the limit is this policy's own: no caller around it has less time."""
        return self.limit >= self.began + self.policy.elapsed

    @property
    def amplification(self) -> int:
        """How many calls there could have been, had every layer retried for itself."""
        return self.frame.amplification

    def flow(self, ended: AttemptResult) -> Flow[AttemptResult]:
        """The flow that decides what follows this first result."""
        terms = self.policy.terms()
        if EVENT_STREAM.listeners and not terms.has_retry_hook:
            terms = replace(terms, has_retry_hook=True)
        return run_retries(terms, self, ended, self._clocks())

    # --- performing ---

    def instant(self, effect: Effect) -> Any:
        """Perform an effect that takes no time."""
        return INSTANT[type(effect)](self, effect)

    def _clocks(self, _: Any = None) -> tuple[float, int, float]:
        environment = self.policy.environment
        return environment.monotonic(), environment.wall_us(), environment.chance()

    def _refund(self, effect: Refund) -> None:
        if self.policy.budget is not None:
            self.policy.budget.refund(effect.paid)

    def _count(self, effect: ReportAttempt) -> None:
        budget = self.policy.budget
        if budget is not None and effect.end == "failed":
            budget.failed(first=effect.first)
        elif budget is not None and effect.end == "succeeded":
            budget.succeeded(effect.paid)

    def _given(self, effect: Try) -> dict[str, Any]:
        attempt = Attempt(effect.number, self.key, effect.timeout, self.limit, self.name)
        return arguments_for(self.shape, self.kwargs, attempt)

    def _judged(self, value: Any) -> AttemptResult:
        return ReturnedFailure(value) if self.policy.is_problem(value) else Returned(value)

    def _call_hook(self, effect: CallHook) -> Any:
        """Call a hook. What it returns may be awaitable; its errors are logged, and change nothing."""
        policy = self.policy
        if effect.hook == "stop" and isinstance(effect.what, Stop) and self.owner:
            stop = effect.what
            log_stop(stop.name, stop.reason.value, stop_note(stop), policy.environment)
        if EVENT_STREAM.listeners:
            self._note(effect)
        if effect.hook == "auth" and not policy.first_alert():
            return None
        hook = {"retry": policy.on_retry, "stop": policy.on_stop, "auth": policy.on_auth}[effect.hook]
        return None if hook is None else _harmless(f"on_{effect.hook}", hook, effect.what)

    def _note(self, effect: CallHook) -> None:
        """Tell the process's listeners of a retry, or that there will be none."""
        what = effect.what
        if isinstance(what, RetryEvent):
            EVENT_STREAM.note(EventType.RETRIED, what.name, what.verdict.kind.value, attempt=what.attempt)
        elif effect.hook == "stop" and isinstance(what, Stop):
            EVENT_STREAM.note(EventType.GAVE_UP, what.name, what.reason.value, attempt=what.attempts)

    def _put_dead_letter(self, effect: PutDeadLetter) -> Any:
        """Put a dead letter. What `put` returns may be awaitable."""
        dead = self.policy.dead
        if dead is None:
            return None
        return _harmless("dead.put", lambda: dead.put(effect.stop, self._given_up()))

    def _given_up(self) -> GivenUp:
        request = self.policy.request
        sent = None if request is None else request()
        return GivenUp(self.name, self.key, self.fn, self.args, self.kwargs, sent)


INSTANT: dict[type, Callable[..., Any]] = {Clocks: RetryRunnerBase._clocks, Refund: RetryRunnerBase._refund}
"""The effects that take no time, and how each is performed."""


def arguments_for(shape: FunctionShape, kwargs: dict[str, Any], attempt: Attempt) -> dict[str, Any]:
    """The keyword arguments, with `attempt` and `timeout` if the function takes them and the caller gave none."""
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
        return rest_of(self._steps, lambda: self._first)


async def await_within(seconds: float, work: Any) -> Any:
    """
    Await `work` for `seconds` at most.

    The timer is set only when the work really waits. Work that never waits needs no timer, and none could interrupt it.
    """
    if not hasattr(work, "__await__"):
        raise ConfigurationError(
            f"the function returned {type(work).__name__}, which cannot be awaited. Use call() for blocking functions"
        )
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
        warn_hook_failed(what, error)
        return None


def warn_not_awaited(what: str, result: Any, why: str) -> None:
    """Warn if a hook returned an awaitable where nothing can await it."""
    if not isawaitable(result):
        return
    if iscoroutine(result):
        result.close()
    warn_hook_failed(what, ConfigurationError(why))


async def await_hook(what: str, result: Any) -> None:
    """Await what a hook returned, if it is awaitable, for `HOOK_SECONDS` at most. Its errors are only logged."""
    if not isawaitable(result):
        return
    try:
        async with asyncio.timeout(HOOK_SECONDS):
            await result
    except Exception as error:
        warn_hook_failed(what, error)


def run_probe(probe: Any, attempt: Attempt) -> Returned | Raised:
    """Run a probe."""
    try:
        return Returned(probe(attempt))
    except Exception as error:
        return Raised(error)


async def await_result(ended: Returned | Raised) -> Returned | Raised:
    """Await what a probe returned, if it is awaitable."""
    if isinstance(ended, Raised) or not isawaitable(ended.value):
        return ended
    try:
        return Returned(await ended.value)
    except Exception as error:
        return Raised(error)
