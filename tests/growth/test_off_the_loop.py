"""Long bodies are read beside the event loop, so that one caller's megabyte is not everybody's pause."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from onceward import AsyncGate
from onceward.http.asgi import IdempotencyMiddleware
from onceward.http.server.request_fingerprint import RequestFingerprint
from onceward.http.server.thread_offload import HEAVY_BYTES
from onceward.runtime.environment import REAL
from onceward.service.access import Accounts
from onceward.service.web import bodies, endpoints
from onceward.service.web.calls import Authenticator
from onceward.service.web.endpoints import ApiEndpoint, EndpointResponse, _Handler

LONG = json.dumps({"text": "a" * HEAVY_BYTES}).encode()
SHORT = b'{"text":"a"}'


async def _asked(app: Any, body: bytes) -> list[Any]:
    headers = [(b"content-type", b"application/json"), (b"idempotency-key", b"k")]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


async def _ok(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


@pytest.mark.fault("long-bodies-are-read-on-the-loop")
@pytest.mark.parametrize(("body", "on_the_loop"), [(SHORT, True), (LONG, False)], ids=["short", "long"])
def test_the_middleware_reads_a_long_body_in_a_thread(
    body: bytes, on_the_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A short one is read at once: a thread would cost more than the reading.
    """
    threads: list[int] = []
    digest = RequestFingerprint.digest

    def watched(self: RequestFingerprint) -> bytes:
        threads.append(threading.get_ident())
        return digest(self)

    monkeypatch.setattr(RequestFingerprint, "digest", watched)

    async def main() -> int:
        async with AsyncGate("memory://", scope="test:a") as gate:
            sent = await _asked(IdempotencyMiddleware(_ok, gate=gate, scope="test:a"), body)
        return int(sent[0]["status"])

    status = asyncio.run(main())

    assert status == 200
    assert [one == threading.get_ident() for one in threads] == [on_the_loop]


class Said(msgspec.Struct):
    """What the endpoint takes."""

    text: str


@pytest.mark.fault("the-service-reads-long-bodies-on-the-loop")
@pytest.mark.parametrize(("body", "on_the_loop"), [(SHORT, True), (LONG, False)], ids=["short", "long"])
def test_the_service_reads_a_long_body_in_a_thread(
    body: bytes, on_the_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The same for the service's own endpoints.
    """
    threads: list[int] = []
    parse = bodies.parse_json

    def watched(*arguments: Any, **options: Any) -> object:
        threads.append(threading.get_ident())
        return parse(*arguments, **options)

    monkeypatch.setattr(bodies, "parse_json", watched)

    async def run(call: Any) -> EndpointResponse:
        return EndpointResponse({})

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    endpoint = ApiEndpoint("POST", "/", run, "Take it.", body=Said)
    accounts = Accounts(REAL.monotonic)
    authenticator = Authenticator(None, None, accounts=accounts)  # type: ignore[arg-type]
    handler = _Handler([endpoint], authenticator, 1_000_000, endpoints.PROFILES["default"])
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    request = Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)
    with ExitStack() as held:
        taken, size = asyncio.run(handler._body(request, endpoint, accounts.of_tenant("acme"), held))

    assert (taken.text, size) == (json.loads(body)["text"], len(body))
    assert [one == threading.get_ident() for one in threads] == [on_the_loop]
