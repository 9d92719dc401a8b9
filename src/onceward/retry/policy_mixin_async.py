# blocking half: policy_mixin.py; _arun=_run, _avalue=_value
"""
The calls of a policy: the first attempt is made here, and `AsyncRetryRunner` makes the ones after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from onceward._core.circuit import BreakerRefusal, CircuitState
from onceward._core.colour import AWAITS
from onceward._core.errors import CircuitOpen, ConfigurationError
from onceward._core.flow import AttemptResult, Raised, ReturnedFailure, new_tuple
from onceward._core.stops import StopReason
from onceward.gate.function_inspection import function_name
from onceward.retry.call_context import CURRENT, CallContext
from onceward.retry.function_shape import FunctionShape, maybe_await, shape_of, stream_error
from onceward.retry.policy_base import RetryBase, stop_of
from onceward.retry.retry_runner_async import AsyncRetryRunner
from onceward.retry.retry_runner_base import await_within

CLOSED = CircuitState.CLOSED

P = ParamSpec("P")
T = TypeVar("T")


class AsyncRetryMixin(RetryBase):
    """How a policy calls."""

    __slots__ = ()

    async def acall(self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """
        Call `fn`, and again if need be. It may take `attempt` (an `Attempt`) or `timeout` (seconds).

        An awaited attempt is cancelled at its timeout. A blocking one only receives it, and must keep to it by itself.
        """
        shape = shape_of(fn)
        if shape.stream:
            raise stream_error(fn)
        if not AWAITS:  # noqa: SIM102 - a branch on the colour stands by itself
            if shape.awaits:
                raise ConfigurationError(
                    f"{function_name(fn)} is awaited: use `await policy.acall(...)`, or decorate it"
                )
        return await self._arun(fn, shape, args, kwargs)  # type: ignore[no-any-return]

    async def _arun(
        self, fn: Callable[..., Any], shape: FunctionShape, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        began = self._now()
        frame = CallContext(began + self.elapsed, self._attempts, self.name or "")
        outer = CURRENT.get()
        if outer is not None:
            self._go_under(outer, frame, fn)
        key = self.key if self._recipe is None else self._key(fn, shape, args, kwargs)
        breaker, ticket = self.breaker, None
        if outer is not None and frame.limit <= began:
            work = AsyncRetryRunner(self, frame, began, (fn, shape, args, kwargs, key), None)
            return await self._avalue(await work.refuse(StopReason.DEADLINE, None))
        if breaker is not None:
            circuit = breaker.circuit
            ticket = circuit.serial if circuit.state is CLOSED else await breaker.afirst()
            if isinstance(ticket, BreakerRefusal):
                work = AsyncRetryRunner(self, frame, began, (fn, shape, args, kwargs, key), None)
                return await self._avalue(await work.refuse(StopReason.BREAKER, ticket.retry_after))
        token = CURRENT.set(frame)
        try:
            try:
                if AWAITS:
                    given = self._given(shape, kwargs, key, frame, began) if shape.wants else kwargs
                    left = frame.limit - began
                    value = await await_within(self.timeout if self.timeout < left else left, fn(*args, **given))
                else:
                    value = fn(*args, **(self._given(shape, kwargs, key, frame, began) if shape.wants else kwargs))
            except Exception as error:
                ended: AttemptResult = new_tuple(Raised, (error,))
            except BaseException as struck:
                if breaker is not None:
                    await breaker.ainterrupted(ticket, struck)
                raise
            else:
                if self.failed is None or not self.is_problem(value):
                    if breaker is not None and (circuit.streak or breaker.counts_all or circuit.state is not CLOSED):
                        await breaker.areport(ticket, "succeeded")
                    if self.budget is not None:
                        self.budget.succeeded()
                    if self._alerts:
                        self._alerts.discard(self.credential)
                    return value
                ended = ReturnedFailure(value)
            work = AsyncRetryRunner(self, frame, began, (fn, shape, args, kwargs, key), ticket)
            try:
                return await self._avalue(await work.persist(ended))
            finally:
                del ended  # An error holds the frames that it passed; one that is held by them is freed late.
        finally:
            CURRENT.reset(token)
            frame.live = False

    async def _avalue(self, ended: AttemptResult) -> Any:
        """Return or raise what a call ended in. If the breaker stopped it, return the fallback's value instead."""
        if not isinstance(ended, Raised):
            return ended.value
        error, breaker = ended.error, self.breaker
        fallback = None if breaker is None or self.under_gate else breaker.fallback
        try:
            if fallback is None or not isinstance(error, CircuitOpen) or stop_of(error) is None:
                raise error
            instead = fallback(error)
        finally:
            del error, ended  # It holds this frame now.
        return await maybe_await(instead) if AWAITS else instead
