# blocking half: shared_mixins.py; aask=ask, atell=tell
"""
The calls to the store of a shared budget and a shared breaker.
"""

from __future__ import annotations

from onceward._core.circuit import BreakerRefusal
from onceward._core.shared_state import TakeProbe
from onceward.retry.shared_base import SharedBreakerBase, SharedBudgetBase
from onceward.retry.shared_state_client import SharedStateUnavailable


class AsyncSharedBudgetMixin(SharedBudgetBase):
    """The part of a shared budget that calls the store."""

    async def awithdraw(self, *, throttled: bool = False) -> float | None:
        """Pay for a retry at the store; alone, if it is away."""
        decided = self._alone(throttled)
        if decided is not None:
            return decided[0]
        try:
            paid = await self._courier.aask(throttled)
        except SharedStateUnavailable:
            return self._missed(throttled)
        return self._heard(paid)

    async def aconnect(self, patience: float = 10.0) -> bool:
        """
        Ask the store for the first time, and wait for it longer than a call would: whether it answered.

        For the start of a process: until the store has answered once, only successes pay for retries here.
        """
        try:
            await self._courier.aask(None, patience)
        except SharedStateUnavailable:
            return False
        self._meet()
        return True


class AsyncSharedBreakerMixin(SharedBreakerBase):
    """The part of a shared breaker that calls the store."""

    async def aadmit(self, *, peek: bool = False) -> int | BreakerRefusal:
        """A ticket for a call, or `Refused`. If a probe is due, the store decides who makes it."""
        if peek or not self._is_due():
            return self._admit_here(peek)
        try:
            told = await self._courier.aask(TakeProbe())
        except SharedStateUnavailable:
            return self._admit_here()
        return self._told_of_probe(told)

    async def areport(self, ticket: int | BreakerRefusal | None, end: str) -> None:
        """Report how a call ended; failures and probes go to the store."""
        if self._is_plain(ticket, end):
            return
        what = self._counted(ticket, end)
        if what is not None:
            try:
                told = await self._courier.atell(what)
            except SharedStateUnavailable:
                return
            self._adopt(told)

    async def acaught_up(self) -> None:
        """Wait for reports that are still on their way, for `patience` seconds at most."""
        await self._courier.acaught_up()
