"""
`IdempotencyMiddleware` for WSGI applications: Flask, Pyramid, Bottle, or without a framework.

    app.wsgi_app = IdempotencyMiddleware(app.wsgi_app, gate=gate, scope=tenant_of, profile="ietf")

A keyed request runs once; its response is stored and replayed byte for byte. Everything else passes through untouched:
other methods, and requests without a key. The handler finds the operation in `environ["onceward.operation"]`.

(For Django use `onceward.http.django`, which runs where sessions and users are known.)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import Any, TypeAlias, Unpack

from onceward._core.reply import Reply
from onceward.gate import Gate
from onceward.http.server.app_routes import find_app_routes
from onceward.http.server.body_buffer import BodyBuffer
from onceward.http.server.body_reader import body_length, read_body, restore_input
from onceward.http.server.handler_run import HandlerResponse
from onceward.http.server.problems import WELL_KNOWN
from onceward.http.server.profile import Profile
from onceward.http.server.profile_overrides import ProfileOverrides
from onceward.http.server.pull_exchange import PulledResponse, PullExchange
from onceward.http.server.request_admission import (
    AdmittedRequest,
    IncomingRequest,
    RequestAdmission,
    ScopeOrFunction,
)
from onceward.http.server.responses import headers_and_body
from onceward.http.server.routes import Route
from onceward.http.server.unknown_caller import SCOPE_LABEL
from onceward.http.server.wsgi_environ import request_from_environ

Environ: TypeAlias = dict[str, Any]
StartResponse: TypeAlias = Callable[..., Callable[[bytes], object]]
App: TypeAlias = Callable[[Environ, StartResponse], Iterable[bytes]]

OPERATION = "onceward.operation"
"""Where in the environ the handler finds its operation."""


class IdempotencyMiddleware:
    """
    Runs a keyed request once, and replays its response to every retry.

    `scope` says who is calling: a function of the request that reads its authentication, such as
    `lambda request: f"live:{request.raw['tenant']}"` (`request.raw` is the environ); or one text if there is only one
    caller. Every field of a profile may be given as a keyword, and changed for single `routes`.
    """

    def __init__(
        self,
        app: App,
        *,
        gate: Gate,
        scope: ScopeOrFunction | None = None,
        profile: str | Profile = "default",
        routes: Iterable[Route] = (),
        well_known: str | None = WELL_KNOWN,
        **changes: Unpack[ProfileOverrides],
    ) -> None:
        self.app = app
        self._now = gate.environment.monotonic
        self._admission = RequestAdmission(
            gate, scope=scope, profile_=profile, routes=routes, well_known=well_known, changes=changes
        )
        self._methods = self._admission.routes.methods
        self._well_known = well_known or "\0"
        self._has_looked = False

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        if not self._has_looked:
            self._has_looked = True
            self._admission.learn(find_app_routes(self.app))
            self._methods = self._admission.routes.methods
        if environ["REQUEST_METHOD"].upper() not in self._methods and self._well_known not in environ.get(
            "PATH_INFO", ""
        ):
            return self.app(environ, start_response)
        admitted = self._admission.admit(
            request_from_environ(environ, self._admission.routes.single), environ.get(OPERATION)
        )
        if admitted is None:
            return self.app(environ, start_response)
        if isinstance(admitted, Reply):
            return send_response(admitted, start_response)
        return self._serve(admitted, environ, start_response)

    def _serve(self, admitted: AdmittedRequest, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve a keyed request, from its body to its response."""
        connection = _WsgiConnection(environ, start_response, self._now)
        exchange = connection.exchange = PullExchange(self._admission, admitted)
        reply = exchange.prepare(connection)
        if exchange.passes:
            return self.app(environ, start_response)
        if reply is None:
            reply = exchange.hold()
        return connection.run(self.app) if reply is None else send_response(reply, start_response)


def send_response(reply: Reply, start_response: StartResponse) -> list[bytes]:
    """Send a whole response."""
    headers, body = headers_and_body(reply)
    start_response(_status_line(reply.status), headers)
    return [body]


def _status_line(status: int) -> str:
    with suppress(ValueError):
        return f"{status} {HTTPStatus(status).phrase}"
    return f"{status} Unknown"


