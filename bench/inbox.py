"""The applications of the inbox group: bare, a durable insert by hand, and the inbox while all its handlers sleep."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward.messaging.inbox import AsyncInbox, Source, WebhookEvent, handler
from onceward.messaging.webhooks import PacSpace, Secret

SECRET = Secret.plain("a secret that is long enough")
SLEEP_SECONDS = 10.0
SLEEPERS = 4
RECEIVED = b'{"received": true}'


def _app(receive: Any, lifespan: Any = None) -> Starlette:
    return Starlette(routes=[Route("/hooks/pac", receive, methods=["POST"])], lifespan=lifespan)


def bare(folder: Path, address: str) -> Starlette:
    """Reads the body and answers."""

    async def receive(request: Request) -> Response:
        await request.body()
        return Response(RECEIVED, media_type="application/json")

    return _app(receive)


def hand(folder: Path, address: str) -> Starlette:
    """Checks nothing, and inserts the id and the body durably, on the event loop."""
    connection = sqlite3.connect(folder / "hand.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE events (id TEXT PRIMARY KEY, body BLOB) STRICT")

    async def receive(request: Request) -> Response:
        body = await request.body()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO events VALUES (?, ?)", (request.headers["x-event-id"], body))
        connection.execute("COMMIT")
        return Response(RECEIVED, media_type="application/json")

    return _app(receive)


def ours(folder: Path, address: str) -> Starlette:
    """The inbox, with as many handlers asleep as there are threads."""

    @handler(guarantee="repeatable")
    def sleep(event: WebhookEvent) -> None:
        time.sleep(SLEEP_SECONDS)

    inbox = AsyncInbox(f"sqlite:///{folder}/ours.db", scope="test:bench")
    inbox.add(Source("pac", PacSpace(), [SECRET], sleep))

    @asynccontextmanager
    async def working(app: Starlette) -> AsyncIterator[None]:
        async with inbox.working(SLEEPERS):
            yield

    async def receive(request: Request) -> Response:
        reply = await inbox.answer("pac", request.headers.items(), await request.body())
        return Response(reply.body, reply.status, dict(reply.headers))

    return _app(receive, working)
