"""
A top-up through the gate: sent again under the same key, it counts once and returns the same result.

Two records guard it. The gate's has the result, for as long as results are kept; the row beside the balance,
written in the same transaction, holds for ever.
"""

from __future__ import annotations

from typing import Any

from onceward._core.errors import IllegalMove
from onceward._core.operation import Operation, Outcome
from onceward.gate import Gate
from onceward.service.access.access import Access
from onceward.service.access.balances import check_amount
from onceward.service.access.scopes import check_tenant, operator_scope


def top_up_once(
    access: Access, url: str, tenant: str, amount: int, key: str, *, begin_prepaid: bool = False
) -> Outcome[dict[str, Any]] | None:
    """Add micro-units to a tenant's balance, once for a key; None if there is no such tenant (the key is unused)."""
    check_amount(amount, "a top-up")
    found = access.tenant(check_tenant(tenant))
    if found is None or found.erasing_at is not None:
        return None
    if found.balance is None and not begin_prepaid:
        raise IllegalMove(
            "this tenant does not pay in advance, so there is no balance to top up, and a balance would limit it; to "
            "make it pay in advance, add --prepaid"
        )

    def add(operation: Operation) -> dict[str, Any]:
        balance = access.top_up(tenant, amount, reference=operation.downstream_key(), begin_prepaid=begin_prepaid)
        return {"tenant": tenant, "amountMicro": amount, "balanceMicro": balance}

    with Gate(url, scope=operator_scope(tenant), guarantee="keyed") as gate:
        request = {"tenant": tenant, "amountMicro": amount}
        return gate.call(key, add, request=request, name="topup")
