"""
One handler behind three wires (ASGI, WSGI, Django), and one way to ask them: each in its own process-wide state, none
on a socket, so that whole answers can be compared.

    wire = Asgi(handler, profile="stripe", scope=...)
    wire.send("k", b"{}")  ->  Heard(status, headers, body)
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from onceward import AsyncGate, Gate
from onceward.http.asgi import IdempotencyMiddleware as AsgiMiddleware
from onceward.http.wsgi import IdempotencyMiddleware as WsgiMiddleware
from onceward.testing.clock import StillEnvironment


class Said(NamedTuple):
    """A handler's answer."""

    status: int = 201
    body: bytes = b'{"charge":1}'
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"), ("etag", '"one"'))


class Heard(NamedTuple):
    """What a client was answered."""

    status: int
    headers: dict[str, str]
    body: Any


Handler = Callable[[bytes], Said]


def heard(status: int, headers: list[tuple[str, str]], body: bytes) -> Heard:
    """An answer, its headers in lower case, without `connection` (no WSGI application may say that); JSON is read."""
    found = {name.lower(): value for name, value in headers if name.lower() != "connection"}
    is_json = "json" in found.get("content-type", "")
    return Heard(status, found, json.loads(body) if is_json and body else body.decode("latin-1"))


class Wire:
    """A handler behind a wire. It counts its runs."""

    def __init__(self, handler: Handler | None = None, *, scope: Any = "test:shop", **options: Any) -> None:
        self.runs = 0
        self._handler = handler or (lambda body: Said())
        self.environment = StillEnvironment()
        self.prepare({"scope": scope, **options})

    def prepare(self, options: dict[str, Any]) -> None:
        """Put the middleware in front of the handler."""
        raise NotImplementedError

    def send(self, key: str | None = "k", body: bytes = b"{}", *, method: str = "POST", path: str = "/a") -> Heard:
        """Send a request; what raises is a bare 500, as a server makes of it."""
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["idempotency-key"] = key
        try:
            return self.ask(method, path, headers, body)
        except Exception as error:
            return Heard(500, {}, f"raised {type(error).__name__}")

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Heard:
        """One request on this wire."""
        raise NotImplementedError

    def run(self, body: bytes) -> Said:
        self.runs += 1
        return self._handler(body)


class Asgi(Wire):
    """An ASGI application."""

    def prepare(self, options: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            said = self.run((await receive())["body"])
            headers = [(name.encode(), value.encode()) for name, value in said.headers]
            headers.append((b"content-length", str(len(said.body)).encode()))
            await send({"type": "http.response.start", "status": said.status, "headers": headers})
            await send({"type": "http.response.body", "body": said.body})

        async def make() -> AsyncGate:
            return AsyncGate("memory://", scope="test:a", environment=self.environment)

        self.gate = self._loop.run_until_complete(make())
        self._app = AsgiMiddleware(app, gate=self.gate, **options)

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Heard:
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": raw}
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        self._loop.run_until_complete(self._app(scope, receive, send))
        found = [(name.decode(), value.decode()) for name, value in sent[0]["headers"]]
        return heard(sent[0]["status"], found, b"".join(one.get("body", b"") for one in sent[1:]))

    def close(self) -> None:
        self._loop.run_until_complete(self.gate.close())
        self._loop.close()


class Wsgi(Wire):
    """A WSGI application."""

    def prepare(self, options: dict[str, Any]) -> None:
        def app(environ: Any, start_response: Any) -> list[bytes]:
            said = self.run(environ["wsgi.input"].read())
            start_response(f"{said.status} -", [*said.headers, ("content-length", str(len(said.body)))])
            return [said.body]

        self.gate = Gate("memory://", scope="test:a", environment=self.environment)
        self._app: Any = WsgiMiddleware(app, gate=self.gate, **options)

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Heard:
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": path,
            "QUERY_STRING": "",
            "SERVER_NAME": "shop",
            "SERVER_PORT": "80",
            "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": headers["content-type"],
            "wsgi.input": io.BytesIO(body),
            "wsgi.url_scheme": "http",
            "wsgi.errors": io.StringIO(),
            "wsgi.version": (1, 0),
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        if "idempotency-key" in headers:
            environ["HTTP_IDEMPOTENCY_KEY"] = headers["idempotency-key"]
        told: list[Any] = []

        def start_response(status: str, given: Any, exc_info: Any = None) -> Any:
            told[:] = [int(status[:3]), given]
            return lambda piece: None

        pieces = self._app(environ, start_response)
        try:
            found = b"".join(pieces)
        finally:
            getattr(pieces, "close", lambda: None)()
        return heard(told[0], told[1], found)

    def close(self) -> None:
        self.gate.close()


class Django(Wsgi):
    """A Django project under WSGI. There is one in a process, so each of these takes it over."""

    def prepare(self, options: dict[str, Any]) -> None:
        import django
        from django.conf import settings
        from django.core.wsgi import get_wsgi_application
        from django.test import override_settings

        self.gate = Gate("memory://", scope="test:a", environment=self.environment)
        onceward = {name.upper(): value for name, value in options.items()}
        onceward |= {"GATE": self.gate}
        if not settings.configured:
            settings.configure(SECRET_KEY="test", ALLOWED_HOSTS=["*"], LOGGING_CONFIG=None)
            django.setup()
        self._settings = override_settings(
            ROOT_URLCONF=_Urls(self.run), MIDDLEWARE=["onceward.http.django.IdempotencyMiddleware"], ONCEWARD=onceward
        )
        self._settings.enable()
        self._app = get_wsgi_application()

    def close(self) -> None:
        self._settings.disable()
        self.gate.close()


class _Urls:
    """URLs of one project: every path goes to one view."""

    def __init__(self, run: Handler) -> None:
        from django.http import HttpResponse
        from django.urls import re_path

        def view(request: Any) -> Any:
            said = run(request.body)
            response = HttpResponse(said.body, status=said.status)
            del response["Content-Type"]
            for name, value in (*said.headers, ("content-length", str(len(said.body)))):
                response[name] = value
            return response

        self.urlpatterns = [re_path("", view)]

    def __hash__(self) -> int:
        return id(self)


WIRES: dict[str, type[Any]] = {"asgi": Asgi, "wsgi": Wsgi, "django": Django}
