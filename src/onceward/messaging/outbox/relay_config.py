"""
Makes a relay from a TOML file:

    schedule = [5, 300, 1800]         # and retain, concurrency, idle, threshold, recovery: all may be left out

    [endpoints.billing]
    kind = "http"
    url = "https://example.com/hooks"
    secrets_env = ["BILLING_SECRET"]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onceward._core.errors import ConfigurationError
from onceward.messaging.outbox.delivery import endpoints_from
from onceward.messaging.outbox.relay import Relay

OPTIONS = ("schedule", "retain", "concurrency", "idle", "threshold", "recovery")


def relay_from_file(url: str, file: str) -> Relay:
    """The relay that a file describes, for the database that a URL names; `ConfigurationError` says what is wrong."""
    document = _read(file)
    options = {name: document[name] for name in OPTIONS if name in document}
    if unknown := sorted(set(document) - {*OPTIONS, "endpoints"}):
        raise ConfigurationError(f"{file}: there is no setting {unknown[0]!a}; there are {', '.join(OPTIONS)}")
    try:
        endpoints = endpoints_from(document)
        if not endpoints:
            raise ConfigurationError("there are no endpoints to deliver to; write [endpoints.NAME], with its kind")
        return Relay(url, endpoints, **options)
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: {error}") from error


def _read(file: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, OSError):
            raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None
        raise ConfigurationError(f"{file} is not TOML: {error}") from None
