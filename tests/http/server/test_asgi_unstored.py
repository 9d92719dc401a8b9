"""Never run again because it could not be stored: streams, clients that leave, handlers that are cut off."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from asgi_support import Answer, Asked, Stage, World, answer_of, request

from onceward.http.asgi import IdempotencyMiddleware
from onceward.stores.memory import AsyncMemoryStore
from onceward.testing.clock import StillEnvironment

EVENTS = (("content-type", "text/event-stream"),)


class Source:
    """A stream whose pieces the test lets out one by one."""

    def __init__(self, world: World, pieces: int = 3, size: int = 6) -> None:
        self._world, self._pieces, self._size = world, pieces, size
        self._let = asyncio.Semaphore(0)
        self.given = 0
        self.ended = threading.Event()

    def let(self, pieces: int = 1) -> None:
        loop = self._world.stage.loop
        assert loop is not None
        for _ in range(pieces):
            loop.call_soon_threadsafe(self._let.release)

    async def handler(self, _: Asked) -> Answer:
        self._world.count += 1
        return Answer(200, EVENTS, self._give())

    async def _give(self) -> AsyncIterator[bytes]:
        try:
            for number in range(self._pieces):
                await self._let.acquire()
                self.given += 1
                yield str(number).encode().rjust(self._size, b".")
        finally:
            self.ended.set()


@pytest.fixture
def source(world: World) -> Source:
    source = Source(world)
    world.handler = source.handler
    return source


@pytest.mark.parametrize("framework", ["plain", "starlette", "litestar"])
def test_a_stream_passes_piece_by_piece_before_its_end(framework: str, world: World, source: Source) -> None:
    """
    Server-sent events reach the client as they are sent, although they are recorded; the retry gets all of them.
    """
    world.serve(framework)
    with world.client.stream("POST", "/events", headers={"idempotency-key": "k"}) as answer:
        pieces = answer.iter_raw()
        for number in range(2):
            source.let()
            assert str(number).encode().rjust(6, b".") == next(pieces)
        assert not source.ended.is_set()
        source.let()
        rest = b"".join(pieces)

    assert rest == b".....2"
    assert world.state() == "settled"
    again = world.client.post("/events", headers={"idempotency-key": "k"})
    assert (again.content, world.count) == (b".....0.....1.....2", 1)


def test_a_client_that_has_the_end_has_a_stored_answer(world: World, source: Source) -> None:
    """
    The end of a stream leaves after it is stored: whoever has seen it can rely on the record.
    """
    world.serve()
    source.let(3)

    assert world.post().content == b".....0.....1.....2"
    assert world.state() == "settled"


@pytest.mark.parametrize("framework", ["plain", "starlette"])
@pytest.mark.parametrize("length", [True, False])
def test_over_the_limit_it_is_given_once_and_says_so(framework: str, length: bool, world: World) -> None:
    """
    With or without a length: the client gets all of it; the retry is told that it ran, and it does not run again.
    """
    body = b"x" * 3_000

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 500):
            yield body[at : at + 500]

    async def handler(_: Asked) -> Answer:
        world.count += 1
        return Answer(200, EVENTS, body if length else pieces())

    world.handler = handler
    world.serve(framework, result_bytes_max=1_000)
    first, second = world.post(), world.post()

    assert (200, body) == (first.status_code, first.content)
    assert (second.status_code, second.json()["code"], second.json()["retry"]) == (409, "not_replayable", "never")
    assert (world.state(), world.count) == ("settled", 1)


def test_a_stream_over_the_limit_is_not_held(world: World) -> None:
    """
    64 MiB pass, and a few are all that is ever held.
    """

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(1_024):
            yield b"x" * 65_536

    async def handler(_: Asked) -> Answer:
        return Answer(200, EVENTS, pieces())

    world.handler = handler
    world.serve(result_bytes_max=100_000)
    tracemalloc.start()
    with world.client.stream("POST", "/events", headers={"idempotency-key": "k"}) as answer:
        size = sum(len(piece) for piece in answer.iter_raw())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert size == 64 * 2**20
    assert peak < 8 * 2**20


@pytest.mark.parametrize("framework", ["plain", "starlette", "fastapi", "litestar"])
def test_a_client_that_leaves_in_the_middle_does_not_end_it(framework: str, world: World, source: Source) -> None:
    """
    The handler goes on to its end, its answer is stored, and the client's retry gets all of it.
    """
    world.serve(framework)
    body = request("/events")
    connection = world.raw(body)
    source.let()
    assert b".....0" in _until(connection, b".....0")
    connection.close()
    time.sleep(0.05)
    source.let(2)

    assert world.settles("settled")
    again = world.client.post(
        "/events", content=b"{}", headers={"idempotency-key": "k", "content-type": "application/json"}
    )
    assert (again.content, world.count) == (b".....0.....1.....2", 1)


def _until(connection: Any, wanted: bytes) -> bytes:
    got = b""
    while wanted not in got:
        piece = connection.recv(65_536)
        assert piece, got
        got += piece
    return got


@pytest.mark.parametrize("framework", ["plain", "starlette"])
def test_a_client_that_leaves_while_it_runs_does_not_end_it(framework: str, world: World) -> None:
    """
    Nor before the answer has begun.
    """
    world.handler = world.hold
    world.serve(framework)
    connection = world.raw(request(body=b'{"amount":1}'))
    world.held()
    connection.close()
    time.sleep(0.05)
    world.let_go()

    assert world.settles("settled")
    assert (world.post().headers["idempotency-replayed"], world.count) == ("true", 1)


def test_an_endless_stream_ends_with_its_client_once_it_is_too_long_to_keep(world: World) -> None:
    """
    Nobody would see its end. It is in doubt, because it was cut off; it does not run again.
    """
    source = Source(world, pieces=10**9, size=10_000)
    world.handler = source.handler
    world.serve("starlette", result_bytes_max=100_000)
    connection = world.raw(request("/events"))
    source.let(30)
    _until(connection, b".9")
    while source.given < 30:
        time.sleep(0.005)
    connection.close()
    source.let(300)

    assert source.ended.wait(10)
    assert world.settles("in_doubt")
    assert world.count == 1


def test_a_handler_that_is_cancelled_is_in_doubt(world: World) -> None:
    """
    Stopped waiting says nothing about what happened; the client's connection breaks off or says 500.
    """
    tasks: list[Any] = []

    async def handler(_: Asked) -> Answer:
        world.count += 1
        tasks.append(asyncio.current_task())
        world.entered.set()
        await asyncio.sleep(60)
        return Answer()

    world.handler = handler
    world.serve()
    asked = world.posting()
    world.held()
    assert world.stage.loop is not None
    world.stage.loop.call_soon_threadsafe(tasks[0].cancel)

    assert world.settles("in_doubt")
    error = asked.exception(10)
    assert error is not None or asked.result().status_code == 500
    assert (world.post().status_code, world.count) == (409, 1)


@pytest.mark.parametrize("answer_first", [False, True])
def test_a_handler_that_does_not_let_itself_be_cancelled_is_settled(answer_first: bool, world: World) -> None:
    """
    It says what happened, so that is what is stored and sent.
    """
    tasks: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        world.entered.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        tasks.append(asyncio.current_task())
        await gated(scope, receive, send)

    world.serve_app(app, answer_first=answer_first)
    gated = world.stage.app
    world.stage.app = outer
    asked = world.posting()
    world.held()
    assert world.stage.loop is not None
    world.stage.loop.call_soon_threadsafe(tasks[0].cancel)

    assert asked.result(10).content == b"done"
    assert world.state() == "settled"


def test_a_handler_that_outlives_its_lease_keeps_it(world: World) -> None:
    """
    It is renewed while it runs: a duplicate after three leases is still told that it runs.
    """
    clock, renewed = StillEnvironment(), threading.Semaphore(0)
    world.gate = world.new_gate(AsyncMemoryStore(environment=clock), environment=clock)
    world.gate.listen(lambda event: renewed.release() if event.type.value == "renewed" else None)
    world.handler = world.hold
    world.serve(lease=0.15)
    first = world.posting()
    world.held()
    for _ in range(5):
        clock.advance(0.1)
        assert renewed.acquire(timeout=60)
    during = world.post()
    world.let_go()

    assert (during.status_code, during.json()["code"]) == (409, "in_flight")
    assert (first.result().status_code, world.count) == (201, 1)
    assert world.state() == "settled"


CANARIES = ("c4nary-cookie", "c4nary-auth", "c4nary-request", "c4nary-trailer", "c4nary-custom")


def test_secrets_and_headers_of_a_connection_are_never_stored(stage: Stage, tmp_path: Path) -> None:
    """
    Neither the answer's cookies nor the request's credentials: the files of the store are read byte by byte.
    """
    world = World(stage, f"sqlite:///{tmp_path / 'shop.db'}")

    async def handler(_: Asked) -> Answer:
        secret = (
            ("set-cookie", "session=c4nary-cookie"),
            ("www-authenticate", "c4nary-auth"),
            ("trailer", "c4nary-trailer"),
            ("x-session", "c4nary-custom"),
            ("location", "/kept"),
        )
        return Answer(201, secret, b"kept-body")

    world.handler = handler
    world.serve()
    world.post(headers=[("authorization", "Bearer c4nary-request"), ("cookie", "c4nary-request")])
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    again = world.post()
    world.close()

    assert b"kept-body" in stored
    assert b"/kept" in stored
    assert [canary for canary in CANARIES if canary.encode() in stored] == []
    assert again.headers["location"] == "/kept"
    assert not {"set-cookie", "www-authenticate", "trailer", "x-session"} & again.headers.keys()
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        assert connection.execute("SELECT count(*) FROM onceward_records").fetchone()[0] == 1


def test_an_impossible_header_is_the_handlers_problem_and_not_the_records(world: World) -> None:
    """
    An answer that cannot be read back is not kept, and its handler does not run again for it.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        world.count += 1
        await send({"type": "http.response.start", "status": 200, "headers": [(b"location", b"/a\r\nx: y")]})
        await send({"type": "http.response.body", "body": b"done"})

    sent: list[Any] = []

    async def go() -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/x",
            "headers": [(b"idempotency-key", b"k")],
            "query_string": b"",
        }
        gated = IdempotencyMiddleware(app, gate=world.gate, scope="test:x")
        for _ in range(2):
            await gated(dict(scope), receive, send)

    world.stage.run(go())

    assert [one["status"] for one in sent if one["type"] == "http.response.start"] == [200, 409]
    assert b"not_replayable" in sent[-1]["body"]
    assert world.count == 1


