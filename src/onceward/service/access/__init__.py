"""
Who may call the service, and what they may spend: tokens, tenants, prepaid balances, quotas, flood control.

Nothing here speaks HTTP: headers come in as text, refusals go out as errors. The rules are flows (`flows`, and the
tables that it uses); `Access` and `AsyncAccess` run them. May import `protocol`, `stores` and `gate`, and no app of the
service. Start with `access_async.py`, then `token_verifier.py`.
"""

from onceward.service.access.access import Access
from onceward.service.access.access_async import AsyncAccess
from onceward.service.access.accounts import Account, Accounts, Allowance, Hold, Resource, Totals
from onceward.service.access.addresses import client_address, trusted_networks
from onceward.service.access.balances import Reservation, format_units
from onceward.service.access.flood_control import FloodControl
from onceward.service.access.flows import SweepResult
from onceward.service.access.issued_token import IssuedToken
from onceward.service.access.quotas import QuotaUsage, Room
from onceward.service.access.scopes import scope_of, tenant_of
from onceward.service.access.tenant_erasure import ErasureProgress, TenantTombstone
from onceward.service.access.tenants import Tenant
from onceward.service.access.token_table import NewToken, Role, TokenView
from onceward.service.access.token_verifier import Caller, bearer_token
from onceward.service.access.top_ups import top_up_once

__all__ = [
    "Access",
    "Account",
    "Accounts",
    "Allowance",
    "AsyncAccess",
    "Caller",
    "ErasureProgress",
    "FloodControl",
    "Hold",
    "IssuedToken",
    "NewToken",
    "QuotaUsage",
    "Reservation",
    "Resource",
    "Role",
    "Room",
    "SweepResult",
    "Tenant",
    "TenantTombstone",
    "TokenView",
    "Totals",
    "bearer_token",
    "client_address",
    "format_units",
    "scope_of",
    "tenant_of",
    "top_up_once",
    "trusted_networks",
]
