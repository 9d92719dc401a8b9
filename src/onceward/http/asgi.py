"""
The gate in front of any ASGI application: Starlette, FastAPI, Litestar, Django, or none of them.

    app.add_middleware(IdempotencyMiddleware, gate=gate, scope=tenant_of, profile="ietf")

A keyed request runs once; its answer is stored and replayed byte for byte. Everything else passes through untouched:
other methods, requests without a key, websockets, lifespan. The handler finds the operation in `scope["state"]`
(in Starlette and FastAPI: `request.state.operation`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import quote

from onceward._core.errors import HandlerFailed, OncewardError, UploadTimeout
from onceward._core.operation import Operation, Outcome
from onceward._core.reply import Reply
from onceward.gate import AsyncGate
from onceward.http.serving.answers import in_body
from onceward.http.serving.begun import Begun
from onceward.http.serving.problems import WELL_KNOWN, problem
from onceward.http.serving.profile import Profile
from onceward.http.serving.reception import Admitted, Incoming, Reception, ScopeOf, log
from onceward.http.serving.recording import Recording
from onceward.http.serving.routes import Route
from onceward.http.serving.running import FailedAnswer, RaisedAndRolledBack, Unkept, ended, remembers
from onceward.http.serving.spool import Spool

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

WITHOUT_BODY = (204, 205, 304)


class ClientLeft(Exception):
    """The client was gone before its request had arrived. Nothing was run."""


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
        **changes: Any,
    ) -> None:
        self.app = app
        self._reception = Reception(
            gate, scope=scope, profile_=profile, routes=routes, well_known=well_known, changes=changes
        )
        self._methods = self._reception.routes.methods
        self._well_known = well_known or "\0"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or not (
            scope["method"] in self._methods or scope["path"].startswith(self._well_known)
        ):
            await self.app(scope, receive, send)
            return
        admitted = self._reception.admit(_incoming(scope))
        if admitted is None:
            await self.app(scope, receive, send)
        elif isinstance(admitted, Reply):
            await _answer(admitted, send)
        else:
            await self._serve(admitted, scope, receive, send)

    async def _serve(self, admitted: Admitted, scope: Scope, receive: Receive, send: Send) -> None:
        """A keyed request, from its body to its answer."""
        reception, spool = self._reception, Spool(admitted.profile)
        exchange: _Exchange | None = None
        try:
            gate = reception.gate_for(await self._scope_of(admitted.incoming))
            await _upload(admitted, spool, receive)
            exchange = _Exchange(self.app, admitted, scope, receive, send, spool)
            outcome = await _gated(gate, admitted, exchange)
        except ClientLeft:
            return
        except FailedAnswer:
            assert exchange is not None
            await exchange.finish()  # The handler's own answer: it is about this attempt.
        except RaisedAndRolledBack as failure:
            assert failure.__cause__ is not None
            raise failure.__cause__ from None
        except OncewardError as error:
            if exchange is not None and (error is exchange.raised or exchange.has_begun):
                raise  # The handler's own; or too late to say anything else: the answer breaks off.
            await _answer(reception.refused(admitted, error), send)
        else:
            if exchange.fresh:
                await exchange.finish()
            else:
                await _answer(reception.answer(admitted, outcome), send)
        finally:
            spool.close()

    async def _scope_of(self, incoming: Incoming) -> object:
        scope_of = self._reception.scope_of
        if isinstance(scope_of, str):
            return scope_of
        found = scope_of(incoming)
        return await found if inspect.isawaitable(found) else found


def _gated(gate: AsyncGate, admitted: Admitted, exchange: _Exchange) -> Awaitable[Outcome[Any]]:
    """The handler under the gate: under its key, or as a step of its plan."""
    identity, profile = admitted.identity, admitted.profile
    request = admitted.fingerprint.digest()
    if identity.plan is None:
        return gate.call_on(
            admitted.terms, identity.key, exchange.run, request=request, name=admitted.name, probe=profile.probe
        )
    return gate.plan(identity.plan).call(
        identity.key, exchange.run, request=request, name=admitted.name, probe=profile.probe, **admitted.options
    )


async def _upload(admitted: Admitted, spool: Spool, receive: Receive) -> None:
    """Take the whole body in: what the key stands for is not known before."""
    declared = admitted.incoming.header("content-length")
    spool.expect(int(declared) if declared is not None and declared.isdecimal() else None)
    first = Begun(receive())
    if first.is_done and not first.answer.get("more_body", False):
        spool.write(_piece_of(first.answer, admitted))  # All of it is there, as most bodies are: no timer for that.
        spool.rewind()
        return
    seconds = admitted.profile.upload_seconds_max
    try:
        async with asyncio.timeout(seconds):
            message, more = await first, True
            while more:
                piece, more = _piece_of(message, admitted), message.get("more_body", False)
                if spool.on_disk:
                    await asyncio.to_thread(spool.write, piece)
                else:
                    spool.write(piece)
                if more:
                    message = await receive()
    except TimeoutError:
        raise UploadTimeout(f"the body did not arrive within {seconds:g} seconds; nothing was run") from None
    spool.rewind()


def _piece_of(message: Message, admitted: Admitted) -> bytes:
    """The piece of the body in a message, counted into the request's fingerprint; `ClientLeft` if it is none."""
    if message["type"] != "http.request":
        raise ClientLeft
    piece: bytes = message.get("body", b"")
    admitted.fingerprint.feed(piece)
    return piece


