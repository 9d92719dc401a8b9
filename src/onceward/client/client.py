# Made from client_async.py by `make halves`: change that file, not this one.
"""
`Client`: calls a service, or a local file with the same methods.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, TypeVar

from onceward._core.sent_request import SentRequest
from onceward.client import service_call
from onceward.client.balance import Balance
from onceward.client.responses import no_response_error, result_of_response
from onceward.client.results import BatchResult, Result
from onceward.client.service_call import Params, ServiceCall, Statements
from onceward.client.service_target import (
    ServiceTarget,
    call_from_dead_letter,
    import_http_library,
    one_token,
    retry_policy_of,
    service_target_of,
)
from onceward.gate.dead_letter_box import DeadLetterBox
from onceward.retry.policy import Retry

T = TypeVar("T")


class Client:
    """
    A service, or a local file (`Client("sqlite:///shop.db")`) that behaves like one.

    The token is `token` (or `api_key`, which means the same), or the environment variable `ONCEWARD_TOKEN`. With
    `environment` (`live` or `test`), a token for the other one is refused before anything is sent. A call with a key is
    sent again with the same bytes; one without is sent again only if it is known not to have arrived: `max_retries`
    times (default: 2), each attempt for at most `timeout` seconds (default: 30); or as the policy `retry` says. If that
    policy has dead letters, the client sends theirs again.
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
        policy = retry_policy_of(retry, max_retries, timeout)
        self._target: ServiceTarget = service_target_of(url, one_token(token, api_key), environment)
        if self._target.local is None:
            if isinstance(policy.dead, DeadLetterBox):
                policy.dead.handle_requests(self._target.url, self._resend)
            library, family = import_http_library()
            self._failures = library.HTTPError
            self._http: Any = library.Client(
                base_url=self._target.url,
                headers=self._target.header,
                transport=family.Transport(policy, profile=None, whole=True),
                timeout=None,
            )

    @property
    def environment(self) -> str:
        """Where its calls go: `live` or `test`. A local file is `test`."""
        return self._target.environment

    @property
    def balance(self) -> Balance:
        """The tenant's balance ledger."""
        return Balance(self, self.environment)

    def db(self, namespace: str, database: str) -> Database:
        """One database."""
        return Database(self, self._target.database_path_of(namespace, database))

    def ask(self, call: ServiceCall[T]) -> T:
        """Send a call; its result, or the error that the service answered with."""
        if self._target.local is not None:
            return self._target.local.ask(call)
        outgoing = call.outgoing
        try:
            response = self._http.request(
                outgoing.method,
                outgoing.path,
                content=outgoing.body,
                headers=outgoing.headers,
                extensions=outgoing.extensions,
            )
        except self._failures as error:
            raise no_response_error(outgoing, error) from error
        return result_of_response(call, response)

    def _resend(self, sent: SentRequest) -> Any:
        """Send a request again that the policy gave up; its dead letters call this."""
        return self.ask(call_from_dead_letter(sent))

    def close(self) -> None:
        """Close the connections, or the file."""
        if self._target.local is not None:
            self._target.local.close()
        else:
            self._http.close()

    def __repr__(self) -> str:
        return f"<onceward.{type(self).__name__} of {self._target.url} ({self.environment})>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Database:
    """One database of a service."""

    def __init__(self, client: Client, path: str) -> None:
        self._client, self._path = client, path

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
        identity = service_call.identity_of(idempotency_key, plan_key, plan_step)
        return self._client.ask(service_call.query(self._path, sql, params, identity))

    def batch(
        self,
        statements: Statements,
        *,
        idempotency_key: str | None = None,
        plan_key: str | None = None,
        plan_step: str | None = None,
    ) -> BatchResult:
        """Run statements in one transaction, all or none, once per key or step."""
        identity = service_call.identity_of(idempotency_key, plan_key, plan_step)
        return self._client.ask(service_call.batch(self._path, statements, identity))

    def plan(self, plan_key: str) -> DatabasePlan:
        """A plan: `with db.plan("migrate-42") as plan: plan.query("create-tables", sql)`."""
        return DatabasePlan(self, plan_key)

    def tables(self) -> list[dict[str, Any]]:
        """The tables of the database."""
        return self._client.ask(service_call.tables(self._path))

    def create(self) -> bool:
        """Make the database; whether it is new. Asking again is harmless."""
        return self._client.ask(service_call.create(self._path))

    def drop(self) -> bool:
        """Delete the database, and the records of its keys; whether there was one."""
        return self._client.ask(service_call.drop(self._path))


class DatabasePlan:
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
        """Nothing to end: a re-run replays the steps that are done and runs the others."""
