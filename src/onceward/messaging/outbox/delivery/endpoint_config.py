"""
Endpoints from a configuration: the tables `[endpoints.NAME]` of the relay's TOML.

    [endpoints.billing]                            [endpoints.mail]
    kind = "http"                                  kind = "smtp"
    url = "https://example.com/hooks"              host = "mail.example.com"
    secrets_env = ["BILLING_SECRET"]               sender = "shop@example.com"

Whatever is not known is refused, with its place. Secrets are not written here: they come from the environment or from a
file for the owner alone.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from onceward._core.errors import ConfigurationError, OncewardError
from onceward.messaging.outbox.delivery.callable_endpoint import CallableEndpoint
from onceward.messaging.outbox.delivery.http_endpoint import FORMS, HttpEndpoint
from onceward.messaging.outbox.delivery.smtp_endpoint import SmtpEndpoint
from onceward.messaging.outbox.message import Endpoint
from onceward.messaging.webhooks.signatures import Secret, check_signing_secrets

SECRET_FILE_BYTES_MAX: Final = 32_768
NAME_CHARACTERS_MAX: Final = 100

_NUMBER, _WHOLE, _TEXT, _YES_NO, _TEXTS, _NUMBERS, _TABLE = (
    "a number", "a whole number", "a text", "true or false", "a list of texts", "a list of whole numbers",
    "a table of texts",
)  # fmt: skip

FIELDS: Final[dict[str, dict[str, str]]] = {
    "http": {
        "url": _TEXT, "secrets_env": _TEXTS, "secrets_file": _TEXT, "unsigned": _YES_NO, "form": _TEXT,
        "headers": _TABLE, "headers_env": _TABLE, "final": _NUMBERS, "allow_private": _TEXTS, "allow_http": _YES_NO,
        "ports": _NUMBERS, "seconds": _NUMBER, "connect_seconds": _NUMBER, "payload_bytes_max": _WHOLE,
        "answer_bytes_max": _WHOLE, "ca_file": _TEXT,
    },
    "smtp": {
        "host": _TEXT, "port": _WHOLE, "sender": _TEXT, "tls": _TEXT, "user_env": _TEXT, "password_env": _TEXT,
        "helo": _TEXT, "seconds": _NUMBER, "connect_seconds": _NUMBER, "payload_bytes_max": _WHOLE, "ca_file": _TEXT,
    },
    "python": {"call": _TEXT, "final": _TEXTS, "seconds": _NUMBER},
}  # fmt: skip
"""The fields of each kind, and what they hold."""

_NEEDED: Final = {"http": ("url",), "smtp": ("host", "sender"), "python": ("call",)}
_ELSEWHERE: Final = {
    "secret": "secrets_env or secrets_file",
    "secrets": "secrets_env or secrets_file",
    "user": "user_env",
    "password": "password_env",
}


def endpoints_from(config: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> dict[str, Endpoint]:
    """The endpoints of a configuration, by name; `ConfigurationError` names the place of whatever is wrong in it."""
    tables = config.get("endpoints", {})
    if not isinstance(tables, Mapping):
        raise ConfigurationError("endpoints is a table of tables: write [endpoints.NAME]")
    known = os.environ if environ is None else environ
    return {name: _endpoint(name, table, known) for name, table in tables.items()}


def _endpoint(name: str, table: Any, environ: Mapping[str, str]) -> Endpoint:
    place = f"[endpoints.{name}]"
    if not (0 < len(name) <= NAME_CHARACTERS_MAX and name.isascii() and name.isprintable() and " " not in name):
        raise ConfigurationError(f"{place[:150]!a}: a name has 1 to {NAME_CHARACTERS_MAX} visible ASCII characters")
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"{place}: an endpoint is a table with kind in it")
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in FIELDS:
        raise ConfigurationError(f'{place} kind: it is one of "http", "smtp" and "python"')
    options = {field: value for field, value in table.items() if field != "kind"}
    _check(place, kind, options)
    try:
        return _MAKERS[kind](options, environ)
    except _FieldError as error:
        raise ConfigurationError(f"{place} {error}") from None
    except OncewardError as error:
        raise ConfigurationError(f"{place}: {error}") from None


def _check(place: str, kind: str, options: dict[str, Any]) -> None:
    fields = FIELDS[kind]
    for field, value in options.items():
        if field not in fields and field in _ELSEWHERE:
            raise ConfigurationError(
                f"{place} {field}: secrets do not belong in a configuration file; say where they are with "
                f"{_ELSEWHERE[field]}"
            )
        if field not in fields:
            near = get_close_matches(field, fields, n=1)
            meant = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(fields)}"
            raise ConfigurationError(f"{place} {field!a}: an endpoint of kind {kind} has no such field{meant}")
        if not _has_type(fields[field], value):
            raise ConfigurationError(f"{place} {field}: it is {fields[field]}")
    for field in _NEEDED[kind]:
        if field not in options:
            raise ConfigurationError(f"{place} {field}: it is missing")


def _has_type(what: str, value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return {
        _TEXT: isinstance(value, str),
        _YES_NO: isinstance(value, bool),
        _WHOLE: whole,
        _NUMBER: whole or isinstance(value, float),
        _TEXTS: isinstance(value, list) and all(isinstance(one, str) for one in value),
        _NUMBERS: isinstance(value, list) and all(_has_type(_WHOLE, one) for one in value),
        _TABLE: isinstance(value, Mapping) and all(isinstance(one, str) for one in value.values()),
    }[what]


class _FieldError(Exception):
    """What is wrong with a field: begins with its name."""


# --- one kind after the other ---


def _http(options: dict[str, Any], environ: Mapping[str, str]) -> Endpoint:
    form = options.get("form", "standard")
    secrets = [
        _secret("secrets_env", _variable("secrets_env", name, environ), form) for name in options.pop("secrets_env", [])
    ]
    if "secrets_file" in options:
        lines = _private_lines("secrets_file", Path(options.pop("secrets_file")))
        secrets += [_secret("secrets_file", line, form) for line in lines]
    headers = dict(options.pop("headers", {}))
    for header, variable in options.pop("headers_env", {}).items():
        headers[header] = _variable("headers_env", variable, environ)
    return HttpEndpoint(secrets=secrets, headers=headers, tls=_tls_context(options), **options)


def _smtp(options: dict[str, Any], environ: Mapping[str, str]) -> Endpoint:
    for field in ("user", "password"):
        if f"{field}_env" in options:
            options[field] = _variable(f"{field}_env", options.pop(f"{field}_env"), environ)
    return SmtpEndpoint(context=_tls_context(options), **options)


def _python(options: dict[str, Any], _environ: Mapping[str, str]) -> Endpoint:
    final = tuple(_import_named("final", one) for one in options.pop("final", []))
    return CallableEndpoint(_import_named("call", options.pop("call")), final=final, **options)


_MAKERS: Final[dict[str, Callable[[dict[str, Any], Mapping[str, str]], Endpoint]]] = {
    "http": _http,
    "smtp": _smtp,
    "python": _python,
}


def _variable(field: str, name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name, "").strip()
    if not value:
        raise _FieldError(f"{field}: the environment variable {name!a} is not set")
    return value


def _secret(field: str, text: str, form: str) -> Secret | str:
    if form not in FORMS:
        return text  # Said by whoever is given the form.
    try:
        return check_signing_secrets([FORMS[form][0].secret(text)])[0]
    except ConfigurationError as error:
        raise _FieldError(f"{field}: {error}") from None


def _private_lines(field: str, file: Path) -> list[str]:
    """The lines of a file that nobody else may read."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise _FieldError(
            f"{field}: {file} cannot be read ({getattr(error, 'strerror', None) or 'no such path'})"
        ) from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or found.st_uid not in (os.geteuid(), 0):
            raise _FieldError(f"{field}: {file} can be read by others; it must belong to this user, with mode 0600")
        content = os.read(handle, SECRET_FILE_BYTES_MAX).decode("utf-8", "replace")
    finally:
        os.close(handle)
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if not lines:
        raise _FieldError(f"{field}: {file} is empty; it has one secret on each line")
    return lines


def _tls_context(options: dict[str, Any]) -> ssl.SSLContext | None:
    """A TLS context that believes the authorities of a file, and no others."""
    if "ca_file" not in options:
        return None
    file = options.pop("ca_file")
    try:
        return ssl.create_default_context(cafile=file)
    except (OSError, ValueError):
        raise _FieldError(f"ca_file: {file!a} is not a file with certificates in PEM form") from None


def _import_named(field: str, text: str) -> Any:
    """What `package.module:name` stands for."""
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise _FieldError(f"{field}: write it as package.module:name")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # A module that is imported may raise anything.
        raise _FieldError(f"{field}: {text!a} cannot be imported ({type(error).__name__})") from None
    return found
