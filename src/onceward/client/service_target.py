"""
What a client is told, checked before it does anything: which service or file, and with which token.
"""

from __future__ import annotations

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
"""What a local file is: whatever is in it, nobody's customers are."""


class ServiceTarget(NamedTuple):
    """A service and a token for it, or a local file."""

    url: str
    environment: str
    credential: Credential | None
    local: LocalService | None

    @property
    def header(self) -> dict[str, str]:
        """What a call proves itself by."""
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
        raise ConfigurationError("token and api_key are two names for one thing; give one of them")
    return api_key if token is None else token


def retry_policy_of(retry: Retry | None, max_retries: int | None, timeout: float | None) -> Retry:
    """The policy of a client: given, or the usual one with as many retries and as much time as was said."""
    if retry is None:
        return Retry(max_retries=max_retries, timeout=TIMEOUT if timeout is None else timeout)
    if not isinstance(retry, Retry):
        raise ConfigurationError(f"retry is a Retry(...), not {type(retry).__name__}; or say max_retries and timeout")
    if max_retries is not None or timeout is not None:
        raise ConfigurationError(
            "retry is a whole policy: say there how often and how long, Retry(max_retries=..., timeout=...)"
        )
    return retry


def call_from_dead_letter(sent: SentRequest) -> service_call.ServiceCall[Any]:
    """A request that a dead letter kept, as a call: the same bytes, under the same key."""
    outgoing = service_call.ServiceRequest(
        sent.method, sent.url, sent.headers, sent.body, named_inside=sent.safe, name=sent.name
    )
    return service_call.ServiceCall(outgoing, lambda found, *_: found)


def service_target_of(url: str, token: str | None, environment: str | None) -> ServiceTarget:
    """The service or the file that a client is for; refused here if that cannot be."""
    check_environment(environment)
    if service_call.is_local(url):
        if environment not in (None, LOCAL_ENVIRONMENT):
            raise ConfigurationError("a local file is for tests and small agents: its environment is test")
        from onceward.client.local_service import LocalService  # Only here: a client of a service needs no SQLite.

        return ServiceTarget(url, LOCAL_ENVIRONMENT, None, LocalService(url))
    credential = credential_of(token, environment)
    return ServiceTarget(service_call.check_url(url), credential.environment, credential, None)
