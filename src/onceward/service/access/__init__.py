"""
Who may call the service, and what they may spend: tokens, tenants, balances, quotas, flood control.

`Access` (and `AsyncAccess`) is what a service asks; `FloodControl` and `client_address` serve those who have no token.
Nothing here speaks HTTP: headers come in as text, refusals go out as errors.
"""

from onceward.service.access.addresses import client_address, trusted_networks
from onceward.service.access.balances import Reservation, in_units
from onceward.service.access.callers import Caller
from onceward.service.access.erasing import Progress, Tombstone
from onceward.service.access.flood import FloodControl
from onceward.service.access.flows import Swept
from onceward.service.access.issuing import NewToken, Role, TokenView
from onceward.service.access.scopes import scope_of, tenant_of
from onceward.service.access.shells import Access
from onceward.service.access.shells_async import AsyncAccess
from onceward.service.access.tenants import Tenant
from onceward.service.access.tokens import Issued, bearer
from onceward.service.access.topping import top_up_once

__all__ = [
    "Access",
    "AsyncAccess",
    "Caller",
    "FloodControl",
    "Issued",
    "NewToken",
    "Progress",
    "Reservation",
    "Role",
    "Swept",
    "Tenant",
    "TokenView",
    "Tombstone",
    "bearer",
    "client_address",
    "in_units",
    "scope_of",
    "tenant_of",
    "top_up_once",
    "trusted_networks",
]
