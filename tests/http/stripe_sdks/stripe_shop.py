"""
An API with Stripe's address and shapes, behind the middleware with profile "stripe": WIRE FOLDER.

    POST /v1/charges      description "raise" raises; "wait" waits until FOLDER/go is there; others answer at once

Each run of the handler is a line in FOLDER/effects. The port is printed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from onceward import AsyncGate, Gate

FOLDER = Path(sys.argv[2])
STORE = f"sqlite:///{FOLDER / 'shop.db'}"


def charge(body: bytes) -> bytes:
    """One charge."""
    fields = parse_qs(body.decode())
    amount, how = fields["amount"][0], fields["description"][0]
    with (FOLDER / "effects").open("a") as effects:
        effects.write(f"{amount}\n")
    number = (FOLDER / "effects").read_text().splitlines().count(amount)
    if how == "raise":
        raise RuntimeError("the till is stuck")
    while how == "wait" and not (FOLDER / "go").exists():
        time.sleep(0.01)
    return json.dumps({"id": f"ch_{amount}_{number}", "object": "charge", "amount": int(amount)}).encode()


def asgi() -> None:
    import uvicorn

    from onceward.http.asgi import IdempotencyMiddleware

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        answer = await asyncio.to_thread(charge, body)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def serve() -> None:
        gated = IdempotencyMiddleware(app, gate=AsyncGate(STORE, scope="test:a"), scope="test:shop", profile="stripe")
        server = uvicorn.Server(uvicorn.Config(gated, port=0, lifespan="off", log_level="critical"))
        serving = asyncio.ensure_future(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)
        await serving

    asyncio.run(serve())


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


class Threaded(__import__("socketserver").ThreadingMixIn, WSGIServer):  # type: ignore[misc]
    daemon_threads = True


def blocking(app: Any) -> None:
    server = make_server("127.0.0.1", 0, app, Threaded, Quiet)
    print(server.server_port, flush=True)
    server.serve_forever()


def wsgi() -> None:
    from onceward.http.wsgi import IdempotencyMiddleware

    def app(environ: Any, start_response: Any) -> list[bytes]:
        answer = charge(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))])
        return [answer]

    blocking(IdempotencyMiddleware(app, gate=Gate(STORE, scope="test:a"), scope="test:shop", profile="stripe"))


def django() -> None:
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path

    def view(request: Any) -> Any:
        return HttpResponse(charge(request.body), content_type="application/json")

    module = sys.modules[__name__]
    module.urlpatterns = [path("v1/charges", view)]  # type: ignore[attr-defined]
    settings.configure(
        ROOT_URLCONF=__name__,
        SECRET_KEY="test",
        ALLOWED_HOSTS=["*"],
        MIDDLEWARE=["onceward.http.django.IdempotencyMiddleware"],
        ONCEWARD={"GATE": Gate(STORE, scope="test:a"), "SCOPE": "test:shop", "PROFILE": "stripe"},
        LOGGING_CONFIG=None,
    )
    django.setup()
    blocking(get_wsgi_application())


if __name__ == "__main__":
    logging.disable()
    os.setpgid(0, 0)
    wires: dict[str, Callable[[], None]] = {"asgi": asgi, "wsgi": wsgi, "django": django}
    wires[sys.argv[1]]()
