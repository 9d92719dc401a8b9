"""
`ServiceTarget`: the service or the local file of a client, and the token for it. Checked before anything is sent.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from onceward._core.errors import ConfigurationError
from onceward._core.sent_request import SentRequest
from onceward.client import service_call
from onceward.client.credential import Credential, credential_of
from onceward.http.client.credentials import check_environment
from onceward.protocol.paths import database_path
from onceward.retry.policy import TIMEOUT, Retry

if TYPE_CHECKING:
    from onceward.client.local_service import LocalService

LOCAL_ENVIRONMENT = "test"
"""A local file is a test environment: it is for tests and small agents."""


class ServiceTarget(NamedTuple):
    """A service and a token for it, or a local file."""

    url: str
    environment: str
    credential: Credential | None
    local: LocalService | None

    @property
    def header(self) -> dict[str, str]:
        """The header with the token."""
        return {} if self.credential is None else self.credential.header

    def database_path_of(self, namespace: str, database: str) -> str:
        """The path of a database; a local file has one only."""
        path = database_path(namespace, database)
        if self.local is not None:
            self.local.bind(path)
        return path


def one_token(token: str | None, api_key: str | None) -> str | None:
    """The token, by whichever of its two names it was given."""
    if token is not None and api_key is not None:
        raise ConfigurationError("token and api_key mean the same; pass one of them")
    return api_key if token is None else token


def retry_policy_of(retry: Retry | None, max_retries: int | None, timeout: float | None) -> Retry:
    """The policy of a client: the one that was passed, or the default with this many retries and this timeout."""
    if retry is None:
        return Retry(max_retries=max_retries, timeout=TIMEOUT if timeout is None else timeout)
    if not isinstance(retry, Retry):
        raise ConfigurationError(
            f"retry must be a Retry(...), not {type(retry).__name__}; or pass max_retries, timeout"
        )
    if max_retries is not None or timeout is not None:
        raise ConfigurationError(
            "retry is a whole policy, so max_retries and timeout belong there: Retry(max_retries=..., timeout=...)"
        )
    return retry


def call_from_dead_letter(sent: SentRequest) -> service_call.ServiceCall[Any]:
    """A request that a dead letter kept, as a call: the same bytes, under the same key."""
    outgoing = service_call.ServiceRequest(
        sent.method, sent.url, sent.headers, sent.body, named_inside=sent.safe, name=sent.name
    )
    return service_call.ServiceCall(outgoing, lambda found, *_: found)


def service_target_of(url: str, token: str | None, environment: str | None) -> ServiceTarget:
    """The service or the file that a URL names; refused if it is not valid."""
    check_environment(environment)
    if service_call.is_local(url):
        if environment not in (None, LOCAL_ENVIRONMENT):
            raise ConfigurationError("a local file is in the test environment; leave environment out, or pass test")
        from onceward.client.local_service import LocalService  # Only here: a client of a service needs no SQLite.

        return ServiceTarget(url, LOCAL_ENVIRONMENT, None, LocalService(url))
    credential = credential_of(token, environment)
    return ServiceTarget(service_call.check_url(url), credential.environment, credential, None)


def import_http_library() -> tuple[Any, Any]:
    """The HTTP library of the client, httpx2 if it is installed, else httpx; and our transports for it."""
    for name in ("httpx2", "httpx"):
        if find_spec(name) is not None:
            return import_module(name), import_module(f"onceward.http.{name}")
    raise ConfigurationError("neither httpx2 nor httpx is installed: pip install 'onceward[httpx2]'")
