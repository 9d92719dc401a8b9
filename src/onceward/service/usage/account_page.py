"""
Tokens and tenants in the dashboard: what a tenant has used and has left, and which tokens it has. No secret is known.

A tenant sees itself; whoever runs the store sees all of them.
"""

from __future__ import annotations

from onceward.dashboard.charts import meter
from onceward.dashboard.html import Content, Markup, element
from onceward.dashboard.layout import badge, code, empty, facts, instant, link, notice, section, table
from onceward.dashboard.page import Page, PageMissing, PageRequest, Shown
from onceward.service.access import AsyncAccess, Tenant, format_units
from onceward.service.access.token_table import TokenView

TENANTS_SHOWN = 50
TOKENS_SHOWN = 100
NAME = "account"


class AccountPages:
    """The pages over the tables of access."""

    def __init__(self, access: AsyncAccess, *, databases_max: int | None = None) -> None:
        self._access = access
        self._databases_max = databases_max

    def pages(self) -> tuple[Page, ...]:
        """Where they are."""
        return (
            Page(NAME, "/account", run_async=self.listing, title="Tokens and tenants"),
            Page(NAME, "/account/{tenant}", run_async=self.show, operators_only=True),
        )

    async def listing(self, ask: PageRequest) -> Shown:
        """The tenant itself; or all of them."""
        if ask.reach.tenant is not None:
            return await self._one(ask, ask.reach.tenant)
        found = await self._access.tenants(after=ask.query.get("after", ""), limit=TENANTS_SHOWN)
        if not found:
            return Shown("Tokens and tenants", empty("There is no tenant.", "onceward tenant create NAME makes one."))
        rows = [
            (
                link(ask.chrome, f"/account/{one.name}", code(one.name)),
                "pays later" if one.balance is None else format_units(one.balance),
                _used(one.used_records, one.quota_records, "records"),
                _used(one.used_bytes, one.quota_bytes, "bytes"),
                one.tokens,
                instant(one.created_at),
            )
            for one in found
        ]
        following = None
        if len(found) == TENANTS_SHOWN:
            following = element("p", link(ask.chrome, "/account", "Next page", after=found[-1].name), class_="pager")
        headings = ("Tenant", "Balance", "Records", "Bytes", "Tokens", "Since")
        return Shown("Tokens and tenants", section("Tenants", table(headings, rows, label="Tenants"), following))

    async def show(self, ask: PageRequest) -> Shown:
        """One tenant, for whoever runs the store."""
        return await self._one(ask, ask.names["tenant"])

    async def _one(self, ask: PageRequest, name: str) -> Shown:
        tenant = await self._access.tenant(name)
        if tenant is None:
            raise PageMissing
        body: list[Content] = [_erasing(tenant), section("Usage", self._usage(tenant))]
        if ask.principal.pages is None:  # Which tokens there are is for its admins.
            tokens = await self._access.tokens(name, limit=TOKENS_SHOWN)
            body.append(section("Tokens", _tokens(tokens)))
        return Shown(f"Tenant {tenant.name}", body, live=True)

    def _usage(self, tenant: Tenant) -> Markup:
        databases = self._databases_max if tenant.quota_databases is None else tenant.quota_databases
        return facts(
            [
                (
                    "Balance",
                    "does not pay in advance"
                    if tenant.balance is None
                    else f"{format_units(tenant.balance)} units left",
                ),
                ("Reserved by requests that run", None if tenant.balance is None else format_units(tenant.reserved)),
                ("Records", _used(tenant.used_records, tenant.quota_records, "records")),
                ("Bytes", _used(tenant.used_bytes, tenant.quota_bytes, "bytes")),
                ("Databases", None if databases is None else f"at most {databases:,}"),
                ("Counted", instant(tenant.counted_at) or "not yet"),
            ]
        )


def _used(used: int, limit: int | None, what: str) -> Content:
    if limit is None:
        return f"{used:,}, no limit" if used else "no limit"
    told = f"{used:,} of {limit:,} {what}"
    return [told, meter(used, limit, label=told)]


def _erasing(tenant: Tenant) -> Content:
    if tenant.erasing_at is None:
        return None
    told = "Its erasure has begun but is not finished: run onceward tenant erase again."
    return notice("warn", told, " ", instant(tenant.erasing_at))


def _tokens(tokens: list[TokenView]) -> Content:
    if not tokens:
        return empty("There is no token.", "onceward token create --tenant NAME makes one, and shows it once.")
    rows = [
        (
            code(one.id),
            badge("valid" if one.state == "active" else "revoked", one.state),
            one.role,
            one.environment,
            ", ".join(one.databases)[:100] if one.databases is not None else "all databases",
            instant(one.created_at),
            instant(one.last_used_at) or "never",
            instant(one.expires_at) or "never",
        )
        for one in tokens
    ]
    headings = ("Token", "State", "Role", "Environment", "For", "Made", "Last used", "Ends")
    return table(headings, rows, label="Tokens")
