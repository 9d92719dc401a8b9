# blocking half: breaker_budget_mixins.py; _aended=_ended
"""
The methods of breakers and budgets that have a colour: admit, report, withdraw, and calling through a breaker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from onceward._core.circuit import BreakerRefusal, CircuitState
from onceward._core.colour import AWAITS
from onceward.retry.breaker_base import BreakerBase, BreakerGuardBase
from onceward.retry.budget_base import BudgetBase
from onceward.retry.function_shape import maybe_await

CLOSED = CircuitState.CLOSED

P = ParamSpec("P")
T = TypeVar("T")


class AsyncBreakerMixin(BreakerBase):
    """The calls of a breaker: admit, report, and call a function through it."""

    async def acall(self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """
        Call `fn`, unless the circuit is open: then raise `CircuitOpen`, or return what the fallback returns.

        A call that is cancelled or interrupted is not counted.
        """
        circuit = self.circuit
        if circuit.state is CLOSED:
            ticket: int | BreakerRefusal | None = circuit.serial
        elif isinstance(ticket := await self.afirst(), BreakerRefusal):
            return await maybe_await(self._refused(ticket)) if AWAITS else self._refused(ticket)  # type: ignore[no-any-return]
        try:
            value = await fn(*args, **kwargs)
        except Exception as error:
            await self._aended(ticket, error)
            raise
        except BaseException as struck:
            await self.ainterrupted(ticket, struck)
            raise
        if self._failed is not None and self._failed(value):
            await self._aended(ticket, value)
        elif circuit.streak or self.counts_all or circuit.state is not CLOSED:
            await self.areport(ticket, "succeeded")
        return value

    async def afirst(self) -> int | BreakerRefusal | None:
        """A ticket for a first try; None if it goes out uncounted (`retries_only`)."""
        admitted = await self.aadmit()
        return None if self.retries_only and isinstance(admitted, BreakerRefusal) else admitted

    async def aadmit(self, *, peek: bool = False) -> int | BreakerRefusal:
        """A ticket for a call, or a refusal that says when to retry. With `peek` no probe's slot is taken."""
        return self._admit_here(peek)

    async def areport(self, ticket: int | BreakerRefusal | None, end: str) -> None:
        """Report how a call ended: "succeeded", "failed", or "ended" (says nothing about the dependency)."""
        self._report_here(ticket, end)

    async def ainterrupted(self, ticket: int | BreakerRefusal | None, struck: BaseException) -> None:
        """Give back the ticket of a call that was cancelled. It is not counted, and frees a probe's slot."""
        if AWAITS:  # noqa: SIM102 - a branch on the colour stands by itself
            if isinstance(struck, GeneratorExit):
                self.let_go(ticket)  # The coroutine is being closed: nothing can be awaited any more.
                return
        await self.areport(ticket, "ended")

    async def acaught_up(self) -> None:
        """Wait until every report has reached the store. A breaker of one process has none to wait for."""

    async def _aended(self, ticket: int | BreakerRefusal | None, problem: Any) -> None:
        await self.areport(ticket, self._verdict(problem))


class AsyncBreakerGuardMixin(BreakerGuardBase):
    """One use of a breaker as a block."""

    async def __aenter__(self) -> Self:
        self._ticket = await self._breaker.afirst()
        if isinstance(self._ticket, BreakerRefusal):
            raise self._breaker.refusal(self._ticket)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            await self._breaker.ainterrupted(self._ticket, error)
        else:
            await self._breaker.areport(self._ticket, self._breaker.end_of(error))


class AsyncBudgetMixin(BudgetBase):
    """The calls of a budget."""

    async def aconnect(self, patience: float = 10.0) -> bool:
        """Whether the store of a shared budget responds. Always True for a budget of this process alone."""
        return True

    async def awithdraw(self, *, throttled: bool = False) -> float | None:
        """Pay for a retry. Returns what it cost, or None if it must not be made."""
        return self._told(self._withdraw_here(throttled))
