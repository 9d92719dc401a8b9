"""
Charges over HTTP with Flask: a client that hears nothing sends again, and is charged once.

    python examples/flask_charges.py

Authentication stands in front, then the middleware, then Flask. Who is calling comes from the token, never from the
key. What goes to the payment provider carries the operation's own key, so that a charge is one charge there, too.
"""

from __future__ import annotations

import json
import logging
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from flask import Flask, request
from werkzeug.serving import make_server

from onceward import Gate
from onceward.http import IncomingRequest, Route
from onceward.http.wsgi import IdempotencyMiddleware

TOKENS = {"t-acme": "acme", "t-globex": "globex"}


class Provider:
    """Stands for your payment provider: it honours keys."""

    def __init__(self) -> None:
        self.charges: dict[str, dict[str, Any]] = {}

    def charge(self, amount: str, idempotency_key: str) -> dict[str, Any]:
        number = len(self.charges) + 1
        return self.charges.setdefault(idempotency_key, {"charge": f"ch_{number}", "amount": amount})


def authenticated(app: Any) -> Any:
    """Who is calling is known, or refused, before anything is looked up under a key."""

    def wrapper(environ: dict[str, Any], start_response: Any) -> Any:
        tenant = TOKENS.get(environ.get("HTTP_AUTHORIZATION", "").removeprefix("Bearer "))
        if tenant is None:
            start_response("401 Unauthorized", [("Content-Type", "application/json"), ("Content-Length", "2")])
            return [b"{}"]
        environ["shop.tenant"] = tenant
        return app(environ, start_response)

    return wrapper


def scope_of(request: IncomingRequest) -> str:
    return f"live:{request.raw['shop.tenant']}"


def make_app(gate: Gate, provider: Provider) -> Flask:
    app = Flask("charges")

    @app.post("/charges")
    def charge() -> tuple[dict[str, Any], int]:
        operation = request.environ["onceward.operation"]
        return provider.charge(request.json["amount"], operation.downstream_key("stripe")), 201

    routes = [Route("/charges", require_key=True, guarantee="keyed")]
    gated = IdempotencyMiddleware(app.wsgi_app, gate=gate, scope=scope_of, routes=routes)
    app.wsgi_app = authenticated(gated)
    return app


class Answer(NamedTuple):
    status: int
    replayed: bool
    body: Any


def send(url: str, token: str, key: str, body: dict[str, str]) -> Answer:
    """A client."""
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key, "Content-Type": "application/json"}
    asked = urllib.request.Request(f"{url}/charges", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(asked) as answer:
            return Answer(answer.status, answer.headers["Idempotency-Replayed"] == "true", json.load(answer))
    except urllib.error.HTTPError as refusal:
        with refusal:
            return Answer(refusal.status, False, json.load(refusal))


@contextmanager
def serving(app: Flask) -> Iterator[str]:
    """On a port of its own, with a thread for each request."""
    logging.getLogger("werkzeug").setLevel("ERROR")
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main(folder: Path) -> None:
    provider = Provider()
    with (
        Gate(f"sqlite:///{folder / 'charges.db'}", scope="live:shop") as gate,
        serving(make_app(gate, provider)) as url,
    ):
        first = send(url, "t-acme", "order-17", {"amount": "12.50"})
        print("first:            ", first)
        print("sent again:       ", send(url, "t-acme", "order-17", {"amount": "12.50"}))
        print("by another tenant:", send(url, "t-globex", "order-17", {"amount": "7.00"}))
        print("by nobody:        ", send(url, "t-nobody", "order-17", {"amount": "1.00"}))
        other = send(url, "t-acme", "order-17", {"amount": "99.00"})
        print("another amount:   ", other.status, other.body["code"], "- retry with:", other.body["retry"])

    print(f"5 requests, {len(provider.charges)} charges")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
