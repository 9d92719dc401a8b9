"""
The gate in front of any ASGI application: Starlette, FastAPI, Litestar, Django, or none of them.

    app.add_middleware(IdempotencyMiddleware, gate=gate, scope=tenant_of, profile="ietf")

A keyed request runs once; its answer is stored and replayed byte for byte. Everything else passes through untouched:
other methods, requests without a key, websockets, lifespan. The handler finds the operation in `scope["state"]`
(in Starlette, FastAPI and Litestar: `request.state.operation`).

The end of an answer leaves when the answer is stored, and it is stored when the handler has returned: then whatever
commits after the answer (a FastAPI dependency with `yield`) has committed. `answer_first=True` does not wait for that.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias, Unpack
from urllib.parse import quote

from onceward._core.errors import (
    ConfigurationError,
    HandlerFailed,
    NotSettled,
    OncewardError,
    ResultInvalid,
)
from onceward._core.operation import Operation, Outcome
from onceward._core.reply import Reply
from onceward.gate import AsyncGate
from onceward.http.serving.answers import ABOUT_THE_BODY, enveloped, settled_answer
from onceward.http.serving.changes import ProfileChanges
from onceward.http.serving.discovering import routes_of
from onceward.http.serving.problems import WELL_KNOWN, refusal
from onceward.http.serving.profile import Profile
from onceward.http.serving.reception import Admitted, Incoming, Reception, ScopeOf, log
from onceward.http.serving.recording import Recording
from onceward.http.serving.routes import Route
from onceward.http.serving.running import (
    FailedAnswer,
    RaisedAndRolledBack,
    Unkept,
    ended,
    refuses_by_itself,
    remembers,
)
from onceward.http.serving.scoping import unknown
from onceward.http.serving.spool import Spool
from onceward.http.serving.upload import ClientLeft, receive_body
from onceward.http.serving.weight import off_the_loop

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

WITHOUT_BODY = frozenset({204, 205, 304})
OPERATION = "operation"
"""Where the handler finds its operation: `scope["state"]["operation"]`."""
RENDERED = "onceward.rendered"
ENDS_THE_CONNECTION = frozenset({408, 413})
"""Refusals in the middle of a body: the rest of it is not wanted."""


def rendered(request: Any) -> Reply:
    """
    The answer that the framework has made of what the handler returned, for whoever settles inside a transaction with
    it: `operation.settle_inside(session, rendered(request))`.

    `request` is Starlette's or FastAPI's, or the ASGI scope. For code that runs after the answer and before the commit,
    such as a dependency with `yield`; before that there is no answer, and this is refused.
    """
    scope = getattr(request, "scope", request)
    found: Callable[[], Reply] | None = (scope.get("state") or {}).get(RENDERED)
    if found is None:
        raise ConfigurationError("this request has no operation: it has no key, or its route is not treated")
    return found()


class IdempotencyMiddleware:
    """
    Keyed requests run once.

    `scope` says who is calling: a function (or async function) of the request, such as
    `lambda request: f"live:{request.raw['state']['tenant']}"`, taken from its authentication; or one text, where there
    is one caller only. Every field of a profile may be given as a keyword, and otherwise for single `routes`.
    """

    def __init__(
        self,
        app: App,
        *,
        gate: AsyncGate,
        scope: ScopeOf | None = None,
        profile: str | Profile = "default",
        routes: Iterable[Route] = (),
        well_known: str | None = WELL_KNOWN,
        **changes: Unpack[ProfileChanges],
    ) -> None:
        if not isinstance(gate, AsyncGate):
            raise ConfigurationError(f"an ASGI application awaits: give it an AsyncGate, not a {type(gate).__name__}")
        self.app = app
        self._reception = Reception(
            gate, scope=scope, profile_=profile, routes=routes, well_known=well_known, changes=changes, repeats=True
        )
        self._methods = self._reception.routes.methods
        self._well_known = well_known or "\0"
        self._has_looked = False

    # Frameworks type these three differently (Starlette as mappings, Litestar as TypedDicts), and all may call it.
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection."""
        if not self._has_looked:
            self._look(scope)
        if scope["type"] != "http" or not (
            scope["method"].upper() in self._methods or scope["path"].startswith(self._well_known)
        ):
            await self.app(scope, receive, send)
            return
        admitted = self._reception.admit(_incoming(scope))
        if admitted is None or (isinstance(admitted, Admitted) and _is_gated(scope)):
            await self.app(scope, receive, send)
        elif isinstance(admitted, Reply):
            await _answer(admitted, scope, send)
        else:
            await self._serve(admitted, scope, receive, send)

    def _look(self, scope: Scope) -> None:
        """Learn the application's routes, once: at its start, or when its first request comes."""
        self._has_looked = True
        known = routes_of(scope.get("app"))
        self._reception.learn(routes_of(self.app) if known is None else known)
        self._methods = self._reception.routes.methods

    async def _serve(self, admitted: Admitted, scope: Scope, receive: Receive, send: Send) -> None:
        """A keyed request, from its body to its answer."""
        try:
            gate = self._reception.gate_for(await self._scope_of(admitted.incoming), admitted.profile)
        except OncewardError as error:
            await _answer(self._reception.refused(admitted, error), scope, send)
            return
        if gate is None:
            await self.app(scope, receive, send)
            return
        spool = Spool(admitted.profile)
        exchange = _Exchange(self.app, admitted, scope, receive, send, spool, self._reception.well_known)
        try:
            reply = await self._gated(gate, admitted, exchange, spool, receive)
            if reply is None:
                await exchange.finish()
            else:
                await _answer(reply, scope, send)
            await exchange.until_returned()
        except ClientLeft:
            return
        finally:
            exchange.abandon()
            spool.close()

    async def _gated(
        self, gate: AsyncGate, admitted: Admitted, exchange: _Exchange, spool: Spool, receive: Receive
    ) -> Reply | None:
        """Run it under the gate. The answer to give; None: the handler's own."""
        reception = self._reception
        try:
            await receive_body(admitted, spool, receive)
            request = await off_the_loop(admitted.fingerprint.digest, admitted.fingerprint.size)
            outcome = await _called(gate, admitted, request, exchange)
        except FailedAnswer:
            return None  # It is about this attempt.
        except RaisedAndRolledBack:
            return None  # What was raised is raised again.
        except OncewardError as error:
            if error is exchange.raised or exchange.has_begun:
                raise  # The handler's own; or too late to say anything else: the answer breaks off.
            if isinstance(error, NotSettled) and exchange.refuses_by_itself:
                return None
            return reception.refused(admitted, error)
        exchange.outcome = outcome
        if exchange.fresh and admitted.profile.transactional:
            return settled_answer(outcome, admitted.profile, exchange.result)
        return None if exchange.fresh else reception.answer(admitted, outcome)

    async def _scope_of(self, incoming: Incoming) -> object:
        scope_of = self._reception.scope_of
        if isinstance(scope_of, str):
            return scope_of
        try:
            found = scope_of(incoming)
            return await found if inspect.isawaitable(found) else found
        except Exception as error:
            raise unknown(error) from error


