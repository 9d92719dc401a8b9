"""
`ServiceCall`: a request whose bytes are the same on every attempt, and how its response is read. No I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlsplit

from onceward._core.canonical import canonical
from onceward._core.errors import ConfigurationError
from onceward._core.keys import check_key
from onceward.client.results import BatchResult, Result, batch_of, result_of
from onceward.protocol.headers import IDEMPOTENCY_KEY, PLAN_KEY, PLAN_STEP
from onceward.protocol.limits import SQL_KEY_CHARACTERS_MAX
from onceward.protocol.sql_values import blob_to_json
from onceward.protocol.usage_header import USAGE_HEADER, CallUsage, parse_usage
from onceward.retry.policy import SAFE_METHODS

T = TypeVar("T")

Params: TypeAlias = Sequence[Any] | Mapping[str, Any] | None
Statements: TypeAlias = Iterable[str | tuple[str, Params]]

LOCAL_SCHEME = "sqlite:"


class ServiceRequest(NamedTuple):
    """A request, ready to be sent; the same bytes on every attempt."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None
    named_inside: bool = False
    """Whether the body itself names what is to happen once: a delta by its reference."""
    name: str | None = None
    """What a dead letter calls it, where it has no key: a reference, a step of a plan."""

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice is sending it once: it is named, or it is so by nature."""
        by_header = not {IDEMPOTENCY_KEY, PLAN_KEY}.isdisjoint(self.headers)
        return by_header or self.named_inside or self.method in SAFE_METHODS

    @property
    def key(self) -> str | None:
        """The key that it goes under, or its plan and step; None if it has neither."""
        plan = self.headers.get(PLAN_KEY)
        return self.headers.get(IDEMPOTENCY_KEY) if plan is None else f"{plan} / {self.headers.get(PLAN_STEP)}"

    @property
    def extensions(self) -> dict[str, Any]:
        """What the retry transport needs to know: whether the request may be sent again, and its name."""
        options: dict[str, Any] = {"safe": True} if self.repeatable else {}
        return {"onceward": options if self.name is None else {**options, "name": self.name}}


class ServiceCall(NamedTuple, Generic[T]):
    """A request, and how its result is read from the document, whether it is a replay, and the headers."""

    outgoing: ServiceRequest
    read: Callable[[Any, bool, Mapping[str, str]], T]


class CallIdentity(NamedTuple):
    """The identity of a call: a key, or a step of a plan; or neither."""

    key: str | None = None
    plan: str | None = None
    step: str | None = None

    @property
    def name(self) -> str | None:
        """What a dead letter calls a step; a key is a name already."""
        return None if self.plan is None or self.step is None else digest_name("step", self.plan, self.step)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that carry it."""
        named = {IDEMPOTENCY_KEY: self.key, PLAN_KEY: self.plan, PLAN_STEP: self.step}
        return {name: value for name, value in named.items() if value is not None}


def digest_name(kind: str, *parts: str) -> str:
    """A name for something that has several parts, or long ones: the same for the same."""
    return f"{kind}:{sha256(canonical(list(parts))).hexdigest()[:32]}"


def identity_of(key: str | None, plan: str | None, step: str | None) -> CallIdentity:
    """The key or the plan and step of a call; refused if they are not valid."""
    if (plan is None) != (step is None):
        raise ConfigurationError("plan_key and plan_step go together: pass both, or neither")
    if key is not None and plan is not None:
        raise ConfigurationError("a call has either an idempotency_key or a plan_key, not both")
    for one in (key, plan, step):
        if one is not None:
            check_key(one, SQL_KEY_CHARACTERS_MAX)
    return CallIdentity(key, plan, step)


def query(path: str, sql: str, params: Params, identity: CallIdentity) -> ServiceCall[Result]:
    """One statement."""
    body = json_body({"sql": sql, "params": _params_document(params)}, "the parameters")
    outgoing = post(f"{path}/query", body, identity.headers)._replace(name=identity.name)
    return ServiceCall(outgoing, lambda found, replayed, headers: result_of(found, replayed, usage_of(headers)))


def batch(path: str, statements: Statements, identity: CallIdentity) -> ServiceCall[BatchResult]:
    """Several statements."""
    taken = [(one, None) if isinstance(one, str) else one for one in statements]
    document = {"statements": [{"sql": sql, "params": _params_document(params)} for sql, params in taken]}
    body = json_body(document, "the parameters")
    outgoing = post(f"{path}/batch", body, identity.headers)._replace(name=identity.name)
    return ServiceCall(outgoing, lambda found, replayed, headers: batch_of(found, replayed, usage_of(headers)))


def usage_of(headers: Mapping[str, str]) -> CallUsage | None:
    """What a response says about the cost of its call."""
    said = headers.get(USAGE_HEADER)
    return None if said is None else parse_usage(said)


def tables(path: str) -> ServiceCall[list[dict[str, Any]]]:
    """What is in a database."""
    return ServiceCall(ServiceRequest("GET", f"{path}/tables", {}, None), lambda found, *_: list(found["tables"]))


def create(path: str) -> ServiceCall[bool]:
    """Make a database."""
    return ServiceCall(ServiceRequest("PUT", path, {}, None), lambda found, *_: bool(found["created"]))


def drop(path: str) -> ServiceCall[bool]:
    """Delete a database."""
    return ServiceCall(ServiceRequest("DELETE", path, {}, None), lambda found, *_: bool(found.get("dropped", False)))


def post(path: str, body: bytes, headers: Mapping[str, str]) -> ServiceRequest:
    """A request with a body."""
    return ServiceRequest("POST", path, {"Content-Type": "application/json", **headers}, body)


def json_body(document: Any, what: str) -> bytes:
    """The bytes of a document; refused if it has values that JSON does not have."""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{what} cannot be sent: {error}; send numbers, text, lists, objects or None, and bytes as parameters"
        ) from None


def _params_document(params: Params) -> Any:
    if params is None:
        return None
    if isinstance(params, Mapping):
        return {str(name): _value(value) for name, value in params.items()}
    if isinstance(params, str | bytes):
        raise ConfigurationError("params must be a list of values or a mapping by name, not a single text")
    return [_value(value) for value in params]


def _value(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return blob_to_json(value)
    return value


def is_local(url: str) -> bool:
    """Whether a URL names a file, and no service."""
    return url.startswith(LOCAL_SCHEME)


def check_url(url: str) -> str:
    """A service's address, if it can be one."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError("this is not a service's URL. Pass https://host, or sqlite:///shop.db for a file")
    if "@" in parts.netloc:
        raise ConfigurationError("the URL must not have a user or a password in it; pass the token as token=...")
    return url.rstrip("/")
