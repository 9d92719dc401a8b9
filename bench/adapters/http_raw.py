"""
The limits of HTTP: the raw store by hand, in front of the application.

One ASGI callable: the key from its header, SHA-256 over key and body, a claim, the application, a settle with the
response's bytes; a replay sends them again. No lease, no fence, no comparison of requests, no headers kept.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from bench.adapters.raw import RawGroup
from bench.adapters.raw_postgres import RawPostgresBatched
from bench.adapters.raw_redis import RawRedisBatched
from bench.http_app import application
from bench.work import Work

_KEY = b"idempotency-key"


class RawStore(Protocol):
    """Two methods of a raw adapter."""

    async def claim(self, id: bytes) -> str | None:
        """None: the key is ours. Otherwise what is stored under it."""

    async def settle(self, id: bytes, result: str) -> None:
        """Keep it."""


class ByHand:
    """In front of an application."""

    def __init__(self, app: Any, store: RawStore) -> None:
        self._app, self._store = app, store

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Keyed requests once; whatever else as it comes."""
        key = next((value for name, value in scope.get("headers", ()) if name == _KEY), None)
        if key is None:
            await self._app(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        id = sha256(key + b"\0" + body).digest()
        found = await self._store.claim(id)
        if found is not None:
            status, text = json.loads(found)
            await _respond(send, status, text.encode(), [(b"idempotency-replayed", b"true")])
            return
        kept: dict[str, Any] = {"body": b""}

        async def received() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def keep(message: Any) -> None:
            if message["type"] == "http.response.start":
                kept["status"] = message["status"]
            else:
                kept["body"] += message.get("body", b"")

        await self._app(scope, received, keep)
        await self._store.settle(id, json.dumps([kept["status"], kept["body"].decode()]))
        await _respond(send, kept["status"], kept["body"], [])


async def _respond(send: Any, status: int, body: bytes, more: list[tuple[bytes, bytes]]) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def sqlite(folder: Path, address: str) -> ByHand:
    """The raw group commit."""
    return ByHand(application(), RawGroup(folder, Work()))


def postgres(folder: Path, address: str) -> ByHand:
    """Claims and settles in batches."""
    return ByHand(application(), RawPostgresBatched(folder, Work(), address))


def redis(folder: Path, address: str) -> ByHand:
    """Claims and settles in pipelines."""
    return ByHand(application(), RawRedisBatched(folder, Work(), address))
