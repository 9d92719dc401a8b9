"""Long bodies are read beside the event loop, so that one caller's megabyte is not everybody's pause."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from onceward import AsyncGate
from onceward.http.asgi import IdempotencyMiddleware
from onceward.http.server.request_fingerprint import RequestFingerprint
from onceward.http.server.thread_offload import HEAVY_BYTES, offload
from onceward.runtime.environment import REAL
from onceward.service.access import Accounts
from onceward.service.web import bodies, endpoints
from onceward.service.web.calls import Authenticator
from onceward.service.web.endpoints import ApiEndpoint, EndpointHandler, EndpointResponse

LONG = json.dumps({"text": "a" * HEAVY_BYTES}).encode()
SHORT = b'{"text":"a"}'


async def _asked(app: Any, *pieces: bytes, kind: bytes = b"application/json") -> list[Any]:
    headers = [(b"content-type", kind), (b"idempotency-key", b"k")]
    left = list(pieces)
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

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

    def watch(name: str) -> None:
        digest = getattr(RequestFingerprint, name)

        def watched(self: RequestFingerprint, *body: bytes) -> bytes:
            threads.append(threading.get_ident())
            return bytes(digest(self, *body))

        monkeypatch.setattr(RequestFingerprint, name, watched)

    watch("digest")
    watch("digest_whole")

    async def main() -> int:
        async with AsyncGate("memory://", scope="test:a") as gate:
            sent = await _asked(IdempotencyMiddleware(_ok, gate=gate, scope="test:a"), body)
        return int(sent[0]["status"])

    status = asyncio.run(main())

    assert status == 200
    assert [one == threading.get_ident() for one in threads] == [on_the_loop]


@pytest.mark.fault("long-pieces-are-hashed-on-the-loop")
@pytest.mark.parametrize("pieces", [1, 2])
def test_the_middleware_hashes_a_long_piece_in_a_thread(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A body that is compared by its bytes is hashed as it comes, and a server may hand over megabytes at once.
    """
    threads: list[bool] = []
    feed, loop_thread = RequestFingerprint.feed, threading.get_ident()

    def watched(self: RequestFingerprint, piece: bytes) -> None:
        threads.append(threading.get_ident() == loop_thread)
        feed(self, piece)

    monkeypatch.setattr(RequestFingerprint, "feed", watched)
    parts = [b"x" * (HEAVY_BYTES + 1)] * pieces

    async def main() -> int:
        async with AsyncGate("memory://", scope="test:a") as gate:
            sent = await _asked(IdempotencyMiddleware(_ok, gate=gate, scope="test:a"), *parts, kind=b"text/plain")
        return int(sent[0]["status"])

    assert asyncio.run(main()) == 200
    assert threads == [False] * pieces


@pytest.mark.fault("whoever-is-cancelled-leaves-its-thread-behind")
def test_who_is_cancelled_meanwhile_goes_when_the_thread_is_done() -> None:
    """
    The buffer that it works on is closed by whoever is cancelled, and its temporary file with it.
    """
    begun, may_end = threading.Event(), threading.Event()
    order: list[str] = []

    def work() -> None:
        begun.set()
        may_end.wait(60)
        order.append("the work")

    async def wait_for_it() -> None:
        try:
            await offload(work)
        finally:
            order.append("who waited")

    async def main() -> bool:
        waiting = asyncio.create_task(wait_for_it())
        await asyncio.to_thread(begun.wait, 60)
        for _ in range(2):
            waiting.cancel()
            await asyncio.wait({waiting}, timeout=0.01)
        may_end.set()
        await asyncio.wait({waiting})
        return waiting.cancelled()

    assert asyncio.run(main())
    assert order == ["the work", "who waited"]


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
    handler = EndpointHandler([endpoint], authenticator, 1_000_000, endpoints.PROFILES["default"])
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    request = Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)
    account = accounts.of_tenant("acme")

    async def main() -> Any:
        with bodies.BodyIntake(account, most=1_000_000) as intake:
            return await handler._parsed(account, await intake.read(request), Said)

    assert asyncio.run(main()).text == json.loads(body)["text"]
    assert [one == threading.get_ident() for one in threads] == [on_the_loop]
