"""
`Access` blocks, `AsyncAccess` awaits: who may call, and what they may spend. Thin shells over `flows`.

    with Access.open("sqlite:///agent.db") as access:
        caller = access.authenticate(token)            # TokenInvalid
        caller.require(role="write", database="shop")   # Forbidden
        access.admit(caller.tenant)                    # QuotaExceeded
        reservation = access.charge(caller.tenant, 2_500, reference=digest)     # BalanceExhausted
        ...                                            # run it
        access.commit(reservation)                     # or give_back, if nothing ran

Nothing here speaks HTTP: headers come in as text. Open one in each process, after a fork.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from onceward.environment import REAL, Environment
from onceward.service.access.balances import LAPSE_SECONDS, Reservation
from onceward.service.access.callers import Caller, check_scope_by
from onceward.service.access.erasing import Progress, Tombstone, erase, nothing_besides
from onceward.service.access.flood import FloodControl
from onceward.service.access.flows import OVERLAP_SECONDS, Flows, Swept
from onceward.service.access.issuing import NewToken, Role, TokenView
from onceward.service.access.opening import Place, open_place
from onceward.service.access.scopes import check_tenant
from onceward.service.access.steps import Count
from onceward.service.access.tenants import Tenant
from onceward.tables import Awaiting, Blocking, Flow

T = TypeVar("T")

Seconds = float | timedelta
Elsewhere = Callable[[Sequence[str]], Iterable[tuple[str, int, int]]]
"""What some tenants hold outside of the store: (scope, records, bytes). Asked in a thread, about once a minute."""


def nothing_elsewhere(tenants: Sequence[str]) -> Iterable[tuple[str, int, int]]:
    """For those who keep everything in the store."""
    return ()


class _Asked(Blocking):
    """Also counts records, which are the store's."""

    def __init__(self, place: Place, elsewhere: Elsewhere) -> None:
        super().__init__(place.driver)
        self._place = place
        self._elsewhere = elsewhere

    def perform(self, effect: Any) -> Any:
        """One effect of a flow."""
        if isinstance(effect, Count):
            return [*self._place.records.counted(), *self._elsewhere(effect.tenants)]
        return super().perform(effect)

    def close(self) -> None:
        """Let go of files and connections."""
        self._place.close()


class _Shell:
    """What both colours share."""

    def __init__(
        self, place: Place, environment: Environment, scope_by: str, elsewhere: Elsewhere = nothing_elsewhere
    ) -> None:
        self._place = place
        self._environment = environment
        self._flows = Flows(place.peppers, environment, scope_by)
        self._tables = _Asked(place, elsewhere)

    def _erasing(self, name: str, besides: Callable[[], Iterable[object]]) -> Iterator[Progress]:
        self._flows.desk.forget_all()
        return erase(self._place, self._environment, check_tenant(name), besides)


