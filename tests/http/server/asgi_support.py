"""
One real server for all tests of the ASGI middleware, and one handler behind four ways to write an application.

    world.handler = handler       what the application does: from `Asked` to `Answer`
    world.serve("fastapi", profile="ietf")
    world.post("/charges", b"{}", key="k")

uvicorn listens on a real socket in a thread of its own; each test puts its application there.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import httpx
import uvicorn

from onceward import AsyncGate, Operation
from onceward.gate import RecordView
from onceward.http.asgi import IdempotencyMiddleware
from onceward.testing.clock import StillEnvironment

T = TypeVar("T")
SECONDS_MAX = 20
FRAMEWORKS = ("plain", "starlette", "fastapi", "litestar")
SCOPE = "live:acme"


class Asked(NamedTuple):
    """A request, as every framework can show it."""

    method: str
    path: str
    body: bytes
    operation: Operation | None


class Answer(NamedTuple):
    """What the handler answers."""

    status: int = 201
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)
    body: bytes | AsyncIterator[bytes] = b"{}"


Handler = Callable[[Asked], Awaitable[Answer]]


class Stage:
    """A uvicorn that serves whatever application stands on it."""

    def __init__(self, **config: Any) -> None:
        self.app: Any = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._config = uvicorn.Config(
            self._serve,
            host="127.0.0.1",
            port=0,
            lifespan="off",
            access_log=False,
            log_config=None,
            ws="none",
            interface="asgi3",
            **config,
        )
        self._server = uvicorn.Server(self._config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._thread.start()
        assert self._ready.wait(SECONDS_MAX)
        self.port: int = self._server.servers[0].sockets[0].getsockname()[1]

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        serving = asyncio.ensure_future(self._server.serve())
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.005)
        self._ready.set()
        await serving

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the server's loop."""
        assert self.loop is not None
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return future.result(SECONDS_MAX)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(SECONDS_MAX)


class World:
    """One test: a gate, an application, a client."""

    def __init__(self, stage: Stage, store: str | Any = "memory://") -> None:
        self.stage = stage
        self.count = 0
        self.handler: Handler = self.charge
        self.entered, self._go = threading.Event(), asyncio.Event()
        self.environment: StillEnvironment | None = None
        self._store = store
        self._gates: list[AsyncGate] = []
        self.gate = self.new_gate(store)
        self.client = self.new_client()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.stage.port}"

    def new_gate(self, store: str | Any, **options: Any) -> AsyncGate:
        async def make() -> AsyncGate:
            return AsyncGate(store, scope="test:nobody", **options)

        gate = self.stage.run(make())
        self._gates.append(gate)
        return gate

    # --- applications ---

    def serve(self, framework: str = "plain", **options: Any) -> None:
        """Put an application on the stage, the middleware in front of it."""
        options = {"gate": self.gate, "scope": SCOPE, **options}
        self.stage.app = APPLICATIONS[framework](self.handle, options)

    def serve_app(self, app: Any, **options: Any) -> None:
        """Put this ASGI application there."""
        self.stage.app = IdempotencyMiddleware(app, **{"gate": self.gate, "scope": SCOPE, **options})

    async def handle(self, asked: Asked) -> Answer:
        return await self.handler(asked)

    async def charge(self, asked: Asked) -> Answer:
        """The usual handler: one effect, a 201 with its number."""
        self.count += 1
        headers = (("content-type", "application/json"), ("location", f"/charges/{self.count}"))
        return Answer(201, headers, json.dumps({"charge": self.count}).encode())

    async def hold(self, asked: Asked) -> Answer:
        """The same, when the test lets it."""
        self.entered.set()
        await self._go.wait()
        return await self.charge(asked)

    def let_go(self) -> None:
        """Let held handlers finish."""
        assert self.stage.loop is not None
        self.stage.loop.call_soon_threadsafe(self._go.set)

    def held(self) -> None:
        """Wait until a handler is held."""
        assert self.entered.wait(SECONDS_MAX)

    # --- asking ---

    def new_client(self) -> httpx.Client:
        # Each request on a connection of its own: uvicorn closes that of an application that raised, without a word.
        transport = httpx.HTTPTransport(verify=False, limits=httpx.Limits(max_keepalive_connections=0))
        return httpx.Client(base_url=self.url, timeout=SECONDS_MAX, transport=transport)

    def post(self, path: str = "/charges", body: bytes = b'{"amount":1}', key: str | None = "k", **more: Any) -> Any:
        headers: list[tuple[str, str]] = [("content-type", "application/json"), *more.pop("headers", ())]
        if key is not None:
            headers.append(("idempotency-key", key))
        return self.client.post(path, content=body, headers=headers, **more)

    def posting(self, *arguments: Any, **more: Any) -> Future[Any]:
        """The same from another thread."""
        future: Future[Any] = Future()

        def post() -> None:
            try:
                with self.new_client() as client:
                    clone = object.__new__(World)
                    clone.__dict__.update(self.__dict__, client=client)
                    future.set_result(clone.post(*arguments, **more))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=post, daemon=True).start()
        return future

    def raw(self, data: bytes) -> socket.socket:
        """A connection on which this was sent."""
        connection = socket.create_connection(("127.0.0.1", self.stage.port), SECONDS_MAX)
        connection.sendall(data)
        return connection

    def records(self, scope: str = SCOPE) -> list[RecordView]:
        return list(self.stage.run(self.gate.scoped(scope).records.list()))

    def state(self, key: str = "k", scope: str = SCOPE) -> str | None:
        """What the record of a key says."""
        found = self.stage.run(self.gate.scoped(scope).records.get(key))
        return None if found is None else found.state

    def settles(self, state: str, key: str = "k") -> bool:
        """Wait until the record of a key says so."""
        for _ in range(2_000):
            if self.state(key) == state:
                return True
            threading.Event().wait(0.005)
        return False

    def close(self) -> None:
        self.let_go()
        self.client.close()
        for gate in self._gates:
            self.stage.run(gate.close())


