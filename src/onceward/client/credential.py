"""
The token of a client: given, or from the environment. Checked before anything is sent, and never shown.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from onceward._core.errors import ConfigurationError
from onceward.http.client.credentials import check_credential, check_environment
from onceward.protocol.token_format import parse_token

TOKEN_VARIABLE = "ONCEWARD_TOKEN"  # noqa: S105 - the name of a variable


class Credential(NamedTuple):
    """A token, and the environment that it is for."""

    text: str
    environment: str

    @property
    def header(self) -> dict[str, str]:
        """The header that carries it."""
        return {"Authorization": f"Bearer {self.text}"}

    def __repr__(self) -> str:
        return f"<token for {self.environment}>"


def credential_of(given: str | None, environment: str | None) -> Credential:
    """
    The token: given, or from `ONCEWARD_TOKEN`. Refused here if it is not one, or is for the other environment.

    No error repeats any of it; a client library's own complaint about a bad header would.
    """
    check_environment(environment)
    text = (os.environ.get(TOKEN_VARIABLE, "") if given is None else given).strip()
    if not text:
        raise ConfigurationError(
            f"there is no token. Set the environment variable {TOKEN_VARIABLE}, or pass token=...; "
            "`onceward token create` makes one"
        )
    found = parse_token(text).environment
    check_credential(text, environment or found)
    return Credential(text, found)
