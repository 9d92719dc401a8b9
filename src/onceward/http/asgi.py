"""
`IdempotencyMiddleware` for ASGI applications: Starlette, FastAPI, Litestar, Django, or without a framework.

    app.add_middleware(IdempotencyMiddleware, gate=gate, scope=tenant_of, profile="ietf")

A keyed request runs once; its response is stored and replayed byte for byte. Everything else passes through untouched:
other methods, requests without a key, websockets, lifespan. The handler finds the operation in `scope["state"]`
(in Starlette, FastAPI and Litestar: `request.state.operation`).

The end of a response is sent after the response is stored, and it is stored when the handler has returned: by then
whatever commits after the response (a FastAPI dependency with `yield`) has committed. `answer_first=True` stores and
sends it before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias, Unpack
from urllib.parse import quote

from onceward._core.errors import ConfigurationError
from onceward._core.operation import Operation
from onceward._core.record_types import new_tuple
from onceward._core.reply import Reply
from onceward.gate import AsyncGate
from onceward.http.server.app_routes import find_app_routes
from onceward.http.server.body_buffer import BodyBuffer
from onceward.http.server.body_reader import ClientDisconnected, receive_body
from onceward.http.server.handler_run import CLEAN_REPORT, HandlerReport, HandlerResponse
from onceward.http.server.problems import WELL_KNOWN
from onceward.http.server.profile import Profile
from onceward.http.server.profile_overrides import ProfileOverrides
from onceward.http.server.push_exchange import PushExchange
from onceward.http.server.request_admission import (
    AdmittedRequest,
    IncomingRequest,
    RequestAdmission,
    ScopeOrFunction,
)
from onceward.http.server.responses import raw_headers_and_body
from onceward.http.server.routes import Route
from onceward.http.server.unknown_caller import SCOPE_LABEL

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

OPERATION = "operation"
"""Where the handler finds its operation: `scope["state"]["operation"]`."""
RENDERED = "onceward.rendered"
ENDS_THE_CONNECTION = frozenset({408, 413})
"""Refusals in the middle of an upload: the rest of the body is not read."""


def rendered(request: Any) -> Reply:
    """
    The response that the framework has made of what the handler returned, to settle inside a transaction with it:
    `operation.settle_inside(session, rendered(request))`.

    `request` is Starlette's or FastAPI's, or the ASGI scope. For code that runs after the response and before the
    commit, such as a dependency with `yield`; earlier there is no response yet: `ConfigurationError`.
    """
    scope = getattr(request, "scope", request)
    found: Callable[[], Reply] | None = (scope.get("state") or {}).get(RENDERED)
    if found is None:
        raise ConfigurationError("this request has no operation: it has no key, or its route is skipped")
    return found()


class IdempotencyMiddleware:
    """
    Runs a keyed request once, and replays its response to every retry.

    `scope` says who is calling: a function (or async function) of the request that reads its authentication, such as
    `lambda request: f"live:{request.raw['state']['tenant']}"`; or one text if there is only one caller. Every field of
    a profile may be given as a keyword, and changed for single `routes`.
    """

    def __init__(
        self,
        app: App,
        *,
        gate: AsyncGate,
        scope: ScopeOrFunction | None = None,
        profile: str | Profile = "default",
        routes: Iterable[Route] = (),
        well_known: str | None = WELL_KNOWN,
        **changes: Unpack[ProfileOverrides],
    ) -> None:
        if not isinstance(gate, AsyncGate):
            raise ConfigurationError(f"an ASGI middleware needs an AsyncGate, not a {type(gate).__name__}")
        self.app = app
        self._admission = RequestAdmission(
            gate, scope=scope, profile_=profile, routes=routes, well_known=well_known, changes=changes, repeats=True
        )
        self._methods = self._admission.routes.methods
        self._well_known = well_known or "\0"
        self._has_looked = False

    # Frameworks type these three differently (Starlette as mappings, Litestar as TypedDicts), and all may call it.
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection."""
        if not self._has_looked:
            self._look(scope)
        reply = None
        if scope["type"] == "http":
            method = scope["method"]
            if method not in self._methods:
                method = method.upper()  # As most frameworks read it: to them a "post" is a POST.
            if method in self._methods or scope["path"].startswith(self._well_known):
                admitted = self._admit(method, scope)
                if isinstance(admitted, AdmittedRequest):
                    connection = _AsgiConnection(self.app, scope, receive, send)
                    exchange = connection.exchange = PushExchange(self._admission, admitted)
                    try:
                        reply = await exchange.prepare(connection)
                    except ClientDisconnected:
                        return
                    if reply is None and not exchange.passes:
                        await connection.serve()
                        return
                else:
                    reply = admitted
        if reply is None:
            await self.app(scope, receive, send)
        else:
            start, body = _messages(reply, scope)
            await send(start)
            await send(body)

    def _admit(self, method: str, scope: Scope) -> AdmittedRequest | Reply | None:
        """What to do with a request: its headers are looked through once, unless one of them is repeated."""
        path: str = scope["path"]
        raw: bytes = scope.get("raw_path") or quote(path, errors="surrogatepass").encode("ascii")
        if b"?" in raw:
            raw = raw.partition(b"?")[0]
        given = scope["headers"]
        by_name, single = dict(given), None
        if len(by_name) == len(given) and b"".join(by_name).islower():
            single, headers = by_name, [*by_name.items()]
        else:
            headers = [(name.lower(), value) for name, value in given]
        state = scope.get("state")
        sent = (method, path, raw, scope.get("query_string") or b"", headers, scope)
        return self._admission.admit(new_tuple(IncomingRequest, sent), state and state.get(OPERATION), single)

    def _look(self, scope: Scope) -> None:
        """Learn the application's routes, once: when it starts, or when its first request arrives."""
        self._has_looked = True
        known = find_app_routes(scope.get("app"))
        self._admission.learn(find_app_routes(self.app) if known is None else known)
        self._methods = self._admission.routes.methods


