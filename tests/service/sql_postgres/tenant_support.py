"""A tenant on PostgreSQL, in few words."""

from __future__ import annotations

from typing import Any

from onceward.service.sql.postgres import PostgresEngine
from onceward.service.sql.postgres.preparation import ROLE
from onceward.service.sql.requests import Keyed, SqlBatchResult, SqlResult, Step

NAMESPACE, DATABASE = "live-acme", "shop"
SCOPE = "live:acme:db:shop"


def administrator(url: str) -> str:
    """The same database, for a superuser."""
    return url.replace(f"{ROLE}@", "postgres@")


class Tenant:
    """What one tenant asks an engine, in its one database."""

    def __init__(self, engine: PostgresEngine) -> None:
        self.engine = engine

    async def ask(self, sql: str, *params: Any, key: str | None = None, **options: Any) -> SqlResult:
        """Run one statement."""
        identity = None if key is None else Keyed(SCOPE, key)
        return await self.engine.query(NAMESPACE, DATABASE, sql, list(params), identity=identity, **options)

    async def named(self, sql: str, params: dict[str, Any]) -> SqlResult:
        """Run one statement with named parameters."""
        return await self.engine.query(NAMESPACE, DATABASE, sql, params)

    async def batch(self, *statements: str, key: str | None = None, **options: Any) -> SqlBatchResult:
        """Run statements together."""
        identity = None if key is None else Keyed(SCOPE, key)
        return await self.engine.batch(NAMESPACE, DATABASE, list(statements), identity=identity, **options)

    async def step(self, plan: str, step: str, sql: str, *params: Any) -> SqlResult:
        """Run a step of a plan."""
        return await self.engine.query(NAMESPACE, DATABASE, sql, list(params), identity=Step(SCOPE, plan, step))

    async def count(self, table: str = "events") -> int:
        """How many rows there are."""
        return int((await self.ask(f"SELECT count(*) FROM {table}")).rows[0][0])  # type: ignore[arg-type]
