"""
The login of a service's dashboard: a token of the service. What it may do here is what it may do over the API.

    admin token           everything of its tenant: records, doubt, letters, decisions, tokens
    read or write token   its usage, its databases and its ledger, which are all that it may see over the API
    token of databases    its usage and its databases
"""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request

from onceward.audit import API
from onceward.dashboard.sessions import DashboardRole, Principal, Reach
from onceward.service.access import Caller, Role, tenant_of
from onceward.service.access.scopes import is_of_database
from onceward.service.web.calls import Authenticator

DATABASE_PAGES = frozenset({"account", "databases"})
TENANT_PAGES = DATABASE_PAGES | {"ledger"}


class TokenDoorkeeper:
    """Lets in whoever has a valid token, and asks for it again at each request."""

    label = "Token"
    help = "A token of this service, as onceward token create shows it. It is kept in the memory of this process only."

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def enter(self, request: Request, given: str) -> Principal:
        """Whose token it is; those who try too often wait, as everywhere."""
        return principal_of(await self._authenticator.admit_token(request, given), given)

    async def again(self, request: Request, principal: Principal) -> Principal:
        """Whose token it still is: one that was revoked or has ended is refused within half a second."""
        caller = await self._authenticator.access.authenticate(principal.credential or "")
        now = principal_of(caller, principal.credential or "")
        return replace(now, role=min(now.role, principal.role))


def principal_of(caller: Caller, credential: str) -> Principal:
    """Whoever holds a token, as the dashboard knows them."""
    is_admin = caller.role is Role.ADMIN and caller.databases is None
    pages = None if is_admin else TENANT_PAGES if caller.databases is None else DATABASE_PAGES

    def sees(scope: str) -> bool:
        mine = tenant_of(scope) == caller.tenant and scope.startswith(f"{caller.environment}:")
        return is_admin and mine and not is_of_database(scope)

    def sees_ledger(scope: str) -> bool:
        return caller.databases is None and scope == f"{caller.environment}:{caller.tenant}"

    return Principal(
        name=f"token {caller.token}",
        via=API,  # Of a tenant's own token: the name goes with the tenant when that is erased.
        role=DashboardRole.ADMIN if is_admin else DashboardRole.VIEW,
        reach=Reach(caller.scope, sees if is_admin else sees_ledger, caller.tenant, caller.environment),
        credential=credential,
        pages=pages,
    )
