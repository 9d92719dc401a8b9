"""
What a statement may use and what it costs: asked before it runs, settled after it, whatever came of it.

    who may only read is refused what writes        nothing is reserved yet
    records, room on disk                           QuotaExceeded: what ran before is still replayed
    money                                           BalanceExhausted: what ran before is still replayed
    ... it runs ...
    money, room                                     by its own outcome: ran, replayed, failed after it began, refused

Once it has run, all that follows is bookkeeping: nothing of it turns a committed statement into an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from onceward._core.errors import BalanceExhausted, OncewardError, OutcomeUnknown, QuotaExceeded
from onceward.protocol.errors import SqlError
from onceward.protocol.usage_header import CallUsage
from onceward.service.access import AsyncAccess, Caller, Reservation
from onceward.service.sql.authorizer import readonly_error
from onceward.service.sql.requests import Identity
from onceward.service.sql.statement_parser import REMEMBERED_CHARACTERS, WRITES, needs_space, parse_statement
from onceward.service.sql.worker_errors import NotReplayed

Run: TypeAlias = Callable[[bool], Awaitable[Any]]
"""Runs the request; True: only if its result is there already."""


class Metering:
    """The prices of one service, and who pays them."""

    def __init__(self, access: AsyncAccess, *, price: int, charge_failed: bool) -> None:
        self._access = access
        self._price = price
        self._charge_failed = charge_failed

    async def metered(
        self,
        caller: Caller,
        usage: CallUsage,
        identity: Identity | None,
        sqls: Sequence[str],
        run: Run,
        *,
        size: int,
        operation: str | None,
    ) -> Any:
        """Run within the tenant's quota and balance. Beyond them, results that are there already are still replayed."""
        records, size = int(identity is not None), size if any(map(needs_space, sqls)) else 0
        if not records and not size:
            return await self._charged(caller, usage, identity, len(sqls), run, operation)
        try:
            await self._access.admit(caller.tenant, records=records, bytes=size)
        except QuotaExceeded as full:
            return await self._replayed(usage, identity, run, full)
        result = None
        try:
            result = await self._charged(caller, usage, identity, len(sqls), run, operation)
        finally:
            if result is None or result.replayed:
                self._access.withdraw(caller.tenant, records=records, bytes=size)
        return result

    async def _charged(
        self,
        caller: Caller,
        usage: CallUsage,
        identity: Identity | None,
        statements: int,
        run: Run,
        operation: str | None,
    ) -> Any:
        """Run, and charge the balance. At zero it is refused before anything runs, and the key stays unused."""
        if not (caller.prepaid and self._price):
            return await run(False)
        usage.cost = 0
        try:
            reservation = await self._access.charge(caller.tenant, self._price * statements, operation=operation)
        except BalanceExhausted as empty:
            usage.balance = empty.balance
            return await self._replayed(usage, identity, run, empty)
        try:
            result = await run(False)
        except OncewardError as error:
            ran = statements_run(error, statements) if self._charge_failed else 0
            await self._settle(reservation, usage, ran * self._price)
            raise
        await self._settle(reservation, usage, 0 if result.replayed else reservation.amount)
        return result

    async def _settle(self, reservation: Reservation, usage: CallUsage, cost: int) -> None:
        usage.balance = await self._access.settle(reservation, cost)
        usage.cost = cost if reservation.id is not None else None

    async def _replayed(self, usage: CallUsage, identity: Identity | None, run: Run, refusal: OncewardError) -> Any:
        """The result that is there already, although nothing new may run; otherwise the refusal."""
        if identity is None:
            raise refusal
        try:
            return await run(True)
        except NotReplayed:
            raise refusal from None


def refuse_writes(sqls: Sequence[str], *, batch: bool) -> None:
    """
    Refuse what writes, by its verb: for a caller who may only read, before anything is reserved for it.

    A worker looks again, and at what cannot be told from here: long texts, and PRAGMAs.
    """
    for number, sql in enumerate(sqls):
        if len(sql) > REMEMBERED_CHARACTERS:
            continue
        try:
            verb = parse_statement(sql).verb
        except SqlError:
            return  # Refused in a moment, for what it is.
        if verb in WRITES:
            refusal = readonly_error()
            refusal.statement = number if batch else None
            raise refusal


def statements_run(error: OncewardError, statements: int) -> int:
    """
    How many statements of a request had begun when it failed: those are paid for.

    A time-out, a broken constraint, a result that is too large: the work was done, and an error may carry what it
    found. If nobody knows whether a write was committed, it counts as done.
    """
    if isinstance(error, OutcomeUnknown):
        return statements
    if isinstance(error, SqlError) and error.began:
        return statements if error.statement is None else error.statement + 1
    return 0
