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

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from onceward._core.errors import BalanceExhausted, OncewardError, OutcomeUnknown, QuotaExceeded
from onceward.protocol.errors import SqlError, SqlKind
from onceward.protocol.usage_header import CallUsage
from onceward.service.access import AsyncAccess, Caller, Reservation, Room
from onceward.service.sql.authorizer import readonly_error
from onceward.service.sql.costs import cost_of
from onceward.service.sql.database_files import DatabaseName
from onceward.service.sql.requests import Identity
from onceward.service.sql.statement_parser import REMEMBERED_CHARACTERS, WRITES, parse_statement
from onceward.service.sql.worker_errors import NotReplayed

NEW_DATABASE_BYTES = 32_768
"""What a database takes before anything is in it: the tables of its keys. It counts until the files are counted."""
QUOTA_FULL = "the quota is used up"
"""How an engine begins to say that a request needs more than it may grow by."""

Run: TypeAlias = Callable[[bool, int | None], Awaitable[Any]]
"""Runs the request. True: only if its result is there already. And how many bytes it may grow by; None: no limit."""


class Metering:
    """The prices of one service, and who pays them."""

    def __init__(
        self,
        access: AsyncAccess,
        *,
        price: int,
        charge_failed: bool,
        databases_max: int,
        writes: Callable[[str], bool] | None = None,
    ) -> None:
        self._access = access
        self._price = price
        self._charge_failed = charge_failed
        self._databases_max = databases_max
        self._writes = writes or may_write
        """Whether a statement may write, as far as one can see."""
        self._creating: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def metered(
        self,
        caller: Caller,
        usage: CallUsage,
        identity: Identity | None,
        sqls: Sequence[str],
        run: Run,
        *,
        operation: Callable[[], Awaitable[str | None]],
    ) -> Any:
        """Run within the tenant's quota and balance. Beyond them, results that are there already are still replayed."""
        run = partial(self._timed, usage, run)
        run_now: Callable[[], Awaitable[Any]]
        if identity is not None or any(map(self._writes, sqls)):
            run_now = partial(self._in_room, caller.tenant, usage, identity, run)
        else:
            run_now = partial(run, False, None)
        if not (caller.prepaid and self._price):
            return await run_now()
        return await self._charged(caller, usage, identity, len(sqls), run_now, run, operation)

    async def created(
        self,
        tenant: str,
        database: DatabaseName,
        listed: Callable[[], Awaitable[Collection[DatabaseName]]],
        create: Callable[[], Awaitable[bool]],
    ) -> bool:
        """Make a database, if the tenant may have one more; whether it is new. One that is there is never refused."""
        # One after the other, so that those that are made at once are counted, too.
        async with self._creating.setdefault(tenant, asyncio.Lock()):
            there = await listed()
            if database not in there:
                await self._may_have(tenant, len(there) + 1)
            room = await self._access.admit(tenant, records=0, bytes=0 if database in there else NEW_DATABASE_BYTES)
            is_new = False
            try:
                is_new = await create()
            finally:
                self._access.settle_room(room, bytes=NEW_DATABASE_BYTES if is_new else 0)
            return is_new

    async def _may_have(self, tenant: str, databases: int) -> None:
        most = (await self._access.quota(tenant)).quota_databases
        most = self._databases_max if most is None else most
        if databases > most:
            raise QuotaExceeded(
                f"this tenant has {databases - 1} of the {most} databases that it may have, in both environments "
                "together; nothing was made. Delete one, or ask for a higher quota (onceward tenant quota --databases)",
                limit=most,
                held=databases - 1,
            )

    async def _in_room(self, tenant: str, usage: CallUsage, identity: Identity | None, run: Run) -> Any:
        """Run within a share of the room that the quota leaves; who needs more gets all there is, and runs again."""
        records = int(identity is not None)
        try:
            room = await self._access.reserve(tenant, records=records)
        except QuotaExceeded as full:
            return await self._replayed(identity, run, full)
        try:
            return await self._in(room, usage, run)
        except SqlError as error:
            if room.bytes is None or not is_quota_full(error):
                raise
            full_error = error
        larger = await self._access.reserve(tenant, records=records, all_of_it=True)
        if (larger.bytes or 0) <= room.bytes:
            self._access.settle_room(larger)
            raise _no_room(larger) from full_error
        try:
            return await self._in(larger, usage, run)
        except SqlError as error:
            if is_quota_full(error):
                raise _no_room(larger) from error
            raise

    async def _in(self, room: Room, usage: CallUsage, run: Run) -> Any:
        made = grown = 0
        try:
            result = await run(False, room.bytes)
            if not result.replayed:
                made, grown = room.records, result.cost.grown_bytes
                usage.bytes_grown = grown
            return result
        finally:
            self._access.settle_room(room, records=made, bytes=grown)
            usage.records_left = room.records_left
            usage.bytes_left = None if room.bytes_left is None else max(room.bytes_left - max(grown, 0), 0)

    async def _timed(self, usage: CallUsage, run: Run, replay_only: bool, growth: int | None) -> Any:
        """Run, and note the processor time: of a result and of an error, and of an attempt before it."""
        try:
            result = await run(replay_only, growth)
        except OncewardError as error:
            usage.add_cpu(cost_of(error).cpu_seconds)
            raise
        usage.add_cpu(result.cost.cpu_seconds)
        return result

    async def _charged(
        self,
        caller: Caller,
        usage: CallUsage,
        identity: Identity | None,
        statements: int,
        run: Callable[[], Awaitable[Any]],
        replay: Run,
        operation: Callable[[], Awaitable[str | None]],
    ) -> Any:
        """Run, and charge the balance. At zero it is refused before anything runs, and the key stays unused."""
        usage.cost = 0
        try:
            name = await operation()
            reservation = await self._access.charge(caller.tenant, self._price * statements, operation=name)
        except BalanceExhausted as empty:
            usage.balance = empty.balance
            return await self._replayed(identity, replay, empty)
        try:
            result = await run()
        except OncewardError as error:
            ran = statements_run(error, statements) if self._charge_failed else 0
            await self._settle(reservation, usage, ran * self._price)
            raise
        await self._settle(reservation, usage, 0 if result.replayed else reservation.amount)
        return result

    async def _settle(self, reservation: Reservation, usage: CallUsage, cost: int) -> None:
        usage.balance = await self._access.settle(reservation, cost)
        usage.cost = cost if reservation.id is not None else None

    async def _replayed(self, identity: Identity | None, run: Run, refusal: OncewardError) -> Any:
        """The result that is there already, although nothing new may run; otherwise the refusal."""
        if identity is None:
            raise refusal
        try:
            return await run(True, None)
        except NotReplayed:
            raise refusal from None


def _no_room(room: Room) -> QuotaExceeded:
    return QuotaExceeded(
        f"the quota of this tenant leaves {room.bytes_left} bytes, and this needs more; nothing was written. Delete "
        "rows or databases that are not needed, or ask for a higher quota (onceward tenant quota), then send it again "
        "with the same key",
        limit=room.bytes_left,
    )


def may_write(sql: str) -> bool:
    """Whether a statement may write, as far as one can see. A long one is taken to, without looking."""
    if len(sql) > REMEMBERED_CHARACTERS:
        return True
    try:
        verb = parse_statement(sql).verb
    except SqlError:
        return False  # Refused in a moment, for what it is.
    return verb in WRITES or verb == "PRAGMA"


def is_quota_full(error: SqlError) -> bool:
    """Whether a database is full because of what its request may grow by, and not because of its own size."""
    return error.kind is SqlKind.FULL and str(error).startswith(QUOTA_FULL)


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
    if isinstance(error, QuotaExceeded) and isinstance(error.__cause__, SqlError):
        error = error.__cause__
    if isinstance(error, SqlError) and error.began:
        return statements if error.statement is None else error.statement + 1
    return 0