class _WsgiConnection:
    """One WSGI request: the handler reads the buffered body; its response goes to the recorder and to the client."""

    scope_label = SCOPE_LABEL
    exchange: PullExchange
    _head: tuple[str, list[tuple[str, str]]] | None = None
    _fed = False
    _write_on: Callable[[bytes], object] | None = None
    _gone: Exception | None = None
    _iterable: Iterable[bytes] = ()

    def __init__(self, environ: Environ, start_response: StartResponse, now: Callable[[], float]) -> None:
        self._environ, self._start_response, self._now = environ, start_response, now

    def call_scope(self, scope_of: Callable[[IncomingRequest], Any], incoming: IncomingRequest) -> object:
        """Call the scope function."""
        found = scope_of(incoming)
        if inspect.isawaitable(found):
            if inspect.iscoroutine(found):
                found.close()
            raise TypeError("it is async, and a WSGI server cannot await it: use def")
        return found

    def load_body(self, admitted: AdmittedRequest, body: BodyBuffer) -> None:
        """Read the whole body."""
        read_body(admitted, body, self._environ["wsgi.input"], body_length(self._environ), self._now)

    def run(self, app: App) -> Iterable[bytes]:
        """Run the handler. The response: whole, once it is stored; or a stream, which is stored when it ends."""
        restore_input(self._environ, self.exchange.body)
        self._environ[OPERATION] = self.exchange.operation
        pulled = PulledResponse(self.exchange, self._pieces(app), self._release)
        if pulled.until_passing():
            self._begin()
            return pulled
        if self._gone is not None:
            raise self._gone
        if pulled.substitute is not None:
            return send_response(pulled.substitute, self._start_response)
        return self._own(self.exchange.handler_response())

    def _pieces(self, app: App) -> Iterator[tuple[bytes, bool]]:
        """The handler's pieces, and whether there may be more."""
        iterable = self._iterable = app(self._environ, self._take_head)
        count = len(iterable) if isinstance(iterable, list | tuple) else 0
        for number, piece in enumerate(iterable, 1):
            if self._head is None:
                raise AssertionError("the application sent a body before it called start_response")
            if not isinstance(piece, bytes):
                raise TypeError(f"a WSGI application must return bytes, not {type(piece).__name__}")
            if piece:
                self._fed = True
                yield piece, number != count
        if self._head is None:
            raise AssertionError("the application never called start_response")

    def _release(self) -> None:
        try:
            close = getattr(self._iterable, "close", None)
            if close is not None:
                close()
        finally:
            self.exchange.close()

    # --- what the handler calls (PEP 3333) ---

    def _take_head(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None, /
    ) -> Callable[[bytes], object]:
        """The handler's `start_response`."""
        try:
            if exc_info is not None and self._fed:
                raise exc_info[1].with_traceback(exc_info[2])
        finally:
            exc_info_given, exc_info = exc_info is not None, None
        if self._head is not None and not exc_info_given:
            raise AssertionError("the application called start_response twice, and without exc_info")
        self._head = (status, list(headers))
        lowered = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self.exchange.recorder.begin(int(status[:3]), lowered)
        return self._take_written

    def _take_written(self, piece: bytes) -> None:
        """The handler's `write`, for those who still use it."""
        self._fed = True
        free = self.exchange.recorder.feed(piece, more=True)
        if not free or self._gone is not None:
            return
        try:
            if self._write_on is None:
                self._begin()
            if self._write_on is not None:
                self._write_on(free)
        except Exception as error:
            self._gone = error  # The client has left. The handler goes on all the same.

    # --- what the client gets ---

    def _begin(self) -> None:
        if self._write_on is None and self._head is not None:
            status, headers = self._head
            self._write_on = self._start_response(status, [*headers, *self.exchange.begin()])

    def _own(self, own: HandlerResponse) -> list[bytes]:
        """The handler's own response, or what is left of it."""
        if self._write_on is None and self._head is not None:
            status, headers = self._head
            headers = [pair for pair in headers if pair[0].lower() not in own.without]
            self._start_response(status, [*headers, *own.more])
        return [own.body]
