"""
What type checkers must report: each line that ends with `# wrong`, and no other. `# wrong (pyright)`: mypy misses it.

Not one of the files that mypy checks by itself: `tests/house/test_types.py` runs both checkers on it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from starlette.applications import Starlette

from onceward import AsyncGate, Gate, Operation, current_operation
from onceward.http import Route, profile
from onceward.http.asgi import IdempotencyMiddleware
from onceward.stores import Capabilities, StoreKind

gate = Gate("memory://", scope="test:types")
agate = AsyncGate("memory://", scope="test:types")


@gate.once(key="charge:{order_id}")
def plain(order_id: str, amount: Decimal, *, note: str = "") -> dict[str, Any]:
    """No operation."""
    return {}


@gate.once(key="charge:{order_id}")
def first(operation: Operation, order_id: str, amount: Decimal) -> dict[str, Any]:
    """The operation at the front."""
    return {}


@agate.once(key="charge:{order_id}")
async def later(order_id: str, amount: Decimal) -> Decimal:
    """To be awaited."""
    return amount


@agate.once(key="charge:{order_id}")
async def later_first(operation: Operation, order_id: str, amount: Decimal) -> Decimal:
    """To be awaited, with the operation at the front."""
    return amount


class Shop:
    """Methods."""

    @gate.once(key="charge:{order_id}")
    def plain(self, order_id: str, amount: int) -> int:
        """No operation."""
        return amount

    @gate.once(key="charge:{order_id}")
    def after_self(self, operation: Operation, order_id: str, amount: int) -> int:
        """The operation after `self`."""
        return amount

    @agate.once(key="charge:{order_id}")
    async def later(self, order_id: str) -> int:
        """To be awaited."""
        return 1


plain(1, Decimal(1))  # wrong
plain("o-17", "x")  # wrong
plain("o-17")  # wrong
plain("o-17", Decimal(1), unknown=1)  # wrong
plain("o-17", Decimal(1), "note")  # wrong
plain.call(1, Decimal(1))  # wrong
plain.key_of("o-17")  # wrong
print(plain("o-17", Decimal(1)).amount)  # wrong
first(1, Decimal(1))  # wrong
first("o-17", "x")  # wrong
first("o-17")  # wrong
first("o-17", Decimal(1), unknown=1)  # wrong
first.call("o-17")  # wrong
first.key_of(1, Decimal(1))  # wrong


async def awaited(shop: Shop) -> None:
    """The same, awaited."""
    await later(1, Decimal(1))  # wrong
    await later("o-17")  # wrong
    await later("o-17", Decimal(1), unknown=1)  # wrong
    await later.call(1, Decimal(1))  # wrong
    later("o-17", Decimal(1)).as_tuple()  # wrong
    await later_first("o-17", "x")  # wrong
    await later_first("o-17")  # wrong
    await shop.later(17)  # wrong
    await shop.later()  # wrong


def methods(shop: Shop) -> None:
    """Bound, and on the class."""
    shop.plain(1, 1)  # wrong
    shop.plain("o-17")  # wrong
    shop.plain("o-17", 1, unknown=1)  # wrong
    Shop.plain("o-17", 1)  # wrong (pyright)
    Shop.plain.call(shop, 1, 1)  # wrong
    shop.plain.call("o-17", 1)  # wrong
    shop.after_self(1, 1)  # wrong
    shop.after_self("o-17")  # wrong
    shop.after_self("o-17", 1, unknown=1)  # wrong
    Shop.after_self(shop, "o-17")  # wrong


def middleware(app: Starlette) -> None:
    """The fields of a profile have names and types."""
    app.add_middleware(IdempotencyMiddleware, gate=agate, scope="test:acme", require_keys=True)  # wrong
    app.add_middleware(IdempotencyMiddleware, gate=agate, scope="test:acme", mismatch_status="422")  # wrong
    app.add_middleware(IdempotencyMiddleware, gate=gate, scope="test:acme")  # wrong
    Route("/charges", guarantee="maybe")  # wrong
    profile("stripe", requires_key=True)  # wrong


def accessors() -> None:
    """With a default, it may be the default."""
    print(current_operation(None).key)  # wrong


class NoStore:
    """Has one method of a store."""

    def load(self, id: bytes) -> None:
        """Nothing."""


Gate(NoStore(), scope="test:types")  # wrong
Capabilities(True)  # wrong
Capabilities(awaits="no")  # wrong
StoreKind(open=NoStore)  # wrong
