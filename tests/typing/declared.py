"""
Declared functions as a type checker sees them: their own parameters, without the operation. Checked, never run.

`wrong/calls.py` is the other half: what must be reported.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, assert_type

from onceward import AsyncGate, Gate, Operation, Outcome, current_operation

gate = Gate("memory://", scope="test:types")
agate = AsyncGate("memory://", scope="test:types")


@gate.once(key="charge:{order_id}")
def plain(order_id: str, amount: Decimal = Decimal(1), *, note: str = "") -> dict[str, Any]:
    """No operation."""
    return {"key": current_operation().key}


@gate.once(key="charge:{order_id}", guarantee="keyed")
def first(operation: Operation, order_id: str, amount: Decimal) -> Decimal:
    """The operation at the front; with `Any` in the signature, too."""
    return amount


@gate.once(key="charge:{order_id}")
def keyword(order_id: str, amount: Decimal, *, operation: Operation) -> Decimal:
    """The operation by keyword: its calls cannot be checked, and pass."""
    return amount


@gate.once(key="notify:{to}")
def anything(to: Any, what: object, operations: Any) -> int:
    """What accepts anything is not taken for the operation."""
    return 1


@agate.once(key="charge:{order_id}")
async def aplain(order_id: str, amount: Decimal) -> Decimal:
    """The same, to be awaited."""
    return amount


@agate.once(key="charge:{order_id}")
async def afirst(operation: Operation, order_id: str, amount: Decimal) -> dict[str, Any]:
    """The operation at the front."""
    return {}


@agate.once(key="charge:{order_id}")
async def akeyword(order_id: str, amount: Decimal, *, operation: Operation) -> Decimal:
    """The operation by keyword."""
    return amount


class Shop:
    """Methods: bound to an object, and as their class has them."""

    @gate.once(key="charge:{order_id}")
    def plain(self, order_id: str, amount: int = 1) -> int:
        """No operation."""
        return amount

    @gate.once(key="charge:{order_id}")
    def after_self(self, operation: Operation, order_id: str, amount: int = 1) -> int:
        """The operation after `self`."""
        return amount

    @gate.once(key="charge:{order_id}")
    def after_self_any(self, operation: Operation, order_id: str, payload: Any = None) -> dict[str, Any]:
        """The same, with `Any` in the signature."""
        return {}

    @gate.once(key="charge:{order_id}")
    def keyword(self, order_id: str, *, operation: Operation) -> int:
        """The operation by keyword."""
        return 1

    @classmethod
    @gate.once(key="charge:{order_id}")
    def of_the_class(cls, order_id: str) -> int:
        """A class method."""
        return 1

    @staticmethod
    @gate.once(key="charge:{order_id}")
    def static(order_id: str) -> int:
        """A static method."""
        return 1

    @agate.once(key="charge:{order_id}")
    async def later(self, order_id: str) -> int:
        """To be awaited."""
        return 1

    @agate.once(key="charge:{order_id}")
    async def later_with(self, operation: Operation, order_id: str) -> int:
        """To be awaited, with the operation."""
        return 1


def functions() -> None:
    """Positional and by name; `call`, `key_of` and `contract` take the same arguments."""
    assert_type(plain("o-17"), dict[str, Any])
    assert_type(plain(order_id="o-17", amount=Decimal(2), note="x"), dict[str, Any])
    assert_type(plain.call("o-17"), Outcome[dict[str, Any]])
    assert_type(plain.key_of("o-17", note="x"), str)
    assert_type(plain.contract.operation, str)
    assert_type(first("o-17", Decimal(1)), Decimal)
    assert_type(first(order_id="o-17", amount=Decimal(1)), Decimal)
    assert_type(first.call("o-17", amount=Decimal(1)), Outcome[Decimal])
    assert_type(first.key_of("o-17", Decimal(1)), str)
    assert_type(keyword("o-17", Decimal(1)), Decimal)
    assert_type(keyword.call("o-17", amount=Decimal(1)), Outcome[Decimal])
    assert_type(anything(to=1, what=2, operations=3), int)
    a_callback: Callable[[str], dict[str, Any]] = plain
    print(a_callback)


async def awaited() -> None:
    """The same, awaited."""
    assert_type(await aplain("o-17", Decimal(1)), Decimal)
    assert_type(await aplain.call("o-17", amount=Decimal(1)), Outcome[Decimal])
    assert_type(aplain.key_of("o-17", Decimal(1)), str)
    assert_type(await afirst("o-17", amount=Decimal(1)), dict[str, Any])
    assert_type(await afirst.call("o-17", Decimal(1)), Outcome[dict[str, Any]])
    assert_type(await akeyword("o-17", Decimal(1)), Decimal)
    assert_type(await Shop().later("o-17"), int)
    assert_type(await Shop().later_with(order_id="o-17"), int)
    assert_type(await Shop.later.call(Shop(), "o-17"), Outcome[int])


def methods(shop: Shop) -> None:
    """Bound, on the class, and without an object."""
    assert_type(shop.plain("o-17", amount=2), int)
    assert_type(shop.plain.contract.operation, str)
    assert_type(Shop.plain(shop, "o-17"), int)
    assert_type(Shop.plain.call(shop, "o-17"), Outcome[int])
    assert_type(Shop.plain.key_of(shop, "o-17"), str)
    assert_type(shop.after_self("o-17", amount=2), int)
    assert_type(Shop.after_self.call(shop, "o-17", 2), Outcome[int])
    shop.after_self_any("o-17", payload={})
    Shop.after_self_any(shop, "o-17")
    assert_type(shop.keyword("o-17"), int)
    assert_type(Shop.of_the_class("o-17"), int)
    assert_type(Shop.static("o-17"), int)


def results() -> None:
    """What `run` and its like give back is what was stored: no checker can know its type. `once` restores it."""
    assert_type(gate.run("k", lambda: Decimal("1.50")), Any)
    assert_type(gate.call("k", lambda: Decimal("1.50")), Outcome[Any])
    total: int = gate.run("total", lambda: 1)
    assert_type(current_operation(), Operation)
    assert_type(current_operation(None), Operation | None)
    print(total)
