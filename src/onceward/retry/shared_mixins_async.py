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
        """Pay for a retry at the store, or from the local count if the store is unavailable."""
        decided = self._alone(throttled)
        if decided is not None:
            return self._told(decided[0])
        try:
            paid = await self._client.aask(throttled)
        except SharedStateUnavailable:
            return self._told(self._decide_without_store(throttled))
        return self._told(self._note_reply(paid))

    async def aconnect(self, patience: float = 10.0) -> bool:
        """
        Contact the store, and wait for it longer than a call would. Returns whether it responded.

        Call it when a process starts: until the store has responded once, only successes pay for retries here.
        """
        try:
            await self._client.aask(None, patience)
        except SharedStateUnavailable:
            return False
        self._mark_connected()
        return True


class AsyncSharedBreakerMixin(SharedBreakerBase):
    """The part of a shared breaker that calls the store."""

    async def aadmit(self, *, peek: bool = False) -> int | BreakerRefusal:
        """A ticket for a call, or a `BreakerRefusal`. If a probe is due, the store decides which process makes it."""
        if peek or not self._is_due():
            return self._admit_here(peek)
        try:
            update = await self._client.aask(TakeProbe())
        except SharedStateUnavailable:
            return self._admit_here()
        return self._follow_probe_update(update)

    async def areport(self, ticket: int | BreakerRefusal | None, end: str) -> None:
        """Report how a call ended; failures and probes go to the store."""
        if self._is_plain(ticket, end):
            return
        move = self._counted(ticket, end)
        if move is not None:
            try:
                update = await self._client.atell(move)
            except SharedStateUnavailable:
                return
            self._adopt(update)

    async def acaught_up(self) -> None:
        """Wait for reports that are still on their way, for `patience` seconds at most."""
        await self._client.acaught_up()
