# Made from breaker_budget_mixins_async.py by `make halves`: change that file, not this one.
"""
The methods of breakers and budgets that have a colour: admit, report, withdraw, and calling through a breaker.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from onceward._core.circuit import BreakerRefusal, CircuitState
from onceward.retry.breaker_base import BreakerBase, BreakerGuardBase
from onceward.retry.budget_base import BudgetBase

CLOSED = CircuitState.CLOSED

P = ParamSpec("P")
T = TypeVar("T")


class BreakerMixin(BreakerBase):
    """The calls of a breaker: admit, report, and call a function through it."""

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """
        Call `fn`, unless the circuit is open: then raise `CircuitOpen`, or return what the fallback returns.

        A call that is cancelled or interrupted is not counted.
        """
        circuit = self.circuit
        if circuit.state is CLOSED:
            ticket: int | BreakerRefusal | None = circuit.serial
        elif isinstance(ticket := self.first(), BreakerRefusal):
            return self._refused(ticket)  # type: ignore[no-any-return]
        try:
            value = fn(*args, **kwargs)
        except Exception as error:
            self._ended(ticket, error)
            raise
        except BaseException as struck:
            self.interrupted(ticket, struck)
            raise
        if self._failed is not None and self._failed(value):
            self._ended(ticket, value)
        elif circuit.streak or self.counts_all or circuit.state is not CLOSED:
            self.report(ticket, "succeeded")
        return value

    def first(self) -> int | BreakerRefusal | None:
        """A ticket for a first try; None if it goes out uncounted (`retries_only`)."""
        admitted = self.admit()
        return None if self.retries_only and isinstance(admitted, BreakerRefusal) else admitted

    def admit(self, *, peek: bool = False) -> int | BreakerRefusal:
        """A ticket for a call, or a refusal that says when to retry. With `peek` no probe's slot is taken."""
        return self._admit_here(peek)

    def report(self, ticket: int | BreakerRefusal | None, end: str) -> None:
        """Report how a call ended: "succeeded", "failed", or "ended" (says nothing about the dependency)."""
        self._report_here(ticket, end)

    def interrupted(self, ticket: int | BreakerRefusal | None, struck: BaseException) -> None:
        """Give back the ticket of a call that was cancelled. It is not counted, and frees a probe's slot."""
        self.report(ticket, "ended")

    def caught_up(self) -> None:
        """Wait until every report has reached the store. A breaker of one process has none to wait for."""

    def _ended(self, ticket: int | BreakerRefusal | None, problem: Any) -> None:
        self.report(ticket, self._verdict(problem))


class BreakerGuardMixin(BreakerGuardBase):
    """One use of a breaker as a block."""

    def __enter__(self) -> Self:
        self._ticket = self._breaker.first()
        if isinstance(self._ticket, BreakerRefusal):
            raise self._breaker.refusal(self._ticket)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            self._breaker.interrupted(self._ticket, error)
        else:
            self._breaker.report(self._ticket, self._breaker.end_of(error))


class BudgetMixin(BudgetBase):
    """The calls of a budget."""

    def connect(self, patience: float = 10.0) -> bool:
        """Whether the store of a shared budget responds. Always True for a budget of this process alone."""
        return True

    def withdraw(self, *, throttled: bool = False) -> float | None:
        """Pay for a retry. Returns what it cost, or None if it must not be made."""
        return self._told(self._withdraw_here(throttled))
