"""What a keyed request costs, counted: calls of ours, and what is left for the garbage collector. No clock is read."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest

import onceward.http
from onceward import AsyncGate, Gate
from onceward._core.errors import ResultInvalid
from onceward._core.reply import HEAD_BYTES_REMEMBERED, Reply, pack_reply, unpack_reply
from onceward.http import asgi, wsgi
from onceward.http.server.responses import headers_and_body, raw_headers_and_body

HTTP = onceward.http.__path__[0]
REQUESTS = 20
CALLS_OF_A_REPLAY = 26
CALLS_OF_A_FRESH_REQUEST = 47
"""Calls of Python functions in the HTTP layer, each time that one is entered or resumed: 23 and 43 today."""
BODY = b'{"amount": 12, "currency": "EUR"}'
HEADERS = [
    (b"host", b"example.org"),
    (b"content-type", b"application/json"),
    (b"content-length", str(len(BODY)).encode()),
]


async def _charge(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    head = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 201, "headers": head})
    await send({"type": "http.response.body", "body": b"{}"})


async def _asgi_request(app: Any, key: str) -> int:
    statuses: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: Any) -> None:
        if "status" in message:
            statuses.append(message["status"])

    headers = [*HEADERS, (b"idempotency-key", key.encode())]
    state: dict[str, Any] = {}
    scope = {"type": "http", "method": "POST", "path": "/c", "query_string": b"", "headers": headers, "state": state}
    await app(scope, receive, send)
    return statuses[0]


def _over_asgi(around: Callable[[Callable[[], None]], None], keys: list[str]) -> None:
    """Serve these keys, with `around` around all of them but the first."""

    async def main() -> None:
        gate = AsyncGate("memory://", scope="live")
        app = asgi.IdempotencyMiddleware(_charge, gate=gate, scope=lambda request: "live:acme")
        assert await _asgi_request(app, keys[0]) == 201

        def rest() -> None:
            for key in keys[1:]:
                with pytest.raises(StopIteration) as ended:  # In memory nothing waits, so one step is all.
                    _asgi_request(app, key).send(None)
                assert ended.value.value == 201

        around(rest)

    asyncio.run(main())


def _over_wsgi(around: Callable[[Callable[[], None]], None], keys: list[str]) -> None:
    def charge(environ: Any, start_response: Any) -> list[bytes]:
        start_response("201 Created", [("Content-Type", "application/json"), ("Content-Length", "2")])
        return [b"{}"]

    def request(key: str) -> None:
        statuses: list[str] = []
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/c",
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(BODY)),
            "HTTP_IDEMPOTENCY_KEY": key,
            "wsgi.input": BytesIO(BODY),
        }

        def start_response(status: str, headers: Any) -> Any:
            statuses.append(status)

        assert list(app(environ, start_response)) == [b"{}"]
        assert statuses == ["201 Created"]

    app = wsgi.IdempotencyMiddleware(charge, gate=Gate("memory://", scope="live"), scope=lambda request: "live:acme")
    request(keys[0])

    def rest() -> None:
        for key in keys[1:]:
            request(key)

    around(rest)


FRESH = [f"k-{number}" for number in range(REQUESTS + 1)]
REPLAYED = ["k"] * (REQUESTS + 1)


class TestGarbage:
    """What a request was served with goes when it goes."""

    @pytest.mark.fault("a-request-waits-for-the-garbage-collector")
    @pytest.mark.parametrize("keys", [FRESH, REPLAYED], ids=["fresh", "replayed"])
    @pytest.mark.parametrize("serve", [_over_asgi, _over_wsgi])
    def test_a_request_leaves_nothing_to_the_garbage_collector(self, serve: Any, keys: list[str]) -> None:
        """
        Nothing of it refers to itself in a circle: neither its body nor its response is held until somebody looks.
        """
        left: Counter[type] = Counter()

        def watched(requests: Callable[[], None]) -> None:
            gc.collect()
            gc.disable()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                requests()
                gc.collect()
                left.update(type(one) for one in gc.garbage if type(one).__module__.startswith("onceward"))
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.enable()

        serve(watched, keys)

        # What is left of each request; what other tests have left behind may come to light here, too.
        assert [kind for kind, number in left.items() if number >= REQUESTS] == []


class TestCalls:
    """A request passes through few functions."""

    @pytest.mark.parametrize(
        ("keys", "most"),
        [(REPLAYED, CALLS_OF_A_REPLAY), (FRESH, CALLS_OF_A_FRESH_REQUEST)],
        ids=["replayed", "fresh"],
    )
    def test_the_number_of_calls_has_a_limit(self, keys: list[str], most: int) -> None:
        """
        Counted in the HTTP layer alone, whatever the gate and its store do.
        """
        calls = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event == "call" and frame.f_code.co_filename.startswith(HTTP)

        def counted(requests: Callable[[], None]) -> None:
            before = sys.getprofile()
            sys.setprofile(count)
            try:
                requests()
            finally:
                sys.setprofile(before)

        _over_asgi(counted, keys)

        assert 0 < calls / REQUESTS <= most


class TestKnownHeads:
    """The head of a response is judged and written once; what is wrong stays wrong, and bodies are their own."""

    @pytest.mark.fault("a-head-is-known-by-a-status-that-is-none")
    def test_a_known_head_vouches_for_no_other(self) -> None:
        """
        A status that only equals one, a body that is no bytes and a header with a line end are refused, also behind an
        equal head that was sound.
        """
        headers: Any = (("content-type", "text/plain"),)
        pack_reply(Reply(200, headers, b"x"))
        broken: list[Any] = [
            Reply(200.0, headers, b"x"),  # type: ignore[arg-type]
            Reply(200, headers, "x"),  # type: ignore[arg-type]
            Reply(200, (("content-type", "text/plain\r\na: b"),), b"x"),
            Reply(99, headers, b"x"),
            Reply(200, ("content-type",), b"x"),  # type: ignore[arg-type]
        ]

        for reply in broken * 2:
            with pytest.raises(ResultInvalid):
                pack_reply(reply)

    def test_headers_in_lists_are_headers(self) -> None:
        """
        They are stored as ever, and are not remembered.
        """
        given: Any = [["content-type", "text/plain"]]

        assert pack_reply(Reply(200, given, b"x")) == pack_reply(Reply(200, (("content-type", "text/plain"),), b"x"))

    def test_both_forms_of_a_head_say_the_same(self) -> None:
        """
        As texts and as bytes, the first time and later, long or short, with and without a body; secrets never.
        """
        long = ("link", "x" * HEAD_BYTES_REMEMBERED)
        for headers in ((("etag", "é"), ("set-cookie", "a=b"), ("a", "b")), (("a", "b"), long)):
            for status, body in ((201, b""), (201, b"12345"), (204, b""), (201, b"1")):
                reply = unpack_reply(pack_reply(Reply(status, headers, body)))
                texts, sent = headers_and_body(reply)

                assert raw_headers_and_body(reply) == (
                    [(name.encode("latin-1"), value.encode("latin-1")) for name, value in texts],
                    sent,
                )
                assert "set-cookie" not in dict(texts)