def _called(gate: AsyncGate, admitted: Admitted, request: bytes, exchange: _Exchange) -> Awaitable[Outcome[Any]]:
    """The handler under the gate: under its key, or as a step of its plan."""
    identity, probe = admitted.identity, admitted.profile.probe
    if identity.plan is None:
        return gate.call_on(
            admitted.terms, identity.key, exchange.run, request=request, name=admitted.name, probe=probe
        )
    return gate.plan(identity.plan).call(
        identity.key, exchange.run, request=request, name=admitted.name, probe=probe, **admitted.options
    )


class _Exchange:
    """One run of the handler: its request from the spool, its answer into a recording."""

    def __init__(
        self,
        app: App,
        admitted: Admitted,
        scope: Scope,
        receive: Receive,
        send: Send,
        spool: Spool,
        pages: str | None,
    ) -> None:
        self._app, self._admitted, self._scope = app, admitted, scope
        self._receive, self._send, self._spool, self._pages = receive, send, spool, pages
        self._recording = Recording(admitted.profile, admitted.terms.result_bytes_max)
        self._start: Message | None = None
        self._substitute: Reply | None = None
        self._as_it_came: Scope = {}
        if admitted.terms.retry is not None:
            self._as_it_came = {**scope, "state": dict(scope.get("state") or {})}
        self._hears = asyncio.Event()
        self._answered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._left: OSError | None = None
        self._read_all = False
        self.fresh = False
        """Whether the handler ran, and its answer is the one to give."""
        self.has_begun = False
        """Whether the client has been sent something."""
        self.raised: BaseException | None = None
        """What the handler raised."""
        self.outcome: Outcome[Any] | None = None
        """What the gate made of it."""

    @property
    def result(self) -> Reply | Unkept:
        """What the handler answered, as it is stored."""
        return self._recording.result()

    @property
    def refuses_by_itself(self) -> bool:
        """Whether the handler's own answer says that it did not work."""
        return self._recording.complete and refuses_by_itself(self.result)

    def rendered(self) -> Reply:
        """The handler's whole answer; refused while there is none."""
        if not self._recording.complete:
            raise ConfigurationError(
                "the answer is not rendered yet: rendered(request) is for what runs after it, such as the code after "
                "`yield` in a dependency of FastAPI 0.118 or later"
            )
        result = self.result
        if isinstance(result, Unkept):
            raise ResultInvalid("this answer is too large to be kept, so it cannot be settled with")
        return result

    # --- running ---

    async def run(self, operation: Operation) -> Reply | Unkept:
        """What the gate runs."""
        profile = self._admitted.profile
        if self.fresh:
            self._begin_again()
        self.fresh = True
        self._hand_over(operation)
        try:
            if profile.answer_first and not profile.transactional:  # Its last word is its commit.
                await self._until_answered()
            else:
                await self._app(self._scope, self._replay_request, self._take_answer)
            if not self._recording.complete:
                raise RuntimeError("the handler returned without completing its answer")
        except Exception as error:
            self.raised = error
            if remembers(profile, 500):
                return self._failure(error)
            if profile.guarantee == "atomic":
                raise RaisedAndRolledBack from error
            raise
        finally:
            self._hears.set()
        return ended(profile, self._recording.result(), operation)

    def _begin_again(self) -> None:
        """Another attempt: the request as it came, and nothing of the answer that failed."""
        if self.has_begun:
            raise RuntimeError("a part of the handler's answer has been sent, so it cannot be run again")
        self._scope.clear()
        self._scope.update({**self._as_it_came, "state": dict(self._as_it_came["state"])})
        self._spool.rewind()
        self._recording = Recording(self._admitted.profile, self._admitted.terms.result_bytes_max)
        self._start, self._read_all, self.raised = None, False, None
        self._hears, self._answered = asyncio.Event(), asyncio.Event()

    def _hand_over(self, operation: Operation) -> None:
        """
        The handler's scope is the one that came in: what routers write into it is read by the middlewares outside.

        What would let the answer leave by another way than `send` is not offered.
        """
        scope = self._scope
        if scope.get("state") is None:
            scope["state"] = {}
        scope["state"][OPERATION] = operation
        scope["state"][RENDERED] = self.rendered
        if offered := scope.get("extensions"):
            scope["extensions"] = {name: one for name, one in offered.items() if not name.startswith("http.response")}

    async def _until_answered(self) -> None:
        """Run the handler until its answer is complete; it may go on after that."""
        self._task = asyncio.ensure_future(self._app(self._scope, self._replay_request, self._take_answer))
        self._task.add_done_callback(lambda _: self._answered.set())
        try:
            await self._answered.wait()
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait({self._task})
        if not self._recording.complete:
            await self._task  # What it raised; or it let itself be cancelled, or not, as it likes.

    async def until_returned(self) -> None:
        """Wait for what the handler does after its answer."""
        if self._task is not None:
            await self._task

    def abandon(self) -> None:
        """Nobody waits for the handler any more."""
        if self._task is not None:
            self._task.cancel()

    def _failure(self, error: Exception) -> Reply | Unkept:
        """The handler raised, and that is remembered: one answer for everybody."""
        log.exception("onceward: the handler of %s raised; its failure is remembered", self._admitted.name)
        if self.has_begun:
            return Unkept(500, error)
        self.raised = None
        self._substitute = refusal(HandlerFailed(), self._admitted.profile, pages=self._pages)
        return self._substitute

    async def _replay_request(self) -> Message:
        """The handler's `receive`: the body; then nothing, until its answer is complete."""
        if not self._read_all:
            on_disk = self._spool.on_disk
            piece = await asyncio.to_thread(self._spool.read) if on_disk else self._spool.read()
            self._read_all = not on_disk or not piece
            return {"type": "http.request", "body": piece, "more_body": not self._read_all}
        # A client that leaves does not end what it began: the record wants the answer, and so will the client's retry.
        # Only one whose answer is too long to be kept learns of it: nobody would see the end of that.
        await self._hears.wait()
        if self._recording.complete or self._left is not None:
            return {"type": "http.disconnect"}
        return await self._receive()

    # --- answering ---

    async def _take_answer(self, message: Message) -> None:
        """The handler's `send`."""
        kind = message["type"]
        if kind == "http.response.start":
            if self._start is not None:
                raise RuntimeError("the handler began its answer twice")
            self._start = message
            headers = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
            self._recording.begin(message["status"], headers)
            if self._recording.passing:
                await self._pass(b"")
        elif kind == "http.response.body":
            if self._start is None or self._recording.complete:
                raise RuntimeError("the handler sent a body before its answer began, or after it ended")
            more = message.get("more_body", False)
            piece = self._recording.feed(message.get("body", b""), more=more)
            if not more:
                self._hears.set()
                self._answered.set()
            elif self._recording.passing:
                await self._pass(piece)
                self._heed()

    def _heed(self) -> None:
        """If the answer is too long to be kept: let the handler learn that its client has left."""
        if not self._recording.keeps:
            self._hears.set()
            if self._left is not None:
                raise self._left

    async def _pass(self, piece: bytes) -> None:
        if not self.has_begun:
            self.has_begun = True
            self._notice()
            await self._tell(self._start)
        if piece:
            await self._tell({"type": "http.response.body", "body": piece, "more_body": True})

    async def _tell(self, message: Message | None) -> None:
        """Send, unless the client is gone: what it began goes on all the same."""
        if self._left is not None or message is None:
            return
        try:
            await self._send(message)
        except OSError as left:
            self._left = left

    async def finish(self) -> None:
        """The rest of the handler's answer, or what it raised. It is stored now, or does not have to be."""
        if self.raised is not None:
            raise self.raised
        if self._substitute is not None:
            await _answer(self._substitute, self._scope, self._send)
            return
        body = self._recording.rest()
        if not self.has_begun:
            wrapped = enveloped(self._recording.result(), self._admitted.profile, self.outcome)
            if wrapped is not None:
                body = wrapped
                self._change_head(without=ABOUT_THE_BODY, more=(("content-length", str(len(body))),))
            self._notice()
            await self._tell(self._start)
        await self._tell({"type": "http.response.body", "body": body, "more_body": False})

    def _notice(self) -> None:
        if notice := self._recording.notice:
            self._change_head(more=notice)

    def _change_head(self, *, without: frozenset[str] = frozenset(), more: tuple[tuple[str, str], ...] = ()) -> None:
        start = self._start or {}
        given = start.get("headers", ())
        headers = [one for one in given if bytes(one[0]).lower().decode("latin-1") not in without]
        headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in more]
        self._start = {**start, "headers": headers}


def _incoming(scope: Scope) -> Incoming:
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or quote(path, errors="surrogatepass").encode("ascii")
    headers = [(name.lower(), value) for name, value in scope["headers"]]
    method: str = scope["method"].upper()  # As most frameworks read it: to them a "post" is a POST.
    return Incoming(method, path, raw.partition(b"?")[0], scope.get("query_string") or b"", headers, scope)


def _is_gated(scope: Scope) -> bool:
    """Whether a middleware of ours further out runs this request already: it is one operation, not two."""
    return isinstance((scope.get("state") or {}).get(OPERATION), Operation)


async def _answer(reply: Reply, scope: Scope, send: Send) -> None:
    """Send a whole answer."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers]
    body = b"" if reply.status in WITHOUT_BODY else reply.body
    if reply.status not in WITHOUT_BODY:
        headers.append((b"content-length", str(len(body)).encode()))
    if reply.status in ENDS_THE_CONNECTION and str(scope.get("http_version", "1.1")).startswith("1"):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
