"""What should not come, and does: nothing lost, nothing doubled, no 500 without a reason in the log."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from asgi_support import Answer, Asked, World, answer_of, request

from onceward import ConfigurationError, Gate
from onceward.errors import ScopeMissing
from onceward.http import Route
from onceward.http.asgi import IdempotencyMiddleware


class TestPassingThrough:
    """What is no keyed request is not touched: the application is handed the very same objects."""

    @pytest.mark.parametrize(
        "scope",
        [
            {"type": "lifespan"},
            {"type": "websocket", "path": "/charges", "headers": [(b"idempotency-key", b"k")]},
            {"type": "http", "method": "GET", "path": "/charges", "headers": [(b"idempotency-key", b"k")]},
            {"type": "http", "method": "HEAD", "path": "/charges", "headers": [(b"idempotency-key", b"k")]},
            {"type": "http", "method": "OPTIONS", "path": "/charges", "headers": [(b"idempotency-key", b"k")]},
            {"type": "http", "method": "POST", "path": "/charges", "headers": []},
            {"type": "http", "method": "POST", "path": "/internal/x", "headers": [(b"idempotency-key", b"k")]},
            {"type": "http", "method": "GET", "path": "/.well-known/other", "headers": []},
            {"type": "http", "method": "GET", "path": "/.well-known/idempotency-other", "headers": []},
            {"type": "http", "method": "GET", "path": "/.well-known/idempotency/no_such_code", "headers": []},
        ],
        ids=lambda scope: f"{scope['type']} {scope.get('method', '')} {scope.get('path', '')}",
    )
    def test_is_the_same(self, scope: Any, world: World) -> None:
        """
        Scope, receive and send, by identity; and nothing was written into the scope.
        """
        given: list[Any] = []

        async def app(*arguments: Any) -> None:
            given.extend(arguments)

        receive, send, before = object(), object(), dict(scope)

        async def go() -> None:
            gated = IdempotencyMiddleware(
                app, gate=world.gate, scope="test:x", routes=[Route("/internal/{rest:path}", skip=True)]
            )
            await gated(scope, receive, send)  # type: ignore[arg-type]

        world.stage.run(go())

        assert [one is other for one, other in zip(given, (scope, receive, send), strict=True)] == [True, True, True]
        assert before == scope


def test_what_routers_write_into_the_scope_is_seen_outside(world: World) -> None:
    """
    A middleware outside reads the route after the call, to name a span or a metric; also of a keyed request.
    """
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route as Path_

    async def endpoint(request: Request) -> Response:
        request.state.user = "bob"
        return Response("ok")

    seen: list[Any] = []
    gated = IdempotencyMiddleware(
        Starlette(routes=[Path_("/charges/{id}", endpoint, methods=["POST"])]), gate=world.gate, scope="test:x"
    )

    async def outside(scope: Any, receive: Any, send: Any) -> None:
        state = Request(scope).state
        await gated(scope, receive, send)
        seen.append((scope.get("path_params"), getattr(state, "user", None)))
        world.entered.set()

    world.stage.app = outside
    world.post("/charges/7")
    world.held()

    assert seen == [({"id": "7"}, "bob")]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


class TestUploads:
    """Bodies that are too long, too slow, or never come."""

    def test_an_endless_body_is_cut_at_the_limit(self, world: World) -> None:
        """
        Ten gigabytes in chunks, without a length: refused with 413 at the limit, the connection closed, memory flat.
        """
        limit, chunk = 8 * 2**20, b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        world.serve(body_bytes_max=limit)
        head = (
            b"POST /charges HTTP/1.1\r\nHost: shop\r\nContent-Type: application/octet-stream\r\n"
            b"Idempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        before, sent = resident(), 0
        connection = world.raw(head)
        try:
            while sent < 10 * 2**30:
                connection.sendall(chunk)
                sent += 65_536
        except ConnectionError:
            pass
        answer = answer_of(connection)
        grown = resident() - before
        print(f"refused after {sent >> 20} MiB; resident grew by {grown >> 20} MiB")

        assert limit < sent < limit + 32 * 2**20
        assert answer == b"" or (b"413" in answer[:12] and b"body_too_large" in answer)
        assert grown < 32 * 2**20
        assert (world.count, world.records()) == (0, [])

    def test_a_length_beyond_the_limit_is_refused_at_once(self, world: World) -> None:
        """
        Before a byte of it; also one that no number can hold.
        """
        world.serve(body_bytes_max=1_000)
        answer = answer_of(world.raw(request(body=b"", length=10 * 2**30)))

        assert answer.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in answer
        assert b'"code": "body_too_large"' in answer
        assert world.count == 0

    def test_a_long_body_is_handed_on_intact(self, world: World) -> None:
        """
        It waited in a file, and arrives byte for byte.
        """
        body, got = bytes(range(256)) * 20_000, []

        async def handler(asked: Asked) -> Answer:
            got.append(asked.body)
            return Answer()

        world.handler = handler
        world.serve()
        headers = {"idempotency-key": "k", "content-type": "application/octet-stream"}

        assert [world.client.post("/f", content=body, headers=headers).status_code for _ in range(2)] == [201, 201]
        assert [body] == got

    def test_a_slow_upload_is_given_up(self, world: World) -> None:
        """
        408, retry with the same key, nothing claimed; the same request in full runs afterwards.
        """
        world.serve(upload_seconds_max=0.2)
        connection = world.raw(request(body=b'{"amount":', length=12))
        answer = answer_of(connection)

        assert answer.startswith(b"HTTP/1.1 408")
        assert b'"code": "upload_timeout"' in answer
        assert b'"retry": "same-key"' in answer
        assert (world.count, world.records()) == (0, [])
        world.serve()
        assert world.post().status_code == 201

    @pytest.mark.parametrize("close", ["half", "whole", "reset"])
    def test_a_client_that_is_gone_before_its_body_runs_nothing(self, close: str, world: World) -> None:
        """
        Half closed, closed, or reset in the middle of its body.
        """
        world.serve()
        connection = world.raw(request(body=b'{"amount":', length=12))
        time.sleep(0.05)
        if close == "half":
            connection.shutdown(socket.SHUT_WR)
            answer_of(connection)
        elif close == "whole":
            connection.close()
        else:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
        time.sleep(0.1)

        assert (world.count, world.records()) == (0, [])
        assert world.post().status_code == 201

    def test_a_request_that_is_whole_runs_even_if_its_client_is_half_gone(self, world: World) -> None:
        """
        It was asked for; the retry learns its answer.
        """
        world.serve()
        connection = world.raw(request(body=b'{"amount":1}'))
        connection.shutdown(socket.SHUT_WR)
        answer_of(connection)

        assert world.settles("settled")
        assert (world.post().status_code, world.count) == (201, 1)

    @pytest.mark.parametrize("length", ["0", "5", "11", "13", "-1", "abc", "12, 12", "9" * 100])
    def test_a_length_that_lies_doubles_nothing(self, length: str, world: World) -> None:
        """
        44: too small, too large, or no number: the server refuses it, or less is read; at most one thing happens.
        """
        world.serve(upload_seconds_max=0.2)
        head = (
            f"POST /charges HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\n"
            f"Connection: close\r\nContent-Length: {length}\r\n\r\n"
        )
        answer = answer_of(world.raw(head.encode() + b'{"amount":1}'))

        assert answer[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 408", b"HTTP/1.1 413", b"HTTP/1.1 201")
        assert world.count <= 1


class TestKeysOnTheWire:
    """What a header may do."""

    @pytest.mark.parametrize(
        "lines",
        [
            ["Idempotency-Key: a", "Idempotency-Key: a"],
            ["Idempotency-Key: a", "Idempotency-Key: b"],
            ["Idempotency-Key: a, b"],
            ["Idempotency-Key:"],
            ["Idempotency-Key:    "],
            ['Idempotency-Key: "a'],
            ["Idempotency-Key: caf\xe9"],
            ["Idempotency-Key: a b"],
            ["Idempotency-Key: a\tb"],
            [f"Idempotency-Key: {'k' * 256}"],
            [f"Idempotency-Key: {'k' * 20_000}"],
        ],
        ids=lambda lines: lines[0][:30],
    )
    def test_what_is_no_key_is_refused(self, lines: list[str], world: World) -> None:
        """
        With 400 and nothing run; the key is not in the answer.
        """
        world.serve()
        head = ["POST /charges HTTP/1.1", "Host: shop", "Content-Length: 2", "Connection: close", *lines, "", ""]
        answer = answer_of(world.raw("\r\n".join(head).encode("latin-1") + b"{}"))

        assert answer.startswith(b"HTTP/1.1 400")
        assert b'"code": "key_invalid"' in answer
        assert b"kkkk" not in answer
        assert (world.count, world.records()) == (0, [])

    @pytest.mark.parametrize("value", ["a\0b", "a\rb", "a\r\n b"], ids=repr)
    def test_control_characters_do_not_get_in(self, value: str, world: World) -> None:
        """
        12, 13: the server or we refuse them; nothing runs.
        """
        world.serve()
        answer = answer_of(world.raw(request(key=value, headers=["Connection: close"])))

        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
        assert world.count == 0

    def test_bare_and_quoted_are_the_same_key(self, world: World) -> None:
        """
        One runs, the other replays.
        """
        world.serve()

        assert [world.post(key=key).content for key in ("a-1", '"a-1"')] == [b'{"charge": 1}'] * 2

    def test_keys_that_differ_in_case_are_two(self, world: World) -> None:
        """
        19.
        """
        world.serve()

        assert [world.post(key=key).content for key in ("abc", "ABC")] == [b'{"charge": 1}', b'{"charge": 2}']

    def test_normal_forms_are_refused_alike(self, world: World) -> None:
        """
        21: neither is a key, so that neither can be taken for the other.
        """
        world.serve()
        answers = [
            answer_of(world.raw(request(key=key.encode().decode("latin-1"), headers=["Connection: close"])))
            for key in ("caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}")
        ]

        assert [one[:12] for one in answers] == [b"HTTP/1.1 400"] * 2
        assert world.count == 0

    def test_a_bomb_of_headers_harms_nobody(self, world: World) -> None:
        """
        Thousands of them, or one of a megabyte: refused by the server or taken once; afterwards all is as usual.
        """
        world.serve()
        many = [f"X-{number}: {'y' * 20}" for number in range(2_000)]
        answers = [
            answer_of(world.raw(request(headers=[*many, "Connection: close"], body=b'{"amount":1}'))),
            answer_of(world.raw(request(headers=["X-Long: " + "y" * 1_000_000, "Connection: close"], key="l"))),
        ]

        assert all(one == b"" or one[9:10] in b"24" for one in answers), [one[:20] for one in answers]
        assert world.post(key="afterwards").status_code == 201
        assert world.count <= 3


class TestPathsAndBodies:
    """Spellings that try to be two things at once."""

    @pytest.mark.parametrize("path", ["/charges/%31", "/charges/1?", "/charges/1?a=", "//charges/1", "/charges/1/"])
    def test_another_spelling_of_the_path_is_another_request(self, path: str, world: World) -> None:
        """
        48: under the same key it is refused, whatever the router makes of it; it never runs beside the first.
        """
        world.serve()
        send = [answer_of(world.raw(request(one, headers=["Connection: close"]))) for one in ("/charges/1", path)]
        if path == "/charges/1?":  # Nothing after the question mark is no query, as in the standard.
            assert b"idempotency-replayed" in send[1]
        else:
            assert [one[:12] for one in send] == [b"HTTP/1.1 201", b"HTTP/1.1 422"]
        assert world.count == 1

    def test_a_route_is_matched_by_the_path_that_the_router_sees(self, world: World) -> None:
        """
        An encoded letter does not lead past a rule.
        """
        world.serve(routes=[Route("/charges", require_key=True)])
        line = b"POST /%63harges HTTP/1.1\r\nHost: shop\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"

        assert b'"code": "key_missing"' in answer_of(world.raw(line))

    @pytest.mark.parametrize("path", ["/a%00b", "/%ff%fe", "/%0d%0aSet-Cookie:x", "/" + "x" * 5_000, "/%E2%80%AE"])
    def test_strange_paths_are_stored_under_a_harmless_name(self, path: str, world: World) -> None:
        """
        The name of an operation is visible ASCII, and not endless.
        """
        world.serve()
        answer = answer_of(world.raw(request(path, headers=["Connection: close"])))

        assert answer.startswith(b"HTTP/1.1 201")
        [record] = world.records()
        assert record.operation.isascii()
        assert record.operation.isprintable()
        assert len(record.operation) <= 200

    @pytest.mark.parametrize(
        "body", [b'{"a":1,"a":2}', b'{"a":"\\ud800"}', b'{"a":NaN}', b"[" * 5_000, b"{", b"\xff"], ids=repr
    )
    def test_json_that_can_be_read_in_two_ways_runs_nothing(self, body: bytes, world: World) -> None:
        """
        400, and what is wrong with it.
        """
        world.serve()
        answer = world.post(body=body)

        assert (
            answer.status_code,
            answer.json()["code"],
            answer.json()["retry"],
        ) == (400, "request_invalid", "never")
        assert (world.count, world.records()) == (0, [])

    def test_a_compressed_body_goes_by_its_bytes(self, world: World) -> None:
        """
        The handler gets it as it was sent; the same bytes are the same request, and others are not.
        """
        got: list[bytes] = []

        async def handler(asked: Asked) -> Answer:
            got.append(gzip.decompress(asked.body))
            return Answer()

        world.handler = handler
        world.serve()
        packed = [("content-encoding", "gzip")]
        bodies = [gzip.compress(text, mtime=0) for text in (b'{"amount":1}', b'{"amount":1}', b'{"amount":2}')]

        assert [world.post(body=body, headers=packed).status_code for body in bodies] == [201, 201, 422]
        assert got == [b'{"amount":1}']

    def test_a_form_with_files_is_the_same_under_another_boundary(self, world: World) -> None:
        """
        As every client sends it again.
        """
        world.serve("starlette")
        headers = {"idempotency-key": "k"}

        def send(content: bytes) -> Any:
            return world.client.post("/f", files={"file": ("a.bin", content)}, data={"amount": "1"}, headers=headers)

        first, again, other = send(b"\x00\xff" * 1_000), send(b"\x00\xff" * 1_000), send(b"\x00")

        assert first.request.headers["content-type"] != again.request.headers["content-type"]
        assert [one.status_code for one in (first, again, other)] == [201, 201, 422]
        assert world.count == 1


class TestDeclaring:
    """What is declared wrongly is refused before the first request."""

    async def app(self, *_: Any) -> None:
        pytest.fail("asked")

    def test_without_a_scope(self, world: World) -> None:
        """
        With what to write.
        """
        with pytest.raises(ScopeMissing, match="the middleware needs scope="):
            IdempotencyMiddleware(self.app, gate=world.gate)

    def test_with_a_gate_that_blocks(self) -> None:
        """
        It would stop the event loop.
        """
        with Gate("memory://", scope="test:x") as gate, pytest.raises(ConfigurationError, match="AsyncGate"):
            IdempotencyMiddleware(self.app, gate=gate, scope="test:x")  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "options",
        [
            {"profile": "paypal"},
            {"no_such": 1},
            {"retain": -1},
            {"well_known": "nowhere"},
            {"well_known": "/a\r\nb"},
            {"lease": "x"},
        ],
    )
    def test_with_something_that_cannot_work(self, options: dict[str, Any], world: World) -> None:
        """
        A profile, a field, a duration, an address.
        """
        with pytest.raises(ConfigurationError):
            IdempotencyMiddleware(self.app, gate=world.gate, scope="test:x", **options)


def test_a_server_without_raw_paths_is_served_too(world: World) -> None:
    """
    The raw path is optional in ASGI: then it is spelt from the path, the same for every attempt.
    """
    sent: list[Any] = []

    async def go() -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            sent.append(message)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            world.count += 1
            await send({"type": "http.response.start", "status": 204})
            await send({"type": "http.response.body"})

        gated = IdempotencyMiddleware(app, gate=world.gate, scope="test:x")
        for path in ("/caf\xe9 \ud800", "/caf\xe9 \ud800", "/caf\xe9"):
            scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"Idempotency-Key", b"k")]}
            await gated(scope, receive, send)

    world.stage.run(go())

    assert [one["status"] for one in sent if "status" in one] == [204, 204, 422]
    assert world.count == 1


def test_refusals_do_not_keep_the_connection_of_an_http_2_client(world: World) -> None:
    """
    `Connection` is for HTTP/1 only; in HTTP/2 it would be an error.
    """
    sent: list[Any] = []

    async def go() -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"x" * 100}

        async def send(message: Any) -> None:
            sent.append(message)

        gated = IdempotencyMiddleware(None, gate=world.gate, scope="test:x", body_bytes_max=10)  # type: ignore[arg-type]
        for version in ("1.1", "2", "3"):
            scope = {
                "type": "http",
                "method": "POST",
                "path": "/",
                "http_version": version,
                "headers": [(b"idempotency-key", b"k")],
            }
            await gated(scope, receive, send)

    world.stage.run(go())

    heads = [dict(one["headers"]) for one in sent if "status" in one]
    assert [head.get(b"connection") for head in heads] == [b"close", None, None]
    assert {one["status"] for one in sent if "status" in one} == {413}
    assert json.loads(sent[-1]["body"])["code"] == "body_too_large"