class _Exchange:
    """One run of the handler: its request from the spool, its answer into a recording."""

    def __init__(self, app: App, admitted: Admitted, scope: Scope, receive: Receive, send: Send, spool: Spool) -> None:
        self._app, self._admitted, self._scope = app, admitted, scope
        self._receive, self._send, self._spool = receive, send, spool
        self._recording = Recording(admitted.profile, admitted.terms.result_bytes_max)
        self._start: Message | None = None
        self._substitute: Reply | None = None
        self._changed = asyncio.Event()
        self._gone = False
        self._read_all = False
        self.fresh = False
        """Whether the handler ran, and its answer is the one to give."""
        self.has_begun = False
        """Whether the client has been sent something."""
        self.raised: BaseException | None = None
        """What the handler raised."""

    # --- running ---

    async def run(self, operation: Operation) -> Reply | Unkept:
        """What the gate runs."""
        profile = self._admitted.profile
        self.fresh = True
        scope = {
            **self._scope,
            "state": {**self._scope.get("state", {}), "operation": operation},
            # What would let the answer leave by another way than `send` is not offered.
            "extensions": {name: value for name, value in (self._scope.get("extensions") or {}).items()
                           if not name.startswith("http.response")},
        }  # fmt: skip
        try:
            await self._app(scope, self._replay_request, self._take_answer)
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
            self._changed.set()
        return ended(profile, self._recording.result())

    def _failure(self, error: Exception) -> Reply | Unkept:
        """The handler raised, and that is remembered: one answer for everybody."""
        log.exception("onceward: the handler of %s raised; its failure is remembered", self._admitted.name)
        if self.has_begun:
            return Unkept(500, error)
        self._substitute = problem(HandlerFailed(), self._admitted.profile)
        return self._substitute

    async def _replay_request(self) -> Message:
        """The handler's `receive`: the body; then nothing, until its answer is complete."""
        if not self._read_all:
            on_disk = self._spool.on_disk
            piece = await asyncio.to_thread(self._spool.read) if on_disk else self._spool.read()
            self._read_all = not on_disk or not piece
            return {"type": "http.request", "body": piece, "more_body": not self._read_all}
        # A client that leaves does not end what it began: the record wants the answer, and so will the client's retry.
        await self._changed.wait()
        return {"type": "http.disconnect"} if self._recording.complete or self._gone else await self._receive()

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
        elif kind == "http.response.body":
            if self._start is None or self._recording.complete:
                raise RuntimeError("the handler sent a body before its answer began, or after it ended")
            piece = self._recording.feed(message.get("body", b""), more=message.get("more_body", False))
            if not self._recording.keeps or self._recording.complete:
                self._changed.set()
            if self._recording.passing and not self._recording.complete:
                await self._pass(piece)

    async def _pass(self, piece: bytes) -> None:
        if not self.has_begun:
            self.has_begun = True
            await self._tell(self._start)
        if piece:
            await self._tell({"type": "http.response.body", "body": piece, "more_body": True})

    async def _tell(self, message: Message | None) -> None:
        """Send, unless the client is gone: what it began goes on all the same."""
        if self._gone or message is None:
            return
        try:
            await self._send(message)
        except OSError:
            self._gone = True

    async def finish(self) -> None:
        """The rest of the handler's answer: it is stored now, or does not have to be."""
        if self.has_begun:
            if self.raised is not None:
                raise self.raised  # It broke off in the middle; so does the answer.
            await self._tell({"type": "http.response.body", "body": self._recording.rest(), "more_body": False})
        elif self._substitute is not None:
            await _answer(self._substitute, self._send)
        elif self._admitted.profile.marker == "envelope" and isinstance(reply := self._recording.result(), Reply):
            await self._enveloped(reply)
        else:
            await self._tell(self._start)
            await self._tell({"type": "http.response.body", "body": self._recording.rest(), "more_body": False})

    async def _enveloped(self, reply: Reply) -> None:
        assert self._start is not None
        wrapped = in_body(reply, self._admitted.profile, replayed=False)
        headers = [pair for pair in self._start.get("headers", ()) if bytes(pair[0]).lower() != b"content-length"]
        headers.append((b"content-length", str(len(wrapped.body)).encode()))
        await self._tell({**self._start, "headers": headers})
        await self._tell({"type": "http.response.body", "body": wrapped.body, "more_body": False})


def _incoming(scope: Scope) -> Incoming:
    raw = scope.get("raw_path") or quote(scope["path"]).encode("ascii")
    headers = [(bytes(name).lower(), bytes(value)) for name, value in scope["headers"]]
    path, query = bytes(raw).partition(b"?")[0], bytes(scope.get("query_string") or b"")
    return Incoming(scope["method"], scope["path"], path, query, headers, scope)


async def _answer(reply: Reply, send: Send) -> None:
    """Send a whole answer."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers]
    if reply.status not in WITHOUT_BODY:
        headers.append((b"content-length", str(len(reply.body)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
