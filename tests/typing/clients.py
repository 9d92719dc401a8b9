"""
The client as a type checker sees it, from the package's root. Checked by `mypy --strict`, never run.
"""

from __future__ import annotations

from typing import Any, assert_type

import onceward
from onceward import AsyncClient, Client, Retry, tool_call_key
from onceward.client import BatchResult, Database, Result


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
