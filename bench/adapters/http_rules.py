"""
The limit of a replay that keeps our rules: every question of ours, asked in one function by hand.

The same record is found by the same id, and the request is compared by the same fingerprint. There is no profile, no
route, no plan, no upload in pieces, no repeated header: whatever is not a plain replay goes to the middleware.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware

from bench.http_app import application
from onceward import AsyncGate
from onceward._core.canonical import canonical_json
from onceward._core.capabilities import capabilities_of
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.keys import record_id
from onceward._core.record import replays
from onceward._core.reply import unpack_reply
from onceward.http.asgi import IdempotencyMiddleware
from onceward.http.server.request_fingerprint import DOMAIN, sized

_METHOD = DOMAIN + sized(b"POST")
_KIND = (1).to_bytes(8, "big") + sized(b"application/json")
_HEAD = [(b"content-type", b"application/json"), (b"idempotency-replayed", b"true")]


class RulesByHand:
    """In front of an application: a replay in one function, everything else by the middleware."""

    def __init__(self, app: Any, gate: AsyncGate) -> None:
        self._rest = IdempotencyMiddleware(app, gate=gate, scope=lambda request: "live:acme")
        self._peek: Any = capabilities_of(gate.store).peek

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        key = dict(scope["headers"]).get(b"idempotency-key") if scope["type"] == "http" else None
        if key is None:
            await self._rest(scope, receive, send)
            return
        message = await receive()
        form = b"json\0" + sha256(_KIND + b"\1" + canonical_json(message["body"])).digest()
        asked = sha256(_METHOD + sized(scope["raw_path"]) + sized(scope["query_string"]) + form).digest()
        seen = self._peek(record_id("key", "live:acme", "live:" + key.decode("ascii")))
        if seen is not None and replays(seen, fingerprint_canonical(asked)):
            reply = unpack_reply(seen.result)
            headers = [*_HEAD, (b"content-length", b"%d" % len(reply.body))]
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            await send({"type": "http.response.body", "body": reply.body})
            return

        async def again() -> Any:
            return message

        await self._rest(scope, again, send)


def sqlite(folder: Path, address: str) -> Starlette:
    """On a store whose records can be looked at without waiting."""
    return application([Middleware(RulesByHand, gate=AsyncGate(address.format(folder=folder), scope="live"))])
