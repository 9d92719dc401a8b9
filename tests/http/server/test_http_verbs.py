"""The key makes a request safe to repeat, and not its verb: any verb can be gated, in both middlewares."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import pytest

from onceward import AsyncGate, Gate
from onceward.http.asgi import IdempotencyMiddleware as Asgi
from onceward.http.wsgi import IdempotencyMiddleware as Wsgi

Send = Callable[[str, str | None], tuple[int, str | None, bytes]]
"""A verb and a key; status, replay marker and body."""


def by_asgi(effects: list[str], **options: Any) -> Send:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        effects.append(scope["method"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(len(effects)).encode()})

    gate = AsyncGate("memory://", scope="test:verbs")
    guarded = Asgi(app, gate=gate, scope="test:verbs", **options)

    async def asked(method: str, key: str | None) -> list[dict[str, Any]]:
        said: list[dict[str, Any]] = []
        headers = [] if key is None else [(b"idempotency-key", key.encode())]
        scope = {"type": "http", "method": method, "path": "/orders/7", "query_string": b"", "headers": headers}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            said.append(message)

        await guarded(scope, receive, send)
        return said

    def send(method: str, key: str | None) -> tuple[int, str | None, bytes]:
        start, *rest = asyncio.run(asked(method, key))
        fields = {name.decode(): value.decode() for name, value in start["headers"]}
        body = b"".join(one.get("body", b"") for one in rest)
        return start["status"], fields.get("idempotency-replayed") or fields.get("idempotent-replayed"), body

    return send


def by_wsgi(effects: list[str], **options: Any) -> Send:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        effects.append(environ["REQUEST_METHOD"])
        start_response("200 OK", [])
        return [str(len(effects)).encode()]

    guarded = Wsgi(app, gate=Gate("memory://", scope="test:verbs"), scope="test:verbs", **options)

    def send(method: str, key: str | None) -> tuple[int, str | None, bytes]:
        said: list[Any] = []
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": "/orders/7",
            "QUERY_STRING": "",
            "CONTENT_LENGTH": "2",
            "wsgi.input": io.BytesIO(b"{}"),
            "wsgi.errors": io.StringIO(),
            "wsgi.url_scheme": "http",
            "SERVER_NAME": "x",
            "SERVER_PORT": "80",
            **({} if key is None else {"HTTP_IDEMPOTENCY_KEY": key}),
        }
        pieces = guarded(environ, lambda status, headers, *_: said.extend((status, dict(headers))))
        body = b"".join(pieces)
        if hasattr(pieces, "close"):
            pieces.close()
        fields = {name.lower(): value for name, value in said[1].items()}
        return int(said[0][:3]), fields.get("idempotency-replayed") or fields.get("idempotent-replayed"), body

    return send


@pytest.mark.requirement("D08")
@pytest.mark.fault("behind-asgi-only-a-post-is-gated", "behind-wsgi-only-a-post-is-gated")
@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_a_keyed_verb_is_gated_where_that_is_asked_for(method: str) -> None:
    """
    A profile that knows POST only lets another verb pass twice; asked to know this one, it runs once and is replayed.
    """
    seen = {}
    for way in (by_asgi, by_wsgi):
        passing: list[str] = []
        gated: list[str] = []
        left_alone = way(passing, profile="stripe")
        asked_for = way(gated, profile="stripe", methods=("POST", method))
        seen[way.__name__] = (
            [left_alone(method, "k") for _ in range(2)],
            [asked_for(method, "k") for _ in range(3)],
            (passing, gated),
        )

    expected = (
        [(200, None, b"1"), (200, None, b"2")],
        [(200, None, b"1"), (200, "true", b"1"), (200, "true", b"1")],
        ([method] * 2, [method]),
    )
    assert seen == {"by_asgi": expected, "by_wsgi": expected}
