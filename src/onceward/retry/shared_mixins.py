# Made from shared_mixins_async.py by `make halves`: change that file, not this one.
"""
Asking the store for a shared budget and a shared breaker, and telling it.
"""

from __future__ import annotations

from onceward._core.circuit import BreakerRefusal
from onceward._core.shared_state import TakeProbe
from onceward.retry.shared_base import SharedBreakerBase, SharedBudgetBase
from onceward.retry.shared_state_client import SharedStateUnavailable


class SharedBudgetMixin(SharedBudgetBase):
    """How a shared budget is asked."""

    def withdraw(self, *, throttled: bool = False) -> float | None:
        """Pay for a retry at the store; alone, if it is away."""
        decided = self._alone(throttled)
        if decided is not None:
            return decided[0]
        try:
            paid = self._courier.ask(throttled)
        except SharedStateUnavailable:
            return self._missed(throttled)
        return self._heard(paid)

    def connect(self, patience: float = 10.0) -> bool:
        """
        Ask the store for the first time, and wait for it longer than a call would: whether it answered.

        For the start of a process: until the store has answered once, only successes pay for retries here.
        """
        try:
            self._courier.ask(None, patience)
        except SharedStateUnavailable:
            return False
        self._meet()
        return True


class SharedBreakerMixin(SharedBreakerBase):
    """How a shared breaker is asked and told."""

    def admit(self, *, peek: bool = False) -> int | BreakerRefusal:
        """Same as `Breaker.admit`; where a probe is due, the store says whose it is."""
        if peek or not self._is_due():
            return self._admit_here(peek)
        try:
            told = self._courier.ask(TakeProbe())
        except SharedStateUnavailable:
            return self._admit_here()
        return self._told_of_probe(told)

    def report(self, ticket: int | BreakerRefusal | None, end: str) -> None:
        """Same as `Breaker.report`; failures and probes are handed in."""
        if self._is_plain(ticket, end):
            return
        what = self._counted(ticket, end)
        if what is not None:
            try:
                told = self._courier.tell(what)
            except SharedStateUnavailable:
                return
            self._adopt(told)

    def caught_up(self) -> None:
        """Wait until what was told without waiting has arrived, as long as there is patience."""
        self._courier.caught_up()
