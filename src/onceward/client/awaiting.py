"""
`AsyncClient`: the shell for awaiting callers. Same names as `Client`.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from onceward.client import wire
from onceward.client.blocking import token_of
from onceward.client.libraries import library_of
from onceward.client.results import BatchResult, Result, batch_of, result_of
from onceward.client.wire import Identity, Outgoing, Params, Statements
from onceward.retry.policy import Retry


class AsyncClient:
    """Same as `Client`, but awaits."""

    def __init__(self, url: str, *, token: str | None = None, retry: Retry | None = None) -> None:
        if wire.is_local(url):
            from onceward.client.local import LocalService

            self._local: LocalService | None = LocalService(url)
            return
        self._local = None
        library, family = library_of()
        self._http: Any = library.AsyncClient(
            base_url=wire.check_url(url),
            headers={"Authorization": f"Bearer {token_of(token)}"},
            transport=family.AsyncTransport(retry or Retry(), profile=None),
            timeout=None,
        )

    def db(self, namespace: str, database: str) -> AsyncDatabase:
        """One database."""
        return AsyncDatabase(self, namespace, database)

    async def perform(self, outgoing: Outgoing) -> tuple[Any, bool]:
        """Send a request; the answer's document, and whether it is a replay."""
        if self._local is not None:
            return await asyncio.to_thread(self._local.perform, outgoing)
        response = await self._http.request(
            outgoing.method, outgoing.path, content=outgoing.body, headers=outgoing.headers
        )
        return wire.document_of(response.status_code, response.headers, response.content), wire.replayed(
            response.headers
        )

    async def close(self) -> None:
        """Let go of connections, or of the file."""
        if self._local is not None:
            await asyncio.to_thread(self._local.close)
        else:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncDatabase:
    """One database of a service."""

    def __init__(self, client: AsyncClient, namespace: str, database: str) -> None:
        self._client = client
        self._path = wire.place(namespace, database)

    async def query(
        self,
        sql: str,
        params: Params = None,
        *,
        idempotency_key: str | None = None,
        plan_key: str | None = None,
        plan_step: str | None = None,
    ) -> Result:
        """Same as `Database.query`, but awaits."""
        identity = wire.identity_of(idempotency_key, plan_key, plan_step)
        return await self._query(sql, params, identity)

    async def batch(
        self,
        statements: Statements,
        *,
        idempotency_key: str | None = None,
        plan_key: str | None = None,
        plan_step: str | None = None,
    ) -> BatchResult:
        """Same as `Database.batch`, but awaits."""
        identity = wire.identity_of(idempotency_key, plan_key, plan_step)
        document, replayed = await self._client.perform(wire.batch(self._path, statements, identity))
        return batch_of(document, replayed=replayed)

    def plan(self, plan_key: str) -> AsyncPlanned:
        """A plan: `async with db.plan("migrate-42") as plan: await plan.query("create-tables", sql)`."""
        return AsyncPlanned(self, plan_key)

    async def tables(self) -> list[dict[str, Any]]:
        """Same as `Database.tables`, but awaits."""
        document, _ = await self._client.perform(Outgoing("GET", f"{self._path}/tables", {}, None))
        return list(document["tables"])

    async def create(self) -> bool:
        """Same as `Database.create`, but awaits."""
        document, _ = await self._client.perform(Outgoing("PUT", self._path, {}, None))
        return bool(document["created"])

    async def drop(self) -> bool:
        """Same as `Database.drop`, but awaits."""
        document, _ = await self._client.perform(Outgoing("DELETE", self._path, {}, None))
        return bool(document.get("dropped", False))

    async def _query(self, sql: str, params: Params, identity: Identity) -> Result:
        document, replayed = await self._client.perform(wire.query(self._path, sql, params, identity))
        return result_of(document, replayed=replayed)


class AsyncPlanned:
    """A plan on one database: each step runs once, and a re-run replays what was done and goes on."""

    def __init__(self, database: AsyncDatabase, plan_key: str) -> None:
        self._database = database
        self.plan_key = plan_key

    async def query(self, step: str, sql: str, params: Params = None) -> Result:
        """One statement as a step."""
        return await self._database.query(sql, params, plan_key=self.plan_key, plan_step=step)

    async def batch(self, step: str, statements: Statements) -> BatchResult:
        """A batch as a step."""
        return await self._database.batch(statements, plan_key=self.plan_key, plan_step=step)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to end: what was done is in the database, and what was not is found out by running it again."""
