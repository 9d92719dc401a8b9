"""
One handler behind every wire (ASGI, WSGI, Django's plain and async views), and one way to ask them. None is on a
socket, so that whole answers can be compared; each has a clock and a chance of its own, so that they are equal to the
byte.

    wire = Asgi(handler, profile="stripe", scope=...)
    wire.send("k", b"{}")  ->  Heard(status, headers, body, broke)
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

from exchange_messages import OWN_500, Asked, Handler, Heard, Kept, Said, StreamBroke, heard

from onceward import AsyncGate, Gate
from onceward.http import idempotent
from onceward.http.asgi import IdempotencyMiddleware as AsgiMiddleware
from onceward.http.wsgi import IdempotencyMiddleware as WsgiMiddleware
from onceward.stores.memory import AsyncMemoryStore, MemoryStore
from onceward.testing.clock import StillEnvironment

SCOPE = "test:shop"


class Endpoint(NamedTuple):
    """A route of an application, as Starlette and Flask let it be known."""

    path: str
    methods: frozenset[str]
    endpoint: Any


def with_routes(app: Any, decorated: dict[str, Any] | None) -> Any:
    """An application that tells its routes, if there is something to tell."""
    if decorated is not None:
        app.routes = [Endpoint("/a", frozenset({"GET", "POST"}), idempotent(**decorated)(lambda: None))]
    return app


class SlowInput(io.BytesIO):
    """A body that takes five minutes and a second."""

    environment: StillEnvironment

    def read1(self, size: int | None = -1, /) -> bytes:
        self.environment.advance(301)
        return super().read1(size)


class Wire:
    """A handler behind a wire. It counts its runs."""

    gate: Any

    def __init__(
        self,
        handler: Handler | None = None,
        *,
        scope: Any = SCOPE,
        store: str = "memory",
        layers: int = 1,
        decorated: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.layers = layers
        """How many middlewares of ours stand around each other."""
        self.decorated = decorated
        """What `@idempotent` says at the handler."""
        self.runs = 0
        self.meanwhile: list[Asked | Callable[[Any], None]] = []
        """What is asked, or happens, while the handler runs; `inner` has the answers."""
        self.inner: list[Heard] = []
        self.said: list[Said] = []
        """What the handler answered."""
        self._handler = handler or (lambda body: Said())
        self.environment, self.store = StillEnvironment(), store
        self.prepare({"scope": scope, **options})

    def prepare(self, options: dict[str, Any]) -> None:
        """Put the middleware in front of the handler."""
        raise NotImplementedError

    def send(self, *asked: Any, **more: Any) -> Heard:
        """Send a request."""
        return self.ask(Asked(*asked, **more))

    def ask(self, asked: Asked) -> Heard:
        """One request on this wire."""
        raise NotImplementedError

    def run(self, body: bytes) -> Said:
        """What the handler does."""
        self.runs += 1
        self.said.append(self._handler(body))
        return self.said[-1]

    def reconcile(self, answer: Any, key: str = "k") -> None:
        """A person decides a record."""
        self.done(self.gate.scoped(SCOPE).reconcile(key, answer))

    def stored(self) -> list[Kept]:
        """Every record, without its times."""
        records = self.done(self.gate.scoped(SCOPE).records.list())
        return sorted((Kept(*(getattr(one, name) for name in Kept._fields)) for one in records), key=repr)

    def done(self, work: Any) -> Any:
        """What a gate's method gave, or gives when it is awaited."""
        return work

    def close(self) -> None:
        self.gate.close()


def blocking_gate(wire: Wire) -> Gate:
    """A gate for a wire."""
    store = MemoryStore(environment=wire.environment) if wire.store == "memory" else wire.store
    return Gate(store, scope="test:a", environment=wire.environment)


