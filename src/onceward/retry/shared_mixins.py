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
        """Pay for a retry at the store, or from the local count if the store is unavailable."""
        decided = self._alone(throttled)
        if decided is not None:
            return self._told(decided[0])
        try:
            paid = self._client.ask(throttled)
        except SharedStateUnavailable:
            return self._told(self._decide_without_store(throttled))
        return self._told(self._note_reply(paid))

    def connect(self, patience: float = 10.0) -> bool:
        """
        Contact the store, and wait for it longer than a call would. Returns whether it responded.

        Call it when a process starts: until the store has responded once, only successes pay for retries here.
        """
        try:
            self._client.ask(None, patience)
        except SharedStateUnavailable:
            return False
        self._mark_connected()
        return True


class SharedBreakerMixin(SharedBreakerBase):
    """The part of a shared breaker that calls the store."""

    def admit(self, *, peek: bool = False) -> int | BreakerRefusal:
        """A ticket for a call, or a `BreakerRefusal`. If a probe is due, the store decides which process makes it."""
        if peek or not self._is_due():
            return self._admit_here(peek)
        try:
            update = self._client.ask(TakeProbe())
        except SharedStateUnavailable:
            return self._admit_here()
        return self._follow_probe_update(update)

    def report(self, ticket: int | BreakerRefusal | None, end: str) -> None:
        """Report how a call ended; failures and probes go to the store."""
        if self._is_plain(ticket, end):
            return
        move = self._counted(ticket, end)
        if move is not None:
            try:
                update = self._client.tell(move)
            except SharedStateUnavailable:
                return
            self._adopt(update)

    def caught_up(self) -> None:
        """Wait for reports that are still on their way, for `patience` seconds at most."""
        self._client.caught_up()
