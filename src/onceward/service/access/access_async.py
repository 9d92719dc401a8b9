# blocking half: access.py
"""
`AsyncAccess`: who may call, and what they may spend. A thin shell over `flows`.

    async with await AsyncAccess.open("sqlite:///agent.db") as access:
        caller = await access.authenticate(token)  # TokenInvalid
        caller.require(role="write", database="shop")  # Forbidden
        await access.admit(caller.tenant)  # QuotaExceeded
        reservation = await access.charge(caller.tenant, 2_500)  # BalanceExhausted
        ...  # run it
        await access.commit(reservation)  # or give_back, if nothing ran

Nothing here speaks HTTP: headers come in as text. Open one in each process, after a fork.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Self, TypeVar

from onceward.runtime.environment import REAL, Environment
from onceward.service.access.access_database import AccessDatabase, open_access_database
from onceward.service.access.access_tables import (
    AccessTables,
    OtherUsage,
    RanLookup,
    no_other_usage,
    nothing_known,
)
from onceward.service.access.balances import LAPSE_SECONDS, Reservation
from onceward.service.access.flood_control import FloodControl
from onceward.service.access.flows import OVERLAP_SECONDS, AccessFlows, SweepResult
from onceward.service.access.quotas import QuotaUsage, Room
from onceward.service.access.scopes import check_tenant
from onceward.service.access.tenant_erasure import (
    ErasureProgress,
    TenantTombstone,
    erase_tenant,
    no_other_data,
)
from onceward.service.access.tenants import Quota, Tenant
from onceward.service.access.token_table import NewToken, Role, TokenView
from onceward.service.access.token_verifier import Caller, check_scope_by
from onceward.stores.tables import AsyncTablesRunner, Flow

T = TypeVar("T")

Seconds = float | timedelta


class AsyncAccess:
    """Tokens, tenants and balances, beside the records of a store. Safe for threads; a write is never half undone."""

    def __init__(
        self,
        database: AccessDatabase,
        environment: Environment,
        scope_by: str,
        elsewhere: OtherUsage = no_other_usage,
        ran: RanLookup = nothing_known,
    ) -> None:
        self._database = database
        self._environment = environment
        self._flows = AccessFlows(database.peppers, environment, scope_by)
        self._tables = AsyncTablesRunner.over(AccessTables(database, elsewhere, ran), "access")

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        scope_by: str = "tenant",
        create: bool = False,
        elsewhere: OtherUsage = no_other_usage,
        ran: RanLookup = nothing_known,
        environment: Environment = REAL,
    ) -> Self:
        """
        Open what belongs to the store that a URL names; with `create`, make it.

        `scope_by="token"` gives each line of tokens keys of its own, instead of one space of keys for each tenant.
        `elsewhere` tells what tenants hold outside of the store, for their quotas; `ran`, which operations ran, for
        charges whose holder died.
        """
        check_scope_by(scope_by)
        database = await asyncio.to_thread(open_access_database, url, environment, create=create)
        return cls(database, environment, scope_by, elsewhere, ran)

    async def authenticate(self, token: str) -> Caller:
        """Whose token it is; `TokenInvalid`, in the same words whatever is wrong with it."""
        return await self._run(self._flows.authenticate(token))

    async def enter(self, flood: FloodControl, authorization: list[str], address: str) -> Caller:
        """
        Same as `authenticate`, from the values of `Authorization`, with flood control for those without a valid token.

        `RateLimitError`, with whole seconds, once too many of them came from an address. A valid token is never slowed.
        """
        return await self._run(self._flows.enter(flood, authorization, address))  # of no colour

    def known_caller(self, authorization: list[str]) -> Caller | None:
        """The caller, if `enter` let this very header in just now; None: ask it. Nothing is waited for."""
        return self._flows.verifier.presented_again(authorization)

    async def check(self) -> None:
        """For a service that starts: `ConfigurationError` if there are tokens that this process could not judge."""
        await self._run(self._flows.check())

    async def create_token(
        self,
        tenant: str,
        *,
        environment: str = "live",
        role: Role | str = Role.WRITE,
        databases: list[str] | tuple[str, ...] | None = None,
        expires: Seconds | None = None,
    ) -> NewToken | None:
        """Make a token; its text is in the result and nowhere else. None if there is no such tenant."""
        return await self._run(self._flows.create_token(tenant, environment, role, databases, expires))

    async def token(self, id: str) -> TokenView | None:
        """One token, without its secret."""
        return await self._run(self._flows.token(id))

    async def tokens(self, tenant: str | None = None, *, after: str = "", limit: int = 100) -> list[TokenView]:
        """Tokens in order of id, of one tenant or of all."""
        return await self._run(self._flows.tokens(tenant, after, limit))

    async def rotate_token(self, id: str, *, overlap: Seconds = OVERLAP_SECONDS) -> NewToken | None:
        """Make a token's successor, in the same scope; the old one ends after the overlap (0: at once)."""
        return await self._run(self._flows.rotate_token(id, overlap))

    async def revoke_token(self, id: str) -> TokenView | None:
        """End a token: here at once, in every other process within half a second. None if there is no such token."""
        return await self._run(self._flows.revoke_token(id))

    async def create_tenant(
        self,
        name: str,
        *,
        prepaid: bool = False,
        quota_records: int | None = None,
        quota_bytes: int | None = None,
        quota_databases: int | None = None,
    ) -> bool:
        """Make a tenant; False if there is one of that name, which is left as it is."""
        quota = Quota(quota_records, quota_bytes, quota_databases)
        return await self._run(self._flows.create_tenant(name, prepaid, quota))

    async def tenant(self, name: str) -> Tenant | None:
        """One tenant."""
        return await self._run(self._flows.tenant(name))

    async def tenants(self, *, after: str = "", limit: int = 100) -> list[Tenant]:
        """Tenants in order of name."""
        return await self._run(self._flows.tenants(after, limit))

    async def set_quota(
        self, name: str, *, records: int | None, bytes: int | None, databases: int | None = None
    ) -> bool:
        """Set what a tenant may hold (None: no limit); False if there is no such tenant."""
        return await self._run(self._flows.set_quota(name, Quota(records, bytes, databases)))

    async def admit(self, tenant: str, *, records: int = 1, bytes: int = 0) -> Room:
        """Before new records are made: `QuotaExceeded` if the tenant may not hold so many more."""
        return await self._run(self._flows.admit(tenant, records, bytes))  # of no colour

    async def reserve(self, tenant: str, *, records: int = 0, all_of_it: bool = False) -> Room:
        """
        Before something runs that may make records and grow: what it may grow by, at most, is `.bytes`.

        That is a share of what the quota leaves; with `all_of_it`, everything that is free.
        """
        room = None if all_of_it else self._flows.meter.take_at_once(tenant, records)
        if room is not None:
            return room
        return await self._run(self._flows.reserve(tenant, records, all_of_it))

    def settle_room(self, room: Room, *, records: int = 0, bytes: int = 0) -> None:
        """What came of what was admitted or reserved: so many records and bytes; the rest is free again."""
        self._flows.meter.settle(room, records, bytes)  # of no colour

    async def quota(self, tenant: str) -> QuotaUsage:
        """What a tenant may hold, and held at the last count; known to the process for some seconds."""
        return await self._run(self._flows.quota(tenant))

    async def count(self) -> bool:
        """Count everybody's records if it is time; a service does that in the background, so that no call has to."""
        return await self._run(self._flows.count())

    def leave_counting(self, to_others: bool) -> None:
        """Whether other processes count, because this one cannot see all that tenants hold."""
        self._flows.meter.counts = not to_others

    async def charge(
        self, tenant: str, price: int, *, operation: str | None = None, lapse: Seconds = LAPSE_SECONDS
    ) -> Reservation:
        """
        Reserve a price (micro-units) before anything runs; `BalanceExhausted` if the balance does not cover it.

        Each attempt has a reservation of its own. If it is not ended within `lapse`, its holder is taken for dead: it
        is spent if the record of the `operation` says that it ran (`open(ran=...)`), and free again otherwise.
        """
        return await self._run(self._flows.charge(tenant, price, operation, lapse))

    async def commit(self, reservation: Reservation, used: int | None = None) -> None:
        """It ran, and used all of it or so much. Again does no harm; what had lapsed is taken again."""
        await self._run(self._flows.commit(reservation, used))

    async def give_back(self, reservation: Reservation) -> None:
        """Nothing ran. Again does no harm."""
        await self._run(self._flows.give_back(reservation))

    async def settle(self, reservation: Reservation, used: int) -> int | None:
        """
        End a reservation by what was used (0: give it back); the balance then. It never raises.

        What cannot be written now is kept and tried again by `sweep`, so that what ran is not answered with an error.
        """
        return await self._run(self._flows.settle(reservation, used))  # of no colour

    async def top_up(self, tenant: str, amount: int, *, reference: str, begin_prepaid: bool = False) -> int | None:
        """Add to a balance (micro-units), once for each reference; the balance then. None: no such tenant."""
        return await self._run(self._flows.top_up(tenant, amount, reference, begin_prepaid))

    async def sweep(self) -> SweepResult:
        """Settle what could not be settled, and end what lapsed. A charge that would fail does the latter, too."""
        return await self._run(self._flows.sweep())

    async def tombstone(self, name: str) -> TenantTombstone | None:
        """When a tenant of that name was erased."""
        return await self._run(self._flows.tombstone(name))

    def erase_tenant(
        self, name: str, *, besides: Callable[[], Iterable[object]] = no_other_data
    ) -> AsyncIterator[ErasureProgress]:
        """
        Erase a tenant, batch by batch as this is iterated; begin again after a kill, and it goes on.

        `besides` erases what it has elsewhere, after its tokens have ended and before the tenant itself goes.
        """
        self._flows.verifier.forget_all()
        return self._batches(erase_tenant(self._database, self._environment, check_tenant(name), besides))

    async def close(self) -> None:
        """Settle what could not be settled before, if that can be done now, and let go of files and connections."""
        await self._run(self._flows.settle_kept())
        await self._tables.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, flow: Flow[T]) -> T:
        return await self._tables.run(flow)

    async def _batches(self, batches: Iterator[ErasureProgress]) -> AsyncIterator[ErasureProgress]:
        # A batch that is under way when its caller is cancelled comes to its end in its thread.
        while (done := await self._tables.call(next, batches, None)) is not None:
            yield done
