"""
The shop in each framework. `python shop_frameworks.py NAME FOLDER` serves it, and says on which port.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from shop_floor import COOKIE, ROUTES, Said, Shop, scope_of

from onceward import AsyncGate, Gate
from onceward.http.wsgi import IdempotencyMiddleware
from onceward.runtime import failpoints

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def plain(shop: Shop) -> Any:
    """No framework."""

    def app(environ: Any, start_response: Any) -> Any:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        said = shop.handle(environ["PATH_INFO"], body, environ.get("onceward.operation"))
        headers = [*said.headers.items(), ("Set-Cookie", COOKIE)]
        if isinstance(said.body, bytes):
            headers.append(("Content-Length", str(len(said.body))))
        start_response(f"{said.status} Said", headers)
        return [said.body] if isinstance(said.body, bytes) else said.body

    return app


def flask(shop: Shop) -> Any:
    """Flask, with the middleware around its WSGI application."""
    from flask import Flask, Response, request

    app = Flask("shop")

    @app.route("/<path:path>", methods=METHODS)
    def anything(path: str) -> Response:
        said = shop.handle(request.path, request.get_data(), request.environ.get("onceward.operation"))
        response = Response(said.body, said.status, said.headers)
        response.headers["Set-Cookie"] = COOKIE
        return response

    return app.wsgi_app


def configure_django(shop: Shop, view: Any, **gates: Any) -> None:
    """Django's settings, in this process."""
    import django
    from django.conf import settings
    from django.urls import re_path

    settings.configure(
        DEBUG=False,
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="test",
        ROOT_URLCONF=(re_path("^.*$", view),),
        MIDDLEWARE=["onceward.http.django.IdempotencyMiddleware"],
        ONCEWARD={**gates, "SCOPE": scope_of, "ROUTES": ROUTES},
        DATABASES={},
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "rest_framework"],
        LOGGING_CONFIG=None,
        REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None},
    )
    django.setup()


def django_response(said: Said) -> Any:
    """A handler's answer, as Django has it."""
    from django.http import HttpResponse, StreamingHttpResponse

    kind = HttpResponse if isinstance(said.body, bytes) else StreamingHttpResponse
    response = kind(said.body, status=said.status, headers=said.headers)
    response.set_cookie("session", "secret")
    return response


def django_sync(shop: Shop, gate: Gate) -> Any:
    """Django's plain views, under WSGI."""
    from django.core.wsgi import get_wsgi_application

    def view(request: Any) -> Any:
        return django_response(shop.handle(request.path, request.body, getattr(request, "operation", None)))

    configure_django(shop, view, GATE=gate)
    return get_wsgi_application()


def django_async(shop: Shop, gates: dict[str, Any]) -> Any:
    """Django's async views, under ASGI."""
    from asgiref.sync import sync_to_async
    from django.core.asgi import get_asgi_application

    async def view(request: Any) -> Any:
        if request.path == "/running":  # How many keyed requests have not come to their end.
            running = [task for task in asyncio.all_tasks() if "AsyncExchange" in repr(task)]
            return django_response(Said(200, {}, str(len(running)).encode()))
        body, operation = request.body, getattr(request, "operation", None)
        said = await sync_to_async(shop.handle, thread_sensitive=False)(request.path, body, operation)
        return django_response(said if isinstance(said.body, bytes) else said._replace(body=awaiting(said.body)))

    async def awaiting(pieces: Any) -> Any:
        while (piece := await sync_to_async(next, thread_sensitive=False)(pieces, None)) is not None:
            yield piece

    configure_django(shop, view, **gates)
    return get_asgi_application()


def rest_framework(shop: Shop, gate: Gate) -> Any:
    """Django REST framework: its parsers, its renderers, its responses."""
    from django.core.wsgi import get_wsgi_application

    def view(request: Any) -> Any:
        import json

        from rest_framework.response import Response
        from rest_framework.views import APIView

        class Anything(APIView):
            def answer(self, request: Any) -> Any:
                body = request._request.body
                said = shop.handle(request.path, body, getattr(request._request, "operation", None))
                if said.status != 201 or not isinstance(said.body, bytes):
                    return django_response(said)
                assert request.data == json.loads(body or b"{}")
                response = Response(json.loads(said.body), status=said.status, headers=said.headers)
                response.set_cookie("session", "secret")
                return response

            get = head = post = put = patch = delete = options = answer

        return Anything.as_view()(request)

    configure_django(shop, view, GATE=gate)
    return get_wsgi_application()


def django_project(folder: Path, gates: dict[str, Any], awaits: bool) -> Any:
    """Django with users and a database."""
    from django_project import make

    return make(folder, gates, awaits=awaits)


def application(name: str, folder: Path) -> Any:
    """The shop, behind the gate, in that framework."""
    shop, store = Shop(folder), f"sqlite:///{folder / 'keys.db'}"
    gate = Gate(store, scope="test:nobody")
    options: dict[str, Any] = {"gate": gate, "scope": scope_of, "routes": ROUTES}
    match name:
        case "wsgi" | "wsgiref":
            return IdempotencyMiddleware(plain(shop), **options)
        case "flask":
            return IdempotencyMiddleware(flask(shop), **options)
        case "django":
            return django_sync(shop, gate)
        case "django-async":
            return django_async(shop, {"ASYNC_GATE": lambda: AsyncGate(store, scope="test:nobody")})
        case "django-async-blocking-gate":
            return django_async(shop, {"GATE": gate})
        case "rest-framework":
            return rest_framework(shop, gate)
        case "django-project" | "django-async-project":
            awaits = name == "django-async-project"
            gates = {"ASYNC_GATE": lambda: AsyncGate(store, scope="test:nobody")} if awaits else {"GATE": gate}
            return django_project(folder, gates, awaits)
    raise LookupError(name)


def serve(name: str, app: Any, listener: socket.socket) -> None:
    """With a real server, until somebody ends it."""
    if name == "wsgiref":
        from socketserver import ThreadingMixIn
        from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

        class Server(ThreadingMixIn, WSGIServer):
            daemon_threads = True

        server = Server(listener.getsockname(), WSGIRequestHandler, bind_and_activate=False)
        server.socket.close()
        server.socket = listener
        server.server_name, server.server_port = "127.0.0.1", listener.getsockname()[1]
        server.setup_environ()
        server.set_app(app)
        server.serve_forever()
    elif name.startswith("django-async"):
        import uvicorn

        uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off")).run([listener])
    else:
        import waitress

        waitress.serve(app, sockets=[listener], threads=12, _quiet=True)


def end_with_parent() -> None:
    """Whoever started this has gone, however that came about."""
    sys.stdin.read()
    os._exit(0)


def main(name: str, folder: Path, *failpoint: str) -> None:
    logging.basicConfig(filename=folder / "log", level="WARNING", format="%(name)s %(levelname)s %(message)s")
    threading.Thread(target=end_with_parent, daemon=True).start()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    app = application(name, folder)
    for one in failpoint:
        failpoints.arm(one, "kill")
    print(listener.getsockname()[1], flush=True)
    serve(name, app, listener)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