class _AsgiConnection:
    """One ASGI connection: the handler reads the buffered body; its response goes to the recorder and to the client."""

    scope_label = SCOPE_LABEL
    exchange: PushExchange
    _start: Message | None = None
    _as_it_came: Scope | None = None
    task: asyncio.Task[None] | None = None
    """The handler, if it may go on after its response."""
    _may_disconnect = False
    """Whether the handler may learn that the connection has ended: its response is complete, or cannot be stored."""
    _waiting: asyncio.Event | None = None
    """For that, if the handler waits for it: most never ask."""
    _response_complete: asyncio.Event | None = None
    """Set when the response is complete, if somebody waits for that and not for the handler."""
    _left: OSError | None = None
    _handler_knows = False
    """Whether the handler knows that its client has left."""
    _read_all = False

    def __init__(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        self._app, self._scope, self._receive, self._send = app, scope, receive, send

    # --- the request ---

    def call_scope(self, scope_of: Callable[[IncomingRequest], Any], incoming: IncomingRequest) -> object:
        """Call the scope function; it may be async."""
        return scope_of(incoming)

    def load_body(self, admitted: AdmittedRequest, body: BodyBuffer) -> Awaitable[None] | bytes:
        """Receive the whole body."""
        return receive_body(admitted, body, self._receive)

    async def _replay_request(self) -> Message:
        """The handler's `receive`: the body; then it waits until the response is complete."""
        body = self.exchange.body
        if not self._read_all:
            on_disk = body.on_disk
            piece = await asyncio.to_thread(body.read) if on_disk else body.read()
            self._read_all = not on_disk or not piece
            return {"type": "http.request", "body": piece, "more_body": not self._read_all}
        # If the client leaves, the handler goes on: its response is stored for the client's retry. It learns that the
        # client has left only if the response is too long to be stored: nobody would see its end.
        if not self._may_disconnect:
            self._waiting = self._waiting or asyncio.Event()
            await self._waiting.wait()
        if self.exchange.recorder.complete:
            return {"type": "http.disconnect"}
        message = {"type": "http.disconnect"} if self._left is not None else await self._receive()
        self._handler_knows = self._handler_knows or message["type"] == "http.disconnect"
        return message

    # --- running ---

    async def serve(self) -> None:
        """Serve a request that may be claimed, to the end of its response."""
        exchange = self.exchange
        try:
            reply = await exchange.run(self.run)
            if reply is None:
                await self.finish(exchange.handler_response())
            else:
                start, body = _messages(reply, self._scope)
                await self._send(start)
                await self._send(body)
            if self.task is not None:
                await self.task  # The handler may return after its response.
        finally:
            if self.task is not None:
                self.task.cancel()  # Nobody waits for it any more.
            exchange.body.close()

    async def run(self, operation: Operation) -> HandlerReport:
        """Run the handler, for the first time or again."""
        profile, terms = self.exchange.profile, self.exchange.admitted.terms
        if self._as_it_came is not None:
            self._begin_again(self._as_it_came)
        elif terms.retry is not None:
            self._as_it_came = {**self._scope, "state": dict(self._scope.get("state") or {})}
        self._may_disconnect, self._waiting = False, None
        self._hand_over(operation)
        try:
            if profile.answer_first and not profile.transactional:  # A transactional handler must return: it commits.
                await self._until_response_complete()
            else:
                await self._app(self._scope, self._replay_request, self._take_response)
        except Exception as error:
            if self.exchange.recorder.complete or not self._is_disconnect(error):
                raise
        finally:
            if not self._may_disconnect:
                self._let_disconnect()
        if self.exchange.recorder.complete:
            return CLEAN_REPORT
        if not self._handler_knows:
            raise RuntimeError("the handler returned without completing its response")
        return CLEAN_REPORT._replace(left=True)

    def _let_disconnect(self) -> None:
        self._may_disconnect = True
        if self._waiting is not None:
            self._waiting.set()

    def _is_disconnect(self, error: BaseException | None) -> bool:
        """Whether a handler raised because its client has left: frameworks raise errors of their own from that."""
        while error is not None and error is not self._left:
            error = error.__cause__ or error.__context__
        return error is not None and self._handler_knows

    def _begin_again(self, came: Scope) -> None:
        """Restore the request as it came, for another attempt."""
        self._scope.clear()
        self._scope.update({**came, "state": dict(came["state"])})
        self.exchange.body.rewind()
        self._start, self._read_all = None, False

    def _hand_over(self, operation: Operation) -> None:
        """
        Put the operation into the handler's scope. It is the scope that came in: outer middlewares read what routers
        write into it.

        Extensions that would send the response by another way than `send` are removed.
        """
        scope = self._scope
        if scope.get("state") is None:
            scope["state"] = {}
        scope["state"][OPERATION] = operation
        scope["state"][RENDERED] = self.exchange.recorder.rendered
        if offered := scope.get("extensions"):
            scope["extensions"] = {name: one for name, one in offered.items() if not name.startswith("http.response")}

    async def _until_response_complete(self) -> None:
        """Run the handler until its response is complete; it may go on after that."""
        complete = self._response_complete = asyncio.Event()
        task = self.task = asyncio.ensure_future(self._app(self._scope, self._replay_request, self._take_response))
        task.add_done_callback(lambda _: complete.set())
        try:
            await complete.wait()
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
        if not self.exchange.recorder.complete:
            await task  # Raises what the handler raised; it may also have ignored its cancellation.

    # --- the response ---

    async def _take_response(self, message: Message) -> None:
        """The handler's `send`."""
        kind, recorder = message["type"], self.exchange.recorder
        if kind == "http.response.start":
            if self._start is not None:
                raise RuntimeError("the handler sent http.response.start twice")
            self._start = message
            headers = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
            recorder.begin(message["status"], headers)
            if recorder.passing:
                await self._pass(b"")
        elif kind == "http.response.body":
            if self._start is None or recorder.complete:
                raise RuntimeError("the handler sent a body before its response began, or after it ended")
            more = message.get("more_body", False)
            piece = recorder.feed(message.get("body", b""), more=more)
            if not more:
                self._let_disconnect()
                if self._response_complete is not None:
                    self._response_complete.set()
            elif recorder.passing:
                await self._pass(piece)
                self._report_disconnect()

    def _report_disconnect(self) -> None:
        """If the response is too long to be stored: let the handler learn that its client has left."""
        if not self.exchange.recorder.keeps:
            self._let_disconnect()
            if self._left is not None:
                self._handler_knows = True
                raise self._left

    async def _pass(self, piece: bytes) -> None:
        if not self.exchange.begun:
            await self._tell(self._head(HandlerResponse(b"", more=self.exchange.begin())))
        if piece:
            await self._tell({"type": "http.response.body", "body": piece, "more_body": True})

    async def finish(self, own: HandlerResponse) -> None:
        """Send the rest of the handler's response, unless the client has left."""
        if self._left is None:  # As `_tell`, which would be two more coroutines for each response.
            try:
                if not self.exchange.begun:
                    await self._send(self._head(own))
                await self._send({"type": "http.response.body", "body": own.body, "more_body": False})
            except OSError as left:
                self._left = left

    def _head(self, own: HandlerResponse) -> Message:
        start = self._start or {}
        if not (own.without or own.more):
            return start
        given = start.get("headers", ())
        headers = [one for one in given if bytes(one[0]).lower().decode("latin-1") not in own.without]
        headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in own.more]
        return {**start, "headers": headers}

    async def _tell(self, message: Message) -> None:
        """Send, unless the client has left; the handler goes on all the same."""
        if self._left is not None:
            return
        try:
            await self._send(message)
        except OSError as left:
            self._left = left


def _messages(reply: Reply, scope: Scope) -> tuple[Message, Message]:
    """A whole response, as it is sent."""
    headers, body = raw_headers_and_body(reply)
    status = reply.status
    if status in ENDS_THE_CONNECTION and str(scope.get("http_version", "1.1")).startswith("1"):
        headers.append((b"connection", b"close"))
    return (
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": body},
    )
