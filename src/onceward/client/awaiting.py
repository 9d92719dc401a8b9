# blocking half: blocking.py
"""
`AsyncClient`: what speaks to a service, or to a local file in the same words.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self, TypeVar

from onceward._core.sent import SentRequest
from onceward.client import wire
from onceward.client.answers import result, unanswered
from onceward.client.balances_async import AsyncBalance
from onceward.client.libraries import library_of
from onceward.client.opening import Opened, again, one_token, opened, policy_of
from onceward.client.results import BatchResult, Result
from onceward.client.wire import Call, Params, Statements
from onceward.gate.dead_async import AsyncDeadLetterBox
from onceward.retry.policy import Retry

T = TypeVar("T")


class AsyncClient:
    """
    A service, or a local file (`AsyncClient("sqlite:///shop.db")`) that behaves like one.

    The token is taken from the environment variable `ONCEWARD_TOKEN` unless it is given (`api_key` is another word for
    it). With `environment` (`live` or `test`), a token for the other one is refused before anything is sent. A call
    with a key is sent again with the same bytes; one without is sent again only if it is known not to have arrived:
    `max_retries` times (2), each attempt for `timeout` seconds at most (30); or as the policy `retry` says. If that has
    dead letters, the client does theirs again.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        api_key: str | None = None,
        environment: str | None = None,
        retry: Retry | None = None,
        max_retries: int | None = None,
        timeout: float | None = None,
    ) -> None:
        policy = policy_of(retry, max_retries, timeout)
        self._opened: Opened = opened(url, one_token(token, api_key), environment)
        if self._opened.local is None:
            if isinstance(policy.dead, AsyncDeadLetterBox):
                policy.dead.handle_requests(self._opened.url, self._resend)
            library, family = library_of()
            self._failures = library.HTTPError
            self._http: Any = library.AsyncClient(
                base_url=self._opened.url,
                headers=self._opened.header,
                transport=family.AsyncTransport(policy, profile=None, whole=True),
                timeout=None,
            )

    @property
    def environment(self) -> str:
        """Where its calls go: `live` or `test`. A local file is `test`."""
        return self._opened.environment

    @property
    def balance(self) -> AsyncBalance:
        """The tenant's balance ledger."""
        return AsyncBalance(self, self.environment)

    def db(self, namespace: str, database: str) -> AsyncDatabase:
        """One database."""
        return AsyncDatabase(self, self._opened.place(namespace, database))

    async def ask(self, call: Call[T]) -> T:
        """Make a call; what its answer comes to, or the error that the service means."""
        if self._opened.local is not None:
            return await asyncio.to_thread(self._opened.local.ask, call)
        outgoing = call.outgoing
        try:
            response = await self._http.request(
                outgoing.method,
                outgoing.path,
                content=outgoing.body,
                headers=outgoing.headers,
                extensions=outgoing.extensions,
            )
        except self._failures as error:
            raise unanswered(outgoing, error) from error
        return result(call, response)

    async def _resend(self, sent: SentRequest) -> Any:
        """Registered with the policy's dead letters: send a request again that was given up."""
        return await self.ask(again(sent))

    async def close(self) -> None:
        """Let go of connections, or of the file."""
        if self._opened.local is not None:
            await asyncio.to_thread(self._opened.local.close)
        else:
            await self._http.aclose()

    def __repr__(self) -> str:
        return f"<onceward.{type(self).__name__} of {self._opened.url} ({self.environment})>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncDatabase:
    """One database of a service."""

    def __init__(self, client: AsyncClient, path: str) -> None:
        self._client, self._path = client, path

    async def query(
        self,
        sql: str,
        params: Params = None,
        *,
        idempotency_key: str | None = None,
        plan_key: str | None = None,
        plan_step: str | None = None,
    ) -> Result:
        """Run one statement, once per key or step; `Result.replayed` tells whether it ran now."""
        identity = wire.identity_of(idempotency_key, plan_key, plan_step)
        return await self._client.ask(wire.query(self._path, sql, params, identity))

    async def batch(
        self,
        statements: Statements,
        *,
        idempotency_key: str | None = None,
        plan_key: str | None = None,
        plan_step: str | None = None,
    ) -> BatchResult:
        """Run statements in one transaction, all or none, once per key or step."""
        identity = wire.identity_of(idempotency_key, plan_key, plan_step)
        return await self._client.ask(wire.batch(self._path, statements, identity))

    def plan(self, plan_key: str) -> AsyncPlanned:
        """A plan: `async with db.plan("migrate-42") as plan: await plan.query("create-tables", sql)`."""
        return AsyncPlanned(self, plan_key)

    async def tables(self) -> list[dict[str, Any]]:
        """The tables of the database."""
        return await self._client.ask(wire.tables(self._path))

    async def create(self) -> bool:
        """Make the database; whether it is new. Asking again is harmless."""
        return await self._client.ask(wire.create(self._path))

    async def drop(self) -> bool:
        """Delete the database, and the records of its keys; whether there was one."""
        return await self._client.ask(wire.drop(self._path))


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