class Blocking(Wire):
    """Asks a WSGI application, which `prepare` leaves in `_app`."""

    _app: Any

    def new_gate(self) -> Gate:
        return blocking_gate(self)

    def respond(self, body: bytes) -> Said:
        """The handler's run, and what is asked meanwhile."""
        steps, self.meanwhile = self.meanwhile, []
        for step in steps:
            if isinstance(step, Asked):
                self.inner.append(self.ask(step))
            else:
                step(self)
        return self.run(body)

    def stream(self, said: Said) -> Iterator[bytes]:
        """A stream's pieces."""
        yield from said.pieces or ()
        if said.breaks:
            raise StreamBroke

    def ask(self, asked: Asked) -> Heard:
        environ: dict[str, Any] = {
            "REQUEST_METHOD": asked.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": asked.path,
            "QUERY_STRING": asked.query,
            "SERVER_NAME": "shop",
            "SERVER_PORT": "80",
            "wsgi.input": io.BytesIO(asked.body),
            "wsgi.url_scheme": "http",
            "wsgi.errors": io.StringIO(),
            "wsgi.version": (1, 0),
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in asked.head:
            known = name.upper().replace("-", "_")
            known = known if known in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{known}"
            environ[known] = f"{environ[known]},{value}" if known in environ else value
        if asked.slow:
            environ["wsgi.input"] = slow = SlowInput(asked.body)
            slow.environment = self.environment
        told: list[Any] = []
        found: list[bytes] = []
        broke, pieces = None, None

        def start_response(status: str, given: Any, exc_info: Any = None) -> Any:
            told[:] = [int(status[:3]), given]
            return lambda piece: None

        try:
            pieces = self._app(environ, start_response)
            for piece in pieces:
                found.append(piece)  # What came before an error counts.
                if piece and asked.leaves:
                    break
        except Exception as error:
            broke = error
        try:
            getattr(pieces, "close", lambda: None)()
        except Exception as error:
            broke = error
        return heard(*told, found, None if asked.leaves else broke) if told else OWN_500


class Wsgi(Blocking):
    """A WSGI application."""

    def prepare(self, options: dict[str, Any]) -> None:
        def app(environ: Any, start_response: Any) -> Any:
            said = self.respond(environ["wsgi.input"].read())
            start_response(f"{said.status} -", said.head)
            return [said.body] if said.pieces is None else self.stream(said)

        self.gate, self._app = self.new_gate(), with_routes(app, self.decorated)
        for _ in range(self.layers):
            self._app = WsgiMiddleware(self._app, gate=self.gate, **options)


class Awaiting(Wire):
    """Asks an ASGI application, which `prepare` leaves in `_app`."""

    _app: Any

    def new_gate(self) -> AsyncGate:
        self._loop = asyncio.new_event_loop()

        async def make() -> AsyncGate:
            store = AsyncMemoryStore(environment=self.environment) if self.store == "memory" else self.store
            return AsyncGate(store, scope="test:a", environment=self.environment)

        return self._loop.run_until_complete(make())

    async def respond_async(self, body: bytes) -> Said:
        """The handler's run, and what is asked meanwhile."""
        steps, self.meanwhile = self.meanwhile, []
        for step in steps:
            if isinstance(step, Asked):
                self.inner.append(await self.ask_async(step))
            else:
                step(self)
        return self.run(body)

    async def stream_async(self, said: Said) -> AsyncIterator[bytes]:
        """A stream's pieces."""
        for piece in said.pieces or ():
            yield piece
        if said.breaks:
            raise StreamBroke

    def ask(self, asked: Asked) -> Heard:
        return self.done(self.ask_quietly(asked))

    async def ask_quietly(self, asked: Asked) -> Heard:
        """One request, and whatever goes on when its client has left."""
        found = await self.ask_async(asked)
        if asked.leaves:
            for _ in range(3):
                await asyncio.sleep(0)  # What is dropped is closed by its loop.
            while others := asyncio.all_tasks() - {asyncio.current_task()}:
                _, left = await asyncio.wait(others, timeout=20)
                if left:
                    for task in left:
                        task.cancel()
                    return found._replace(broke="it goes on for ever")
        return found

    async def ask_async(self, asked: Asked) -> Heard:
        raw = [(name.encode(), value.encode("latin-1")) for name, value in asked.head]
        scope = {"type": "http", "method": asked.method, "path": asked.path, "headers": raw}
        scope["query_string"] = asked.query.encode()
        scope |= {"http_version": "1.1", "asgi": {"version": "3.0"}, "scheme": "http", "server": ("shop", 80)}
        sent: list[Any] = []
        bodies, left = [asked.body], asyncio.Event()

        async def receive() -> Any:
            if asked.slow:
                await asyncio.sleep(0)  # It has not arrived at once, so a timer runs.
                if not bodies:
                    await asyncio.Event().wait()
                return {"type": "http.request", "body": bodies.pop()[:1], "more_body": True}
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if left.is_set():
                raise ConnectionResetError
            sent.append(message)
            if message.get("body") and asked.leaves:
                left.set()

        broke = None
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            broke = error
        if not sent:
            return OWN_500
        found = [(name.decode(), value.decode()) for name, value in sent[0]["headers"]]
        pieces = [one.get("body", b"") for one in sent[1:]]
        return heard(sent[0]["status"], found, pieces, None if asked.leaves else broke)

    def done(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def close_gate(self) -> None:
        self._loop.run_until_complete(self.gate.close())

    def close(self) -> None:
        self.close_gate()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class Asgi(Awaiting):
    """An ASGI application."""

    def prepare(self, options: dict[str, Any]) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            said = await self.respond_async((await receive())["body"])
            headers = [(name.encode(), value.encode()) for name, value in said.head]
            await send({"type": "http.response.start", "status": said.status, "headers": headers})
            if said.pieces is None:
                await send({"type": "http.response.body", "body": said.body})
                return
            async for piece in self.stream_async(said):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        self.gate, self._app = self.new_gate(), with_routes(app, self.decorated)
        for _ in range(self.layers):
            self._app = AsgiMiddleware(self._app, gate=self.gate, **options)


class _Project:
    """A Django project. There is one in a process, so each of these takes it over."""

    layers: int

    def begin(self, view: Any, options: dict[str, Any], **gates: Any) -> None:
        """Settings with this view behind every path."""
        import django
        from django.conf import settings
        from django.test import override_settings

        if not settings.configured:
            settings.configure(SECRET_KEY="test", ALLOWED_HOSTS=["*"], LOGGING_CONFIG=None)
            django.setup()
        self._settings = override_settings(
            ROOT_URLCONF=_Urls(view),
            MIDDLEWARE=["onceward.http.django.IdempotencyMiddleware"] * self.layers,
            ONCEWARD={**{name.upper(): value for name, value in options.items()}, **gates},
        )
        self._settings.enable()

    def end(self) -> None:
        """Give it back."""
        self._settings.disable()


class _Urls:
    """URLs of one project: every path goes to one view."""

    def __init__(self, view: Any) -> None:
        from django.urls import re_path

        self.urlpatterns = [re_path("", view)]

    def __hash__(self) -> int:
        return id(self)


def response_of(said: Said, pieces: Any) -> Any:
    """A handler's answer, as Django has it."""
    from django.http import HttpResponse, StreamingHttpResponse

    response: Any = HttpResponse(said.body) if said.pieces is None else StreamingHttpResponse(pieces)
    response.status_code = said.status
    del response["Content-Type"]
    for name, value in said.head:
        response[name] = value
    return response


class Django(_Project, Blocking):
    """Plain views, under WSGI."""

    def prepare(self, options: dict[str, Any]) -> None:
        from django.core.wsgi import get_wsgi_application

        def view(request: Any) -> Any:
            said = self.respond(request.body)
            return response_of(said, self.stream(said))

        self.gate = self.new_gate()
        self.begin(view if self.decorated is None else idempotent(**self.decorated)(view), options, GATE=self.gate)
        self._app = get_wsgi_application()

    def close(self) -> None:
        self.end()
        super().close()


class DjangoAsync(_Project, Awaiting):
    """Async views, under ASGI."""

    def prepare(self, options: dict[str, Any]) -> None:
        from django.core.handlers.asgi import ASGIHandler

        bodies = self._bodies = []

        class Handler(ASGIHandler):
            async def read_body(self, receive: Any) -> Any:
                """Django leaves this file open if a stream breaks off."""
                bodies.append(await super().read_body(receive))
                return bodies[-1]

        async def view(request: Any) -> Any:
            said = await self.respond_async(request.body)
            return response_of(said, self.stream_async(said))

        self.gate = self.new_gate()
        view = view if self.decorated is None else idempotent(**self.decorated)(view)
        self.begin(view, options, ASYNC_GATE=self.gate)
        self._app = Handler()

    def close(self) -> None:
        for body in self._bodies:
            body.close()
        self.end()
        super().close()


class DjangoThread(DjangoAsync):
    """Async views under ASGI, but a gate that blocks: each request is served in a thread."""

    def new_gate(self) -> Any:
        self._loop = asyncio.new_event_loop()
        return blocking_gate(self)

    def begin(self, view: Any, options: dict[str, Any], **gates: Any) -> None:
        super().begin(view, options, GATE=gates["ASYNC_GATE"])

    def done(self, work: Any) -> Any:
        return super().done(work) if asyncio.iscoroutine(work) else work

    def close_gate(self) -> None:
        self.gate.close()


WIRES: dict[str, type[Any]] = {
    "asgi": Asgi,
    "wsgi": Wsgi,
    "django": Django,
    "django_async": DjangoAsync,
    "django_thread": DjangoThread,
}