class TestBrokenHandlers:
    """Handlers that do not keep to ASGI."""

    def serve(self, world: World, *messages: dict[str, Any]) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            world.count += 1
            for message in messages:
                await send(message)

        world.serve_app(app)

    START = {"type": "http.response.start", "status": 200, "headers": []}
    BODY = {"type": "http.response.body", "body": b"x"}
    MORE = {"type": "http.response.body", "body": b"x", "more_body": True}

    @pytest.mark.parametrize(
        ("messages", "says"),
        [
            ((START, START, BODY), "twice"),
            ((START, BODY, BODY), "after it ended"),
            ((START, BODY, START), "twice"),
            ((BODY,), "before its response began"),
            ((START,), "without completing"),
            ((), "without completing"),
            ((START, MORE), "without completing"),
        ],
    )
    def test_are_in_doubt_and_named_in_the_log(
        self, messages: Any, says: str, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        The client gets a 500, or an answer that breaks off; nothing runs again.
        """
        self.serve(world, *messages)
        first = answer_of(world.raw(request(headers=["Connection: close"])))
        second = answer_of(world.raw(request(headers=["Connection: close"])))

        assert first.startswith(b"HTTP/1.1 500") or not first.endswith(b"0\r\n\r\n")
        assert b'"code": "in_doubt"' in second
        assert any(says in str(line.exc_info and line.exc_info[1]) for line in caplog.records)
        assert (world.state(), world.count) == ("in_doubt", 1)

    def test_messages_of_other_kinds_are_not_passed_on(self, world: World) -> None:
        """
        An answer cannot leave by another way than the one that is recorded.
        """
        self.serve(world, {"type": "http.response.push", "path": "/x", "headers": []}, self.START, self.BODY)

        assert b"\r\n\r\n1\r\nx\r\n0\r\n\r\n" in answer_of(world.raw(request(headers=["Connection: close"])))
