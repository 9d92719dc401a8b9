"""
What a client is told, checked before it does anything: which service or file, and with which token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from onceward._core.errors import ConfigurationError
from onceward.client import wire
from onceward.client.tokens import Credential, credential_of
from onceward.http.credentials import check_environment

if TYPE_CHECKING:
    from onceward.client.local import LocalService

LOCAL_ENVIRONMENT = "test"
"""What a local file is: whatever is in it, nobody's customers are."""


class Opened(NamedTuple):
    """A service and a token for it, or a local file."""

    url: str
    environment: str
    credential: Credential | None
    local: LocalService | None

    @property
    def header(self) -> dict[str, str]:
        """What a call proves itself by."""
        return {} if self.credential is None else self.credential.header

    def place(self, namespace: str, database: str) -> str:
        """The path of a database; a local file has one only."""
        path = wire.place(namespace, database)
        if self.local is not None:
            self.local.bind(path)
        return path


def opened(url: str, token: str | None, environment: str | None) -> Opened:
    """The service or the file that a client is for; refused here if that cannot be."""
    check_environment(environment)
    if wire.is_local(url):
        if environment not in (None, LOCAL_ENVIRONMENT):
            raise ConfigurationError("a local file is for tests and small agents: its environment is test")
        from onceward.client.local import LocalService  # Only here: a client of a service needs no SQLite.

        return Opened(url, LOCAL_ENVIRONMENT, None, LocalService(url))
    credential = credential_of(token, environment)
    return Opened(wire.check_url(url), credential.environment, credential, None)
