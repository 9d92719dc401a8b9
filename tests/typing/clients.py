"""
The client as a type checker sees it, from the package's root. Checked by `mypy --strict`, never run.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, assert_type

import onceward
from onceward import AsyncClient, AsyncGate, Client, Gate, Retry, tool_call_key
from onceward.client import BatchResult, BookedBatch, Database, Delta, Derived, NewDelta, Reference, Result
from onceward.messaging.emitter import Cadence, Emitted, Flushed
from onceward.messaging.webhooks import warn_if_slow


def a_blocking_client() -> None:
    """Imported on demand, and typed all the same."""
    with Client("https://sql.example.com", environment="live", retry=Retry(attempts=3)) as client:
        assert_type(client, Client)
        db = client.db("acme", "shop")
        assert_type(db, Database)
        assert_type(db.query("SELECT ?", [1], idempotency_key="k"), Result)
        assert_type(db.batch(["SELECT 1", ("SELECT :a", {"a": 1})], plan_key="p", plan_step="s"), BatchResult)
        with db.plan("migrate-42") as plan:
            assert_type(plan.query("create", "CREATE TABLE t (a)").replayed, bool)
        assert_type(db.tables(), list[dict[str, Any]])
    onceward.Client("sqlite:///shop.db")
    print(onceward.Cleint)  # type: ignore[attr-defined]


async def an_awaiting_client() -> None:
    """Same names."""
    async with AsyncClient("sqlite:///shop.db") as client:
        db = client.db("acme", "shop")
        assert_type(await db.query("SELECT 1"), Result)
        async with db.plan("p") as plan:
            assert_type(await plan.batch("s", ["SELECT 1"]), BatchResult)


def a_tool_call(call: object) -> None:
    """Anything may be asked; what is no tool call is refused."""
    assert_type(tool_call_key(call), str)


def a_ledger(client: Client, gate: Gate) -> None:
    """Amounts are exact; a float does not type-check."""
    assert_type(client.balance.emit("cus_17", Decimal("-0.1"), "call", reference_id="r", metadata={"a": 1}), Delta)
    client.balance.emit("cus_17", -0.1, "call", reference_id="r")  # type: ignore[arg-type]
    batch = [NewDelta(customer="cus_17", delta="12.50", reason="top-up", reference_id="r")]
    assert_type(client.balance.emit_many(batch), BookedBatch)
    assert_type(client.balance.derive("cus_17"), Derived)
    assert_type(client.balance.derive("cus_17").balance, Decimal)
    reference = Reference("acme", "call", "2026-11")
    with client.balance.emitter(gate, "usage", reference=reference, retry=Retry(), cadence=Cadence()) as emitter:
        assert_type(emitter.emit("cus_17", -1, "call"), Emitted)
        assert_type(emitter.flush(), Flushed)


async def an_awaiting_ledger(client: AsyncClient, gate: AsyncGate) -> None:
    """Same names."""
    assert_type(await client.balance.emit("cus_17", -1, "call", reference_id="r"), Delta)
    made = client.balance.emitter(gate, "usage", reference="usage:{id}", retry=Retry(), cadence=Cadence())
    async with made as emitter:
        assert_type(await emitter.emit("cus_17", -1, "call", metadata={"id": 1}), Emitted)


@warn_if_slow(2.5)
async def a_handler(body: bytes) -> str:
    """Keeps its type."""
    return body.decode()


async def a_request() -> None:
    """The handler is called as before."""
    assert_type(await a_handler(b"{}"), str)
