"""
From a call to a request, and from an answer to a result or an error. No I/O: both colours, and both ways, share it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

from onceward._core import errors
from onceward._core.errors import ConfigurationError, OncewardError, OutcomeUnknown, RateLimitError
from onceward._core.keys import check_key
from onceward._core.strict_json import parse_json
from onceward.http.answers import REPLAY_HEADERS
from onceward.service.sql.errors import DatabaseUnknown, EngineClosed, NameInvalid, SqlError, SqlKind

Params: TypeAlias = Sequence[Any] | Mapping[str, Any] | None
Statements: TypeAlias = Iterable[str | tuple[str, Params]]

LOCAL = "sqlite:"
KEY_CHARACTERS_MAX = 200
"""What the service takes."""


class Outgoing(NamedTuple):
    """A request, ready to be sent; the same bytes on every attempt."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None


class Identity(NamedTuple):
    """What a call is known by: a key, or a step of a plan; or neither."""

    key: str | None = None
    plan: str | None = None
    step: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """As it travels."""
        named = {"Idempotency-Key": self.key, "Plan-Key": self.plan, "Plan-Step": self.step}
        return {name: value for name, value in named.items() if value is not None}


def identity_of(key: str | None, plan: str | None, step: str | None) -> Identity:
    """What a call is known by, refused here if it cannot be."""
    if (plan is None) != (step is None):
        raise ConfigurationError("plan_key and plan_step go together: they name one step")
    if key is not None and plan is not None:
        raise ConfigurationError("idempotency_key and plan_key name two operations; a call is one of them")
    for one in (key, plan, step):
        if one is not None:
            check_key(one, KEY_CHARACTERS_MAX)
    return Identity(key, plan, step)


def place(namespace: str, database: str, rest: str = "") -> str:
    """The path of a database."""
    return f"/v1/db/{quote(namespace, safe='')}/{quote(database, safe='')}{rest}"


def query(path: str, sql: str, params: Params, identity: Identity) -> Outgoing:
    """One statement."""
    return _post(f"{path}/query", {"sql": sql, "params": _sent(params)}, identity)


def batch(path: str, statements: Statements, identity: Identity) -> Outgoing:
    """Several statements."""
    taken = [(one, None) if isinstance(one, str) else one for one in statements]
    return _post(
        f"{path}/batch", {"statements": [{"sql": sql, "params": _sent(params)} for sql, params in taken]}, identity
    )


def _post(path: str, document: Any, identity: Identity) -> Outgoing:
    try:
        body = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"the parameters cannot be sent: {error}; send numbers, text, bytes or None") from None
    return Outgoing("POST", path, {"Content-Type": "application/json", **identity.headers}, body)


def _sent(params: Params) -> Any:
    if params is None:
        return None
    if isinstance(params, Mapping):
        return {str(name): _value(value) for name, value in params.items()}
    if isinstance(params, str | bytes):
        raise ConfigurationError("params are a list of values, or an object by name; one text is none of them")
    return [_value(value) for value in params]


def _value(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": b64encode(value).decode()}
    return value


# --- answers ---


def replayed(headers: Mapping[str, str]) -> bool:
    """Whether the service says that this is the first answer, told again."""
    return any(headers.get(name, "").lower() == "true" for name in REPLAY_HEADERS)


def document_of(status: int, headers: Mapping[str, str], body: bytes) -> Any:
    """The JSON of a good answer; otherwise the error that the service means."""
    if status < 400:
        return parse_json(body)
    raise error_of(status, headers, body)


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> OncewardError:
    """A refusal as the error that it would be in Python."""
    try:
        found = parse_json(body)
    except OncewardError:
        found = None
    document: dict[str, Any] = found if isinstance(found, dict) else {}
    code, detail = str(document.get("code", "")), str(document.get("detail", f"the service answered {status}"))
    wait = _wait(document, headers)
    if code == SqlError.code:
        return _sql_error(document, detail, wait)
    if status == 429 and code not in _CLASSES:
        return RateLimitError(detail, retry_after_seconds=wait)
    made = _CLASSES.get(code, OutcomeUnknown if status >= 500 else OncewardError)
    try:
        return made(detail, retry_after_seconds=wait)
    except TypeError:
        error = made(detail)
        error.retry_after_seconds = wait
        return error


def _sql_error(document: dict[str, Any], detail: str, wait: float | None) -> SqlError:
    kind = document.get("kind")
    known = SqlKind(kind) if kind in set(SqlKind) else SqlKind.INVALID
    named = {name: document[name] for name in ("table", "column", "constraint", "hint") if name in document}
    error = SqlError(known, detail, **named, retry_after_seconds=wait)
    error.statement = document.get("statement")
    return error


def _wait(document: dict[str, Any], headers: Mapping[str, str]) -> float | None:
    said = document.get("retryAfterSeconds", headers.get("retry-after"))
    try:
        return None if said is None else max(0.0, float(said))
    except (TypeError, ValueError):
        return None


_CLASSES: dict[str, type[OncewardError]] = {
    one.code: one
    for one in (*vars(errors).values(), DatabaseUnknown, NameInvalid, EngineClosed)
    if isinstance(one, type) and issubclass(one, OncewardError) and one is not OncewardError
}


def is_local(url: str) -> bool:
    """Whether a URL names a file, and no service."""
    return url.startswith(LOCAL)


def check_url(url: str) -> str:
    """A service's address, if it can be one."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError("a service is named https://host, and a local file sqlite:///shop.db")
    return url.rstrip("/")
