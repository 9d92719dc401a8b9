"""
Checks that a credential is for the client's environment, live or test, before anything is sent.

Providers write the environment into the credential: `pk_test_...`, `sk_live_...`. A credential is never part of a
message, a representation or an event.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from hashlib import sha256

from onceward._core.errors import ConfigurationError
from onceward._core.keys import ENVIRONMENTS

API_KEY_VARIABLE = "ONCEWARD_API_KEY"
"""The environment variable with the credential for `client(...)`, unless another is named."""

CREDENTIAL_HEADERS = ("authorization", "x-api-key", "api-key")

_ENVIRONMENT_IN_CREDENTIAL = re.compile(r"[A-Za-z0-9]{1,16}_(live|test)_")


def environment_of(credential: str) -> str | None:
    """`live` or `test`, read from a credential such as `sk_test_...`; None if it does not say."""
    match = _ENVIRONMENT_IN_CREDENTIAL.match(credential)
    return match[1] if match else None


def check_environment(environment: str | None) -> str | None:
    """Return the environment if it is a known one, or None."""
    if environment is not None and environment not in ENVIRONMENTS:
        raise ConfigurationError(f"environment must be one of {', '.join(ENVIRONMENTS)}")
    return environment


def check_credential(credential: str, environment: str) -> str:
    """Return the credential if it may be used in this environment; `ConfigurationError` if it is for another."""
    check_environment(environment)
    if not isinstance(credential, str) or not credential.strip():
        raise ConfigurationError("the credential is missing: give a text that is not empty")
    found = environment_of(credential)
    if found is not None and found != environment:
        raise ConfigurationError(
            f"this is a credential for {found}, but the client is for {environment}; nothing was sent. "
            f"Use a credential for {environment}, or make the client with environment={found!r}"
        )
    return credential


def api_key_from(variable: str) -> str:
    """The credential in an environment variable, so that it need not be in the code."""
    found = os.environ.get(variable, "").strip()
    if not found:
        raise ConfigurationError(f"no credential: set the environment variable {variable}, or pass api_key=")
    return found


def credentials_in(headers: Mapping[str, str]) -> list[str]:
    """The credentials in a request's headers: bearer token, user of basic authentication, API key."""
    return [_credential_in(headers[name]) for name in CREDENTIAL_HEADERS if headers.get(name)]


def credential_alias(credentials: list[str]) -> str:
    """A name for these credentials that reveals nothing about them: alerts are sent once for each."""
    return sha256("\0".join(credentials).encode("utf-8", "surrogatepass")).hexdigest()[:16] if credentials else ""


def _credential_in(value: str) -> str:
    scheme, _, rest = value.strip().partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic":
        try:
            return b64decode(rest.strip(), validate=True).decode("utf-8", "replace").partition(":")[0]
        except (NotBase64, ValueError):
            return value
    return value.strip()
