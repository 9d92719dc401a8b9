"""
`Client`: the shell for blocking callers.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Self

from onceward._core.errors import ConfigurationError
from onceward.client import wire
from onceward.client.libraries import library_of
from onceward.client.results import BatchResult, Result, batch_of, result_of
from onceward.client.wire import Identity, Outgoing, Params, Statements
from onceward.retry.policy import Retry

TOKEN_VARIABLE = "ONCEWARD_TOKEN"  # noqa: S105 - the name of a variable


def token_of(given: str | None) -> str:
    """The token: given, or from the environment."""
    token = given or os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        raise ConfigurationError(f"which token? Pass token=... or set the environment variable {TOKEN_VARIABLE}")
    return token


class Client:
    """
    A service, or a local file (`Client("sqlite:///shop.db")`) that behaves like one.

    `retry` is a policy; by default three attempts with full jitter. A statement with a key is sent again with the same
    bytes; one without is sent again only if it is known not to have arrived.
    """

    def __init__(self, url: str, *, token: str | None = None, retry: Retry | None = None) -> None:
        if wire.is_local(url):
            from onceward.client.local import LocalService

            self._local: LocalService | None = LocalService(url)
            return
        self._local = None
        library, family = library_of()
        self._http: Any = library.Client(
            base_url=wire.check_url(url),
            headers={"Authorization": f"Bearer {token_of(token)}"},
            transport=family.Transport(retry or Retry(), profile=None),
            timeout=None,
        )

    def db(self, namespace: str, database: str) -> Database:
        """One database."""
        return Database(self, namespace, database)

    def perform(self, outgoing: Outgoing) -> tuple[Any, bool]:
        """Send a request; the answer's document, and whether it is a replay."""
        if self._local is not None:
            return self._local.perform(outgoing)
        response = self._http.request(outgoing.method, outgoing.path, content=outgoing.body, headers=outgoing.headers)
        return wire.document_of(response.status_code, response.headers, response.content), wire.replayed(
            response.headers
        )

    def close(self) -> None:
        """Let go of connections, or of the file."""
        if self._local is not None:
            self._local.close()
        else:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Database:
    """One database of a service."""

    def __init__(self, client: Client, namespace: str, database: str) -> None:
        self._client = client
        self._path = wire.place(namespace, database)

    def query(
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
        return self._query(sql, params, identity)

    def batch(
        self,
        statements: Statements,
        *,
        idempotency_key: str | None = None,
        plan_key: str | None = None,
        plan_step: str | None = None,
    ) -> BatchResult:
        """Run statements in one transaction, all or none, once per key or step."""
        identity = wire.identity_of(idempotency_key, plan_key, plan_step)
        document, replayed = self._client.perform(wire.batch(self._path, statements, identity))
        return batch_of(document, replayed=replayed)

    def plan(self, plan_key: str) -> Planned:
        """A plan: `with db.plan("migrate-42") as plan: plan.query("create-tables", sql)`."""
        return Planned(self, plan_key)

    def tables(self) -> list[dict[str, Any]]:
        """The tables of the database."""
        document, _ = self._client.perform(Outgoing("GET", f"{self._path}/tables", {}, None))
        return list(document["tables"])

    def create(self) -> bool:
        """Make the database; whether it is new. Asking again is harmless."""
        document, _ = self._client.perform(Outgoing("PUT", self._path, {}, None))
        return bool(document["created"])

    def drop(self) -> bool:
        """Delete the database, and the records of its keys; whether there was one."""
        document, _ = self._client.perform(Outgoing("DELETE", self._path, {}, None))
        return bool(document.get("dropped", False))

    def _query(self, sql: str, params: Params, identity: Identity) -> Result:
        document, replayed = self._client.perform(wire.query(self._path, sql, params, identity))
        return result_of(document, replayed=replayed)


class Planned:
    """A plan on one database: each step runs once, and a re-run replays what was done and goes on."""

    def __init__(self, database: Database, plan_key: str) -> None:
        self._database = database
        self.plan_key = plan_key

    def query(self, step: str, sql: str, params: Params = None) -> Result:
        """One statement as a step."""
        return self._database.query(sql, params, plan_key=self.plan_key, plan_step=step)

    def batch(self, step: str, statements: Statements) -> BatchResult:
        """A batch as a step."""
        return self._database.batch(statements, plan_key=self.plan_key, plan_step=step)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to end: what was done is in the database, and what was not is found out by running it again."""
