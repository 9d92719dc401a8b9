"""
Charges over HTTP with Django's async views, on an ASGI server: twenty at once, one charge.

    python examples/django_async_charges.py

An `AsyncGate` under ASYNC_GATE serves async views without a thread. The scope function may be async, too.
"""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django
import uvicorn
from django.conf import settings
from django.http import HttpResponse, JsonResponse
from django.urls import path

from onceward import AsyncGate
from onceward.http import IncomingRequest
from onceward.http.django import idempotent

charges: dict[str, str] = {}


async def scope_of(request: IncomingRequest) -> str | None:
    """Who is calling. With Django's own users: `user = await request.raw.auser()`."""
    token = request.header("authorization")
    return None if token is None else f"live:{token}"


@idempotent(guarantee="keyed", in_flight="wait", require_key=True)
async def create(request: Any) -> HttpResponse:
    amount = json.loads(request.body)["amount"]
    await asyncio.sleep(0.05)  # Stands for the provider.
    charges[request.operation.downstream_key("stripe")] = amount
    return JsonResponse({"charge": f"ch_{len(charges)}", "amount": amount}, status=201)


urlpatterns = [path("charges", create)]


def configure(folder: Path) -> None:
    store = f"sqlite:///{folder / 'keys.db'}"
    settings.configure(
        ALLOWED_HOSTS=["127.0.0.1"],
        SECRET_KEY="only an example",
        ROOT_URLCONF=__name__,
        MIDDLEWARE=["onceward.http.django.IdempotencyMiddleware"],
        ONCEWARD={"ASYNC_GATE": lambda: AsyncGate(store, scope="live:shop"), "SCOPE": f"{__name__}.scope_of"},
        LOGGING_CONFIG=None,
    )
    django.setup()


@contextmanager
def serving() -> Iterator[str]:
    from django.core.asgi import get_asgi_application

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(get_asgi_application(), log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def send(url: str, token: str, key: str) -> tuple[str, bool]:
    """A client: what it heard, and whether that was a replay."""
    headers = {"Authorization": token, "Idempotency-Key": key, "Content-Type": "application/json"}
    asked = urllib.request.Request(f"{url}/charges", b'{"amount": "12.50"}', headers)
    with urllib.request.urlopen(asked) as answer:
        return answer.read().decode(), answer.headers["Idempotency-Replayed"] == "true"


def main(folder: Path) -> None:
    configure(folder)
    heard: list[tuple[str, bool]] = []
    with serving() as url:
        clients = [threading.Thread(target=lambda: heard.append(send(url, "acme", "order-17"))) for _ in range(20)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    answers = {answer for answer, _ in heard}
    print(f"answers: {answers}, replayed: {sum(replayed for _, replayed in heard)}")
    print(f"{len(heard)} requests, {len(charges)} charge")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
