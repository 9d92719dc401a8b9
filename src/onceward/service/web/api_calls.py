"""
Calls of the service's own API from within it: the same application, the same token, the same address.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Message

_OWN = frozenset({b"content-length", b"content-type", b"content-encoding", b"transfer-encoding", b"accept", b"cookie"})
_IDENTITY = frozenset({b"idempotency-key", b"plan-key", b"plan-step"})
"""Headers that are of the outer request only; the token and the proxies' go on to the inner one."""


class ApiRequest(NamedTuple):
    """A call of the API."""

    method: str
    path: str
    """As it is sent: quoted, with the query."""
    body: dict[str, Any] | None = None
    headers: tuple[tuple[str, str], ...] = ()


class ApiAnswer(NamedTuple):
    """What the API answered."""

    status: int
    headers: dict[str, str]
    body: bytes


async def call_api(app: ASGIApp, outer: Request, wanted: ApiRequest) -> ApiAnswer:
    """Make a call of the API, on behalf of whoever makes this request."""
    body = b"" if wanted.body is None else msgspec.json.encode(wanted.body)
    parts = urlsplit(wanted.path)
    headers = [(name, value) for name, value in outer.headers.raw if name.lower() not in _OWN | _IDENTITY]
    headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in wanted.headers]
    if wanted.body is not None:
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    scope: dict[str, Any] = {
        name: outer.scope[name]
        for name in ("type", "asgi", "http_version", "scheme", "client", "server", "root_path")
        if name in outer.scope
    }
    scope.update(
        method=wanted.method,
        path=unquote(parts.path),
        raw_path=parts.path.encode(),  # A slash within a name stays quoted here, and is refused.
        query_string=parts.query.encode(),
        headers=headers,
    )
    status, sent, pieces, asked = 500, {}, [], False

    async def receive() -> Message:
        nonlocal asked
        if asked:
            return await outer.receive()  # Nothing but the caller's leaving comes now.
        asked = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, sent
        if message["type"] == "http.response.start":
            status = message["status"]
            sent = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]}
        elif message["type"] == "http.response.body":
            pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    return ApiAnswer(status, sent, b"".join(pieces))
