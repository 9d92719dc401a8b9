# Made from shared_mixins_async.py by `make halves`: change that file, not this one.
"""
The calls to the store of a shared budget and a shared breaker.
"""

from __future__ import annotations

from onceward._core.circuit import BreakerRefusal
from onceward._core.shared_state import TakeProbe
from onceward.retry.shared_base import SharedBreakerBase, SharedBudgetBase
from onceward.retry.shared_state_client import SharedStateUnavailable


class SharedBudgetMixin(SharedBudgetBase):
    """The part of a shared budget that calls the store."""

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
    """The part of a shared breaker that calls the store."""

    def admit(self, *, peek: bool = False) -> int | BreakerRefusal:
        """A ticket for a call, or `Refused`. If a probe is due, the store decides who makes it."""
        if peek or not self._is_due():
            return self._admit_here(peek)
        try:
            told = self._courier.ask(TakeProbe())
        except SharedStateUnavailable:
            return self._admit_here()
        return self._told_of_probe(told)

    def report(self, ticket: int | BreakerRefusal | None, end: str) -> None:
        """Report how a call ended; failures and probes go to the store."""
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
        """Wait for reports that are still on their way, for `patience` seconds at most."""
        self._courier.caught_up()
