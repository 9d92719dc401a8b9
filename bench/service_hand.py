"""
The service by hand: the least that has to be done for its rows, and so their limit.

    python -m bench.service_app FOLDER hand

A Starlette application on the same server that looks a bearer token's hash up and hands the request to a process of its
own: a tenant's SQL must not run where tokens are. There the key, its answer and the business row commit together, and
what has queued up meanwhile shares the commit; a replay is a SELECT. Reads have a process with a connection of their
own, so that they wait for no disk. No fingerprint, no checks, no accounts, no quota, no journal, no log. A process of
the role `rules` runs the engine's own code in place of that.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from bench.service_app import CREATE, INSERT, READ, SELECT, WRITE
from onceward.runtime.garbage import look_for_garbage_rarely
from onceward.service.sql import Keyed, LocalDatabase
from onceward.service.web.whole_response import try_to_send

TOKEN = secrets.token_urlsafe(32)
TOGETHER = 64
"""Requests in one commit, as many as the service has."""
_KEYS = "CREATE TABLE keys (key TEXT PRIMARY KEY, answer BLOB NOT NULL) WITHOUT ROWID"
_FIND, _KEEP = "SELECT answer FROM keys WHERE key = ?", "INSERT INTO keys (key, answer) VALUES (?, ?)"
_SIZE = 4
_JSON = (b"content-type", b"application/json")
_REPLAYED = (b"idempotency-replayed", b"true")

_requests = msgspec.msgpack.Decoder(list[tuple[str | None, list[Any]]])
_answers = msgspec.msgpack.Decoder(list[tuple[bytes, bool]])


class _Answer(Response):
    """An answer in one piece, as the service sends its own."""

    def __init__(self, body: bytes, *, replayed: bool = False) -> None:
        self.status_code, self.background, self.body = 200, None, body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), _JSON, *([_REPLAYED] if replayed else [])]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        if not try_to_send(scope, self.status_code, self.raw_headers, self.body):
            await super().__call__(scope, receive, send)


class DatabaseProcess(asyncio.Protocol):
    """A process that has the database: one group of requests is with it, the others wait."""

    def __init__(self, file: Path, role: str) -> None:
        self._ours, theirs = socket.socketpair()
        handle = str(theirs.fileno())
        subprocess.Popen([sys.executable, "-m", __name__, str(file), role, handle], pass_fds=(theirs.fileno(),))
        theirs.close()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: Any = None
        self._waiting: list[tuple[tuple[str | None, list[Any]], asyncio.Future[Any]]] = []
        self._busy: list[asyncio.Future[Any]] = []
        self._received = bytearray()

    async def ask(self, key: str | None, params: list[Any]) -> Any:
        """The answer, and whether it is a replay."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            await self._loop.create_connection(lambda: self, sock=self._ours)
        future = self._loop.create_future()
        self._waiting.append(((key, params), future))
        if not self._busy and len(self._waiting) == 1:
            self._loop.call_soon(self._send)  # With whatever else this turn of the loop brings.
        return await future

    def connection_made(self, transport: Any) -> None:
        """It is there."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers, or a part of them."""
        self._received += data
        size = int.from_bytes(self._received[:_SIZE], "big")
        if len(self._received) < _SIZE + size:
            return
        answers, self._received = _answers.decode(self._received[_SIZE:]), bytearray()
        futures, self._busy = self._busy, []
        for future, answer in zip(futures, answers, strict=True):
            if not future.done():
                future.set_result(answer)
        self._send()

    def close(self) -> None:
        """Let the process end."""
        if self._transport is not None:
            self._transport.close()

    def _send(self) -> None:
        if self._waiting and not self._busy and self._transport is not None:
            group, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
            self._busy = [future for _, future in group]
            text = msgspec.msgpack.encode([request for request, _ in group])
            self._transport.write(len(text).to_bytes(_SIZE, "big") + text)


def make_database(file: Path) -> None:
    """A new database, with a table of charges and one of keys."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(CREATE)
    connection.execute(_KEYS)
    connection.close()


def application(file: Path) -> Starlette:
    """The application, on a new database."""
    make_database(file)
    writer, reader = DatabaseProcess(file, "write"), DatabaseProcess(file, "read")
    known = {sha256(b"Bearer " + TOKEN.encode()).digest()}

    def is_known(request: Request) -> bool:
        sent = [value for name, value in request.scope["headers"] if name == b"authorization"]
        return len(sent) == 1 and sha256(sent[0]).digest() in known

    async def write(request: Request) -> Response:
        if not is_known(request):
            return Response(status_code=401)
        asked = msgspec.json.decode(await request.body())
        key = next((value for name, value in request.scope["headers"] if name == b"idempotency-key"), None)
        answer, replayed = await writer.ask(None if key is None else key.decode("latin-1"), asked["params"])
        return _Answer(answer, replayed=replayed)

    async def read(request: Request) -> Response:
        if not is_known(request):
            return Response(status_code=401)
        answer, _ = await reader.ask(None, msgspec.json.decode(await request.body())["params"])
        return _Answer(answer)

    look_for_garbage_rarely()
    return Starlette(routes=[Route(WRITE, write, methods=["POST"]), Route(READ, read, methods=["POST"])])


def _write(connection: sqlite3.Connection, group: list[tuple[str | None, list[Any]]]) -> list[tuple[bytes, bool]]:
    answers: list[tuple[bytes, bool]] = []
    execute = connection.execute
    execute("BEGIN IMMEDIATE")
    for key, params in group:
        found = None if key is None else execute(_FIND, (key,)).fetchone()
        if found is not None:
            answers.append((found[0], True))
            continue
        done = execute(INSERT, params)
        answer = b'{"rowsWritten":1,"lastInsertRowid":%d}' % (done.lastrowid or 0)
        if key is not None:
            execute(_KEEP, (key, answer))
        answers.append((answer, False))
    execute("COMMIT")
    return answers


def _read(connection: sqlite3.Connection, group: list[tuple[str | None, list[Any]]]) -> list[tuple[bytes, bool]]:
    encode = msgspec.json.encode
    return [(encode({"rows": connection.execute(SELECT, params).fetchall()}), False) for _, params in group]


def _write_by_rules(database: LocalDatabase, group: list[tuple[str | None, list[Any]]]) -> list[tuple[bytes, bool]]:
    answers = []
    for key, params in group:
        done = database.query(INSERT, params, identity=None if key is None else Keyed("test:hand", key))
        answers.append((cast("bytes", done.given), done.replayed))
    return answers


def _serve_database(file: str, role: str, link: socket.socket) -> None:
    """Do what comes, until nobody is there any more."""
    run: Callable[[list[tuple[str | None, list[Any]]]], list[tuple[bytes, bool]]]
    if role == "rules":
        run = partial(_write_by_rules, LocalDatabase(file))
    else:
        connection = sqlite3.connect(file, isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        run = partial(_write if role == "write" else _read, connection)
    look_for_garbage_rarely()
    received = b""
    while more := link.recv(1 << 20):
        received += more
        if len(received) >= _SIZE and len(received) - _SIZE >= int.from_bytes(received[:_SIZE], "big"):
            text = msgspec.msgpack.encode(run(_requests.decode(received[_SIZE:])))
            received = b""
            link.sendall(len(text).to_bytes(_SIZE, "big") + text)


if __name__ == "__main__":
    _serve_database(sys.argv[1], sys.argv[2], socket.socket(fileno=int(sys.argv[3])))