def answer_of(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    pieces = []
    with suppress(ConnectionError, TimeoutError):
        while piece := connection.recv(65_536):
            pieces.append(piece)
    connection.close()
    return b"".join(pieces)


def request(
    path: str = "/charges",
    body: bytes = b"{}",
    key: str = "k",
    *,
    headers: Iterable[str] = (),
    length: int | None = None,
) -> bytes:
    """A request as bytes on the wire."""
    length = len(body) if length is None else length
    lines = [f"POST {path} HTTP/1.1", "Host: shop", "Content-Type: application/json", f"Content-Length: {length}"]
    lines += [f"Idempotency-Key: {key}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


# --- the same application, four times ---


def _plain(handle: Handler, options: dict[str, Any]) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        operation = (scope.get("state") or {}).get("operation")
        answer = await handle(Asked(scope["method"], scope["path"], body, operation))
        headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers]
        if isinstance(answer.body, bytes):
            if answer.status not in (204, 304):
                headers.append((b"content-length", str(len(answer.body)).encode()))
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": answer.body})
            return
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        async for piece in answer.body:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return IdempotencyMiddleware(app, **options)


def _starlette_endpoint(handle: Handler) -> Any:
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse

    async def endpoint(request: Request) -> Response:
        operation = getattr(request.state, "operation", None)
        answer = await handle(Asked(request.method, request.url.path, await request.body(), operation))
        made = (
            Response(answer.body, answer.status)
            if isinstance(answer.body, bytes)
            else StreamingResponse(answer.body, answer.status)
        )
        for name, value in answer.headers:
            made.headers.append(name, value)
        return made

    return endpoint


METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def _starlette(handle: Handler, options: dict[str, Any]) -> Any:
    from starlette.applications import Starlette
    from starlette.routing import Route

    app = Starlette(routes=[Route("/{path:path}", _starlette_endpoint(handle), methods=METHODS)])
    app.add_middleware(IdempotencyMiddleware, **options)
    return app


def _fastapi(handle: Handler, options: dict[str, Any]) -> Any:
    from fastapi import FastAPI, Request

    app = FastAPI()
    endpoint = _starlette_endpoint(handle)

    async def route(request: Request) -> Any:
        return await endpoint(request)

    route.__annotations__["request"] = Request
    app.add_api_route("/{path:path}", route, methods=METHODS)
    app.add_middleware(IdempotencyMiddleware, **options)
    return app


def _litestar(handle: Handler, options: dict[str, Any]) -> Any:
    from litestar import HttpMethod, Litestar, Request, route
    from litestar.middleware import DefineMiddleware
    from litestar.response import Response, Stream

    async def endpoint(request: Request[Any, Any, Any]) -> Response[Any]:
        operation = getattr(request.state, "operation", None)
        answer = await handle(Asked(request.method, request.url.path, await request.body(), operation))
        headers = dict(answer.headers)
        kind = headers.pop("content-type", "text/plain")
        if isinstance(answer.body, bytes):
            return Response(answer.body, status_code=answer.status, headers=headers, media_type=kind)
        return Stream(answer.body, status_code=answer.status, headers=headers, media_type=kind)

    endpoint.__annotations__.update({"request": Request, "return": Response})
    methods = [one for one in HttpMethod if one.value in METHODS and one.value != "OPTIONS"]
    made = route(["/", "/{path:path}"], http_method=methods, status_code=200)(endpoint)
    return Litestar([made], middleware=[DefineMiddleware(IdempotencyMiddleware, **options)], openapi_config=None)


APPLICATIONS: dict[str, Callable[[Handler, dict[str, Any]], Any]] = {
    "plain": _plain,
    "starlette": _starlette,
    "fastapi": _fastapi,
    "litestar": _litestar,
}
