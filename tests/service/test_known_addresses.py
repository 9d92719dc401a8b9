"""Addresses that are known lead where Starlette's routes do; and a response in one piece is the same response."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from onceward.service.network.http_protocol import send_whole
from onceward.service.web.endpoints import EndpointHandler, strict_application
from onceward.service.web.known_addresses import ADDRESSES_MAX, CHARACTERS_MAX, KnownAddresses
from onceward.service.web.whole_response import PLACE, status_sent, try_to_send


class _Shown(EndpointHandler):
    """Says what it was called with."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def serve(self, request: Request) -> Response:
        if request.scope["path"].endswith("/broken"):
            raise ZeroDivisionError
        return PlainTextResponse(f"{self._name} {request.method} {sorted(request.path_params.items())}")


def _page(request: Request) -> Response:
    return PlainTextResponse("a page")


@pytest.fixture
def routed() -> Starlette:
    return strict_application(
        [
            Route("/db/{name}/query", _Shown("query"), methods=["POST"]),
            Route("/db/{name}", _Shown("database"), methods=["PUT", "GET"]),
            Route("/db/{name}/{part}", _Shown("part"), methods=["GET"]),
            Route("/", _page),
        ]
    )


class Heard:
    """What an application sends."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def send(self, message: Any) -> None:
        self.messages.append(message)

    @property
    def answer(self) -> tuple[int, bytes]:
        return self.messages[0]["status"], b"".join(one.get("body", b"") for one in self.messages[1:])


async def _receive() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


def _scope(method: str, path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "root_path": "",
    }


def ask(app: Any, method: str, path: str) -> tuple[int, bytes]:
    heard = Heard()
    asyncio.run(app(_scope(method, path), _receive, heard.send))
    return heard.answer


def _asked() -> Iterator[tuple[str, str]]:
    for path in ("/db/a/query", "/db/a", "/db/b", "/db/a/tables", "/db/a/", "/", "/nowhere", "/db/a%2fb/query"):
        for method in ("POST", "GET", "PUT", "HEAD", "DELETE", "OPTIONS"):
            yield method, path


@pytest.mark.fault("an-address-is-known-whatever-its-method")
def test_an_address_leads_where_the_routes_do(routed: Starlette) -> None:
    """
    Every method of every address, for the first time and when it is known.
    """
    known = KnownAddresses(routed)
    for _ in range(2):
        for method, path in _asked():
            assert ask(known, method, path) == ask(routed, method, path), (method, path)


@pytest.mark.fault("addresses-are-remembered-without-end")
def test_what_is_remembered_has_an_end(routed: Starlette) -> None:
    """
    However many addresses somebody makes up, and however long they are.
    """
    known = KnownAddresses(routed)
    for number in range(ADDRESSES_MAX + 10):
        ask(known, "GET", f"/db/{number}")
    size = len(known._found)
    answer = ask(known, "GET", "/db/" + "x" * CHARACTERS_MAX)

    assert 0 < size <= ADDRESSES_MAX
    assert answer[0] == 200
    assert all(len(path) < CHARACTERS_MAX for _, path, _ in known._found)


def test_an_error_that_nobody_expected_is_answered_and_passed_on(routed: Starlette) -> None:
    """
    As Starlette does: the caller is told nothing of it, and the server logs it.
    """
    for app in (routed, KnownAddresses(routed)):
        heard = Heard()
        with pytest.raises(ZeroDivisionError):
            asyncio.run(app(_scope("GET", "/db/broken"), _receive, heard.send))

        assert heard.answer[0] == 500
        assert b"ZeroDivision" not in heard.answer[1]


class Cycle(SimpleNamespace):
    """What `send_whole` needs of uvicorn's cycle."""

    def __init__(self, **changes: Any) -> None:
        written: list[bytes] = []
        super().__init__(
            response_started=False,
            response_complete=False,
            disconnected=False,
            keep_alive=True,
            waiting_for_100_continue=True,
            default_headers=[(b"date", b"today")],
            scope={"method": "POST"},
            flow=SimpleNamespace(write_paused=False),
            transport=SimpleNamespace(writelines=lambda pieces: written.append(b"".join(pieces))),
            written=written,
            message_event=asyncio.Event(),
            on_response=lambda: written.append(b"<end>"),
        )
        vars(self).update(changes)


JSON = (b"content-type", b"application/json")


def test_a_whole_response_is_one_write() -> None:
    """
    Status line, headers, body; the connection is told that it was sent, and so is whoever logs.
    """
    cycle = Cycle()
    scope = {PLACE: lambda *given: send_whole(cycle, *given)}
    sent = try_to_send(scope, 201, [JSON, (b"content-length", b"2")], b"{}")

    assert sent
    assert cycle.written == [
        b"HTTP/1.1 201 Created\r\ndate: today\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
        b"<end>",
    ]
    assert (cycle.response_started, cycle.response_complete, status_sent(scope)) == (True, True, 201)


@pytest.mark.fault("a-header-ends-the-head")
def test_what_is_not_usual_is_left_to_the_server() -> None:
    """
    A slow client, a connection that ends, a HEAD, a response that has begun; and a header with a line break in it,
    which the server refuses.
    """
    for changes in (
        {"flow": SimpleNamespace(write_paused=True)},
        {"keep_alive": False},
        {"scope": {"method": "HEAD"}},
        {"response_started": True},
        {"disconnected": True},
    ):
        cycle = Cycle(**changes)

        assert not send_whole(cycle, 200, [JSON], b"{}")
        assert cycle.written == []
    for value in (b"1\r\nset-cookie: a", b"1\nset-cookie: a", b"1\rset-cookie: a"):
        assert not send_whole(Cycle(), 200, [(b"onceward-usage", value)], b"{}")
    assert not try_to_send({}, 200, [JSON], b"{}")


@pytest.mark.fault("another-uvicorn-gets-no-response")
@pytest.mark.parametrize("gone", ["flow", "default_headers", "transport", "message_event", "on_response"])
def test_another_uvicorn_sends_it_by_itself(gone: str) -> None:
    """
    What we know of its cycle is not promised: where something is missing, nothing was written, and ASGI has the turn.
    """
    cycle = Cycle()
    delattr(cycle, gone)
    try:
        sent: bool | None = send_whole(cycle, 200, [JSON], b"{}")
    except AttributeError:
        sent = None

    assert (sent, cycle.response_started, cycle.written) == (False, False, [])
    assert not send_whole(Cycle(), 299, [JSON], b"{}")
