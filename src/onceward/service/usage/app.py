"""
`GET /v1/usage`: the account of the token's own tenant, for whoever spends from it.

Every token of a tenant sees it, also one that may only read, or is for single databases: these are the figures that
refuse its calls. There are no names in it, of databases, keys or other tokens.
"""

from __future__ import annotations

import msgspec
from starlette.applications import Starlette

from onceward._core.errors import TokenInvalid
from onceward.protocol.paths import USAGE
from onceward.service.access import Account, Tenant
from onceward.service.web.calls import ApiCall, Authenticator
from onceward.service.web.endpoints import ApiEndpoint, EndpointResource, EndpointResponse, build_application
from onceward.service.web.service_contract import AppContract

GROUP = "Usage"


class MoneyUsage(msgspec.Struct, rename="camel"):
    """Of a tenant who pays in advance. Whole micro-units."""

    balance_micro: int
    """What can still be reserved."""
    reserved_micro: int
    """What requests that run have reserved; what they do not use comes back."""
    price_micro: int
    """Of one SQL statement."""
    charges_failed: bool
    """Whether a statement that ran and failed costs its price, too."""


class QuotaLeft(msgspec.Struct, rename="camel"):
    """One quota."""

    used: int
    """When it was last counted."""
    limit: int
    left: int


class QuotasLeft(msgspec.Struct, rename="camel"):
    """What the tenant may hold; null: no limit, and nothing is counted."""

    records: QuotaLeft | None
    bytes: QuotaLeft | None
    databases_max: int
    counted_at_us: int | None
    """When they were counted, in microseconds since 1970; in between, each process adds what it let through."""


class ProcessUsage(msgspec.Struct, rename="camel"):
    """What the tenant uses of the process that answers; another one has its own figures."""

    cpu_seconds: float
    """Used since this process began to count."""
    cpu_seconds_left: float
    """That can be used at once. Below zero: a debt, and calls wait until it is paid."""
    cpu_seconds_per_second: float
    """That come back."""
    held: dict[str, int]
    limits: dict[str, int]
    """What may be held at most, now: it depends on what others hold."""
    refused: int
    """Calls that were told to wait."""


class UsageResponse(msgspec.Struct, rename="camel"):
    """What a tenant has used, holds and has left."""

    tenant: str
    money: MoneyUsage | None
    """Null: the tenant does not pay in advance."""
    quotas: QuotasLeft
    process: ProcessUsage


class UsageApp:
    """The endpoint over the accounts of one process."""

    def __init__(self, authenticator: Authenticator, *, price: int, charge_failed: bool, databases_max: int) -> None:
        self._authenticator = authenticator
        self._price = price
        self._charge_failed = charge_failed
        self._databases_max = databases_max

    def endpoints(self) -> list[ApiEndpoint]:
        """The table."""
        summary = "Show what the tenant has used, holds and has left."
        return [ApiEndpoint("GET", USAGE, self.usage, summary, UsageResponse, about=EndpointResource.ACCOUNT)]

    def contract(self) -> AppContract:
        """What is published about it."""
        return AppContract(GROUP, self.endpoints())

    def app(self) -> Starlette:
        """The application, to be mounted anywhere."""
        return build_application(self.endpoints(), self._authenticator)

    async def usage(self, call: ApiCall) -> EndpointResponse:
        """The account of the token's own tenant."""
        tenant = await self._authenticator.access.tenant(call.caller.tenant)
        if tenant is None:
            raise TokenInvalid  # Erased since the token was looked at.
        account = self._authenticator.accounts.of_tenant(tenant.name)
        return EndpointResponse(
            UsageResponse(tenant.name, self._money(tenant), self._quotas(tenant), _process(account))
        )

    def _money(self, tenant: Tenant) -> MoneyUsage | None:
        if tenant.balance is None:
            return None
        return MoneyUsage(tenant.balance, tenant.reserved, self._price, self._charge_failed)

    def _quotas(self, tenant: Tenant) -> QuotasLeft:
        most = self._databases_max if tenant.quota_databases is None else tenant.quota_databases
        return QuotasLeft(
            _left(tenant.used_records, tenant.quota_records),
            _left(tenant.used_bytes, tenant.quota_bytes),
            most,
            tenant.counted_at,
        )


def _left(used: int, limit: int | None) -> QuotaLeft | None:
    return None if limit is None else QuotaLeft(used, limit, max(limit - used, 0))


def _process(account: Account) -> ProcessUsage:
    usage = account.usage()
    return ProcessUsage(
        round(usage.cpu_seconds, 6),
        round(usage.cpu_seconds_left, 6),
        account.allowance.cpu_per_second,
        {resource.value: amount for resource, amount in usage.held.items()},
        {resource.value: amount for resource, amount in usage.limits.items()},
        usage.refused,
    )