class Access(_Shell):
    """Tokens, tenants and balances, beside the records of a store. Safe for threads."""

    @classmethod
    def open(
        cls,
        url: str,
        *,
        scope_by: str = "tenant",
        create: bool = False,
        elsewhere: Elsewhere = nothing_elsewhere,
        environment: Environment = REAL,
    ) -> Self:
        """
        Open what belongs to the store that a URL names; with `create`, make it.

        `scope_by="token"` gives each line of tokens keys of its own, instead of one space of keys for each tenant.
        `elsewhere` tells what tenants hold outside of the store, for their quotas.
        """
        check_scope_by(scope_by)
        return cls(open_place(url, environment, create=create), environment, scope_by, elsewhere)

    def authenticate(self, token: str) -> Caller:
        """Whose token it is; `TokenInvalid`, in the same words whatever is wrong with it."""
        return self._run(self._flows.authenticate(token))

    def enter(self, flood: FloodControl, authorization: list[str], address: str) -> Caller:
        """
        Same as `authenticate`, from the values of `Authorization`, with flood control for those without a valid token.

        `RateLimitError`, with whole seconds, once too many of them came from an address. A valid token is never slowed.
        """
        return self._run(self._flows.enter(flood, authorization, address))

    def check(self) -> None:
        """For a service that starts: `ConfigurationError` if there are tokens that this process could not judge."""
        self._run(self._flows.check())

    def create_token(
        self,
        tenant: str,
        *,
        environment: str = "live",
        role: Role | str = Role.WRITE,
        databases: list[str] | tuple[str, ...] | None = None,
        expires: Seconds | None = None,
    ) -> NewToken | None:
        """Make a token; its text is in the answer and nowhere else. None if there is no such tenant."""
        return self._run(self._flows.create_token(tenant, environment, role, databases, expires))

    def token(self, id: str) -> TokenView | None:
        """One token, without its secret."""
        return self._run(self._flows.token(id))

    def tokens(self, tenant: str | None = None, *, after: str = "", limit: int = 100) -> list[TokenView]:
        """Tokens in order of id, of one tenant or of all."""
        return self._run(self._flows.tokens(tenant, after, limit))

    def rotate_token(self, id: str, *, overlap: Seconds = OVERLAP_SECONDS) -> NewToken | None:
        """Make a token's successor, in the same scope; the old one ends after the overlap (0: at once)."""
        return self._run(self._flows.rotate_token(id, overlap))

    def revoke_token(self, id: str) -> TokenView | None:
        """End a token: here at once, in every other process within half a second. None if there is no such token."""
        return self._run(self._flows.revoke_token(id))

    def create_tenant(
        self, name: str, *, prepaid: bool = False, quota_records: int | None = None, quota_bytes: int | None = None
    ) -> bool:
        """Make a tenant; False if there is one of that name, which is left as it is."""
        return self._run(self._flows.create_tenant(name, prepaid, quota_records, quota_bytes))

    def tenant(self, name: str) -> Tenant | None:
        """One tenant."""
        return self._run(self._flows.tenant(name))

    def tenants(self, *, after: str = "", limit: int = 100) -> list[Tenant]:
        """Tenants in order of name."""
        return self._run(self._flows.tenants(after, limit))

    def set_quota(self, name: str, *, records: int | None, bytes: int | None) -> bool:
        """Set what a tenant may hold (None: no limit); False if there is no such tenant."""
        return self._run(self._flows.set_quota(name, records, bytes))

    def admit(self, tenant: str, *, records: int = 1, bytes: int = 0) -> None:
        """Before new records are made: `QuotaExceeded` if the tenant may not hold so many more."""
        self._run(self._flows.admit(tenant, records, bytes))

    def withdraw(self, tenant: str, *, records: int = 1, bytes: int = 0) -> None:
        """Nothing came of what was admitted: it was a replay, or it failed. A count made meanwhile stays as it is."""
        self._flows.withdraw(tenant, records, bytes)

    def count(self) -> bool:
        """Count everybody's records if it is time; a service does that in the background, so that no call has to."""
        return self._run(self._flows.count())

    def charge(
        self, tenant: str, price: int, *, reference: str | None = None, lapse: Seconds = LAPSE_SECONDS
    ) -> Reservation:
        """
        Reserve a price (micro-units) before anything runs; `BalanceExhausted` if the balance does not cover it.

        With a `reference`, a retry finds the reservation of the first attempt and pays nothing more. What is neither
        committed nor given back within `lapse` is free again.
        """
        return self._run(self._flows.charge(tenant, price, reference, lapse))

    def commit(self, reservation: Reservation) -> None:
        """It ran. Again does no harm; what had lapsed is taken again."""
        self._run(self._flows.commit(reservation))

    def give_back(self, reservation: Reservation) -> None:
        """Nothing ran. Again does no harm."""
        self._run(self._flows.give_back(reservation))

    def top_up(self, tenant: str, amount: int, *, reference: str, begin_prepaid: bool = False) -> int | None:
        """Add to a balance (micro-units), once for each reference; the balance then. None: no such tenant."""
        return self._run(self._flows.top_up(tenant, amount, reference, begin_prepaid))

    def sweep(self) -> Swept:
        """Give back what lapsed. A charge that would fail does that for its tenant by itself."""
        return self._run(self._flows.sweep())

    def tombstone(self, name: str) -> Tombstone | None:
        """When a tenant of that name was erased."""
        return self._run(self._flows.tombstone(name))

    def erase_tenant(
        self, name: str, *, besides: Callable[[], Iterable[object]] = nothing_besides
    ) -> Iterator[Progress]:
        """
        Erase a tenant, batch by batch as this is iterated; begin again after a kill, and it goes on.

        `besides` erases what it has elsewhere, after its tokens have ended and before the tenant itself goes.
        """
        return self._erasing(name, besides)

    def close(self) -> None:
        """Let go of files and connections."""
        self._place.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _run(self, flow: Flow[T]) -> T:
        return self._tables.run(flow)


