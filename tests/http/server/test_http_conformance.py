"""Both middlewares, examined from outside by `onceward conformance`, profile by profile; and an app without them."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from asgi_support import Stage
from waitress.server import create_server

from onceward import AsyncGate, Gate
from onceward.http import IncomingRequest
from onceward.http.asgi import IdempotencyMiddleware as Asgi
from onceward.http.wsgi import IdempotencyMiddleware as Wsgi
from onceward.testing.http_suite import PROFILES, CheckVerdict, Examination, describe, examine

pytestmark = pytest.mark.dose(1, of="shell")

DESCRIPTION: dict[str, Any] = {
    "body": '{"n": {n}, "what": "tea"}',
    "unique": "/id",
    "other_path": "/refunds",
    "headers": {"Authorization": "Bearer one"},
    "other_headers": {"Authorization": "Bearer two"},
    "slow": {"path": "/slow"},
    "fail_4xx": {"path": "/refused"},
    "repair": {"path": "/repair"},
    "fail_5xx": {"path": "/broken"},
    "stream": {"path": "/stream"},
    "no_content": {"path": "/nothing"},
    "timeout": 20,
}
SLOW_SECONDS = 1.0
"""A slow request runs until its key was sent again, and for this long after the last of three: on a machine of any
speed whoever is to meet it does."""
SLOW_SECONDS_MAX = 15.0


class Shop:
    """What an application does, whichever way it is written: each order has a number of its own."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._repaired = False
        self._sent: dict[str, list[float]] = {}

    def arrives(self, key: str) -> None:
        """Outside of the middleware: a request with this key is here."""
        self._sent.setdefault(key, []).append(time.monotonic())

    def is_slow(self, key: str, began: float) -> bool:
        """Whether a slow request with this key has still to run."""
        sent, now = self._sent[key], time.monotonic()
        return now < began + SLOW_SECONDS_MAX and (len(sent) < 2 or now < max(sent[:4][-1], began) + SLOW_SECONDS)

    def answer(self, path: str) -> tuple[int, bytes]:
        number = next(self._numbers)
        match path:
            case "/refused" if not self._repaired:
                return 422, b'{"sorry": true}'
            case "/repair":
                self._repaired = True
            case "/broken":
                return 500, b'{"broken": true}'
            case "/nothing":
                return 204, b""
        return 201, json.dumps({"id": number}).encode()


def tenant(request: IncomingRequest) -> str:
    return "test:" + (request.header("authorization") or "").removeprefix("Bearer ")


def asgi_key(scope: Any) -> str:
    return dict(scope["headers"]).get(b"idempotency-key", b"").decode("latin-1") if scope["type"] == "http" else ""


def asgi_door(shop: Shop, app: Any) -> Any:
    async def door(scope: Any, receive: Any, send: Any) -> None:
        shop.arrives(asgi_key(scope))
        await app(scope, receive, send)

    return door


def wsgi_door(shop: Shop, app: Any) -> Any:
    def door(environ: Any, start_response: Any) -> Any:
        shop.arrives(environ.get("HTTP_IDEMPOTENCY_KEY", ""))
        return app(environ, start_response)

    return door


def asgi(shop: Shop) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        began, key = time.monotonic(), asgi_key(scope)
        while scope["path"] == "/slow" and shop.is_slow(key, began):
            await asyncio.sleep(0.01)
        status, body = shop.answer(scope["path"])
        headers = [] if status == 204 else [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if scope["path"] == "/stream":
            for piece in (body[:3], body[3:]):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            body = b""
        await send({"type": "http.response.body", "body": body})

    return app


def wsgi(shop: Shop) -> Any:
    def app(environ: Any, start_response: Any) -> Any:
        environ["wsgi.input"].read()
        began, key = time.monotonic(), environ.get("HTTP_IDEMPOTENCY_KEY", "")
        while environ["PATH_INFO"] == "/slow" and shop.is_slow(key, began):
            threading.Event().wait(0.01)
        status, body = shop.answer(environ["PATH_INFO"])
        start_response(f"{status} Said", [] if status == 204 else [("Content-Type", "application/json")])
        return iter((body[:3], body[3:])) if environ["PATH_INFO"] == "/stream" else [body]

    return app


@contextmanager
def under_asgi(wrap: Callable[[Any], Any] | None, **options: Any) -> Iterator[str]:
    """A uvicorn with the shop on it; `wrap` in place of the middleware."""
    stage, shop = Stage(), Shop()
    app, gate = asgi(shop), AsyncGate("memory://", scope="test:shop")
    guarded = wrap(app) if wrap is not None else Asgi(app, gate=gate, scope=tenant, **options)
    stage.app = asgi_door(shop, guarded)
    try:
        yield f"http://127.0.0.1:{stage.port}"
    finally:
        stage.stop()


@contextmanager
def under_wsgi(wrap: Callable[[Any], Any] | None, **options: Any) -> Iterator[str]:
    """A waitress with the shop on it; `wrap` in place of the middleware."""
    shop = Shop()
    app, gate = wsgi(shop), Gate("memory://", scope="test:shop")
    guarded = wrap(app) if wrap is not None else Wsgi(app, gate=gate, scope=tenant, **options)
    server = create_server(wsgi_door(shop, guarded), host="127.0.0.1", port=0, threads=40)

    def run() -> None:
        with suppress(OSError):  # Its loop may meet a socket that `close` has just closed.
            server.run()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}"
    finally:
        server.close()
        thread.join(10)
        gate.close()


UNDER = {"asgi": under_asgi, "wsgi": under_wsgi}


def examined(url: str, profile: str) -> Examination:
    return examine(describe({**DESCRIPTION, "url": f"{url}/orders", "profile": profile}, {}), jobs=8)


def said(examination: Examination, verdict: CheckVerdict) -> dict[str, str]:
    return {one.check.name: one.reason for one in examination.findings if one.verdict is verdict}


@pytest.mark.parametrize("shell", UNDER)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_promise_of_a_profile_holds_as_seen_from_outside(shell: str, profile: str) -> None:
    """
    Nothing is broken, and nothing is left unshown.
    """
    with UNDER[shell](None, profile=profile) as url:
        examination = examined(url, profile)

    assert said(examination, CheckVerdict.BROKEN) == {}
    assert said(examination, CheckVerdict.NOT_SHOWN) == {}
    assert len(said(examination, CheckVerdict.HOLDS)) > 35


@pytest.mark.parametrize("shell", UNDER)
def test_without_the_middleware_it_is_red(shell: str) -> None:
    """
    The same application, bare: it runs as often as it is asked.
    """
    with UNDER[shell](lambda app: app) as url:
        broken = said(examined(url, "default"), CheckVerdict.BROKEN)

    assert len(broken) > 10
