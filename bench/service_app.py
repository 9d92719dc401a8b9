"""
What the service is measured against: the same server around a bare application, with one durable write a request.

    python -m bench.service_app FOLDER bare      one durable write a request
    python -m bench.service_app FOLDER empty     no database at all: what the server and the framework cost
    python -m bench.service_app FOLDER hand      tokens, keys and a process for the database, by hand (`service_hand`)

The application is what somebody would write who needs no keys: one route that inserts a row and commits it, and one
that reads a row; a connection of its own, WAL, `synchronous=FULL`, statements on the event loop's thread (handing them
to another one costs more than they do). No token, no tenant, no foreign SQL.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sqlite3
import sys
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from onceward.cli.serve import event_loop
from onceward.service.network.server import server_of
from onceward.service.network.sockets import listen
from onceward.service.settings import Settings

WRITE, READ = "/write", "/read"
CREATE = "CREATE TABLE charges (id TEXT PRIMARY KEY, body TEXT NOT NULL)"
INSERT = "INSERT INTO charges (id, body) VALUES (?, ?)"
SELECT = "SELECT id, body FROM charges WHERE id = ?"
_PR_SET_PDEATHSIG = 1


def application(file: Path, *, writes: bool = True) -> Starlette:
    """The application, on a new database."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(CREATE)

    async def write(request: Request) -> JSONResponse:
        asked = await request.json()
        if not writes:
            return JSONResponse({"rowsWritten": 0, "lastInsertRowid": len(asked["params"])})
        connection.execute("BEGIN IMMEDIATE")
        done = connection.execute(INSERT, asked["params"])
        connection.execute("COMMIT")
        return JSONResponse({"rowsWritten": 1, "lastInsertRowid": done.lastrowid})

    async def read(request: Request) -> JSONResponse:
        asked = await request.json()
        return JSONResponse({"rows": connection.execute(SELECT, asked["params"]).fetchall()})

    return Starlette(routes=[Route(WRITE, write, methods=["POST"]), Route(READ, read, methods=["POST"])])


async def serve(file: Path, name: str) -> None:
    """Until killed."""
    if name == "hand":
        from bench import service_hand  # Here: it needs the statements above.

        app, token = service_hand.application(file), service_hand.TOKEN
    else:
        app, token = application(file, writes=name == "bare"), ""
    settings = Settings(port=0)
    listening = listen(settings.host, settings.port)
    address = f"http://127.0.0.1:{listening.port}"
    print(json.dumps({"address": address, "token": token, "pid": os.getpid()}), flush=True)
    await server_of(app, settings, listening).serve()


def main() -> None:
    """Serve from the folder that is named."""
    # Stopped processes do not see that a pipe was closed, so the kernel is asked to see to it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with asyncio.Runner(loop_factory=event_loop()) as runner:
        runner.run(serve(Path(sys.argv[1]) / "bare.db", sys.argv[2]))


if __name__ == "__main__":
    main()