class AsyncAccess(_Shell):
    """Same as `Access`, but awaits: the database is asked by a few threads. Cancelling never undoes half a write."""

    def __init__(
        self, place: Place, environment: Environment, scope_by: str, elsewhere: Elsewhere = nothing_elsewhere
    ) -> None:
        super().__init__(place, environment, scope_by, elsewhere)
        self._awaiting = Awaiting(self._tables, "access")

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        scope_by: str = "tenant",
        create: bool = False,
        elsewhere: Elsewhere = nothing_elsewhere,
        environment: Environment = REAL,
    ) -> Self:
        """Same as `Access.open`, but awaits."""
        check_scope_by(scope_by)
        place = await asyncio.to_thread(open_place, url, environment, create=create)
        return cls(place, environment, scope_by, elsewhere)

    async def authenticate(self, token: str) -> Caller:
        """Same as `Access.authenticate`, but awaits."""
        return await self._run(self._flows.authenticate(token))

    async def enter(self, flood: FloodControl, authorization: list[str], address: str) -> Caller:
        """Same as `Access.enter`, but awaits."""
        return await self._run(self._flows.enter(flood, authorization, address))

    async def check(self) -> None:
        """Same as `Access.check`, but awaits."""
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
        """Same as `Access.create_token`, but awaits."""
        return await self._run(self._flows.create_token(tenant, environment, role, databases, expires))

    async def token(self, id: str) -> TokenView | None:
        """Same as `Access.token`, but awaits."""
        return await self._run(self._flows.token(id))

    async def tokens(self, tenant: str | None = None, *, after: str = "", limit: int = 100) -> list[TokenView]:
        """Same as `Access.tokens`, but awaits."""
        return await self._run(self._flows.tokens(tenant, after, limit))

    async def rotate_token(self, id: str, *, overlap: Seconds = OVERLAP_SECONDS) -> NewToken | None:
        """Same as `Access.rotate_token`, but awaits."""
        return await self._run(self._flows.rotate_token(id, overlap))

    async def revoke_token(self, id: str) -> TokenView | None:
        """Same as `Access.revoke_token`, but awaits."""
        return await self._run(self._flows.revoke_token(id))

    async def create_tenant(
        self, name: str, *, prepaid: bool = False, quota_records: int | None = None, quota_bytes: int | None = None
    ) -> bool:
        """Same as `Access.create_tenant`, but awaits."""
        return await self._run(self._flows.create_tenant(name, prepaid, quota_records, quota_bytes))

    async def tenant(self, name: str) -> Tenant | None:
        """Same as `Access.tenant`, but awaits."""
        return await self._run(self._flows.tenant(name))

    async def tenants(self, *, after: str = "", limit: int = 100) -> list[Tenant]:
        """Same as `Access.tenants`, but awaits."""
        return await self._run(self._flows.tenants(after, limit))

    async def set_quota(self, name: str, *, records: int | None, bytes: int | None) -> bool:
        """Same as `Access.set_quota`, but awaits."""
        return await self._run(self._flows.set_quota(name, records, bytes))

    async def admit(self, tenant: str, *, records: int = 1, bytes: int = 0) -> None:
        """Same as `Access.admit`, but awaits."""
        await self._run(self._flows.admit(tenant, records, bytes))

    def withdraw(self, tenant: str, *, records: int = 1, bytes: int = 0) -> None:
        """Same as `Access.withdraw`; it waits for nothing."""
        self._flows.withdraw(tenant, records, bytes)

    async def count(self) -> bool:
        """Same as `Access.count`, but awaits."""
        return await self._run(self._flows.count())

    async def charge(
        self, tenant: str, price: int, *, reference: str | None = None, lapse: Seconds = LAPSE_SECONDS
    ) -> Reservation:
        """Same as `Access.charge`, but awaits."""
        return await self._run(self._flows.charge(tenant, price, reference, lapse))

    async def commit(self, reservation: Reservation) -> None:
        """Same as `Access.commit`, but awaits."""
        await self._run(self._flows.commit(reservation))

    async def give_back(self, reservation: Reservation) -> None:
        """Same as `Access.give_back`, but awaits."""
        await self._run(self._flows.give_back(reservation))

    async def top_up(self, tenant: str, amount: int, *, reference: str, begin_prepaid: bool = False) -> int | None:
        """Same as `Access.top_up`, but awaits."""
        return await self._run(self._flows.top_up(tenant, amount, reference, begin_prepaid))

    async def sweep(self) -> Swept:
        """Same as `Access.sweep`, but awaits."""
        return await self._run(self._flows.sweep())

    async def tombstone(self, name: str) -> Tombstone | None:
        """Same as `Access.tombstone`, but awaits."""
        return await self._run(self._flows.tombstone(name))

    async def erase_tenant(
        self, name: str, *, besides: Callable[[], Iterable[object]] = nothing_besides
    ) -> AsyncIterator[Progress]:
        """Same as `Access.erase_tenant`, for `async for`; a thread erases each batch, and what is besides."""
        batches = self._erasing(name, besides)
        # A batch that is under way when its caller is cancelled comes to its end in its thread.
        while (done := await self._awaiting.call(next, batches, None)) is not None:
            yield done

    async def close(self) -> None:
        """Same as `Access.close`, but awaits."""
        await self._awaiting.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, flow: Flow[T]) -> T:
        return await self._awaiting.run(flow)
