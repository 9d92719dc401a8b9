"""
A Django project whose view settles inside its own transaction: run with a folder, and `plain` or `async`.

Prints, as JSON, what was answered to the same keyed request under each story, and what was left.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import django
from django.conf import settings
from django.http import JsonResponse
from django.urls import path

from onceward import AsyncGate, Gate, Reply

folder, colour = Path(sys.argv[1]), sys.argv[2]
store = f"sqlite:///{folder}/orders.db"
settings.configure(
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="test",
    ROOT_URLCONF="orders_urls",
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(folder / "orders.db"),
            "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
        }
    },
    MIDDLEWARE=["onceward.http.django.IdempotencyMiddleware"],
    ONCEWARD={
        "GATE": Gate(store, scope="test:shop"),
        **({"ASYNC_GATE": lambda: AsyncGate(store, scope="test:shop")} if colour == "async" else {}),
        "SCOPE": "test:shop",
        "TRANSACTIONAL": True,
    },
    LOGGING_CONFIG=None,
    USE_TZ=True,
)
django.setup()

from django.db import connection, transaction  # noqa: E402 - needs the settings
from django.test import AsyncClient, Client  # noqa: E402


def order(request: Any, story: str) -> Any:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders DEFAULT VALUES")
        request.operation.settle_inside(connection, Reply.json({"order": story}, status=201))
        if story == "raise":
            raise ValueError("undone")
        if story == "undo":
            transaction.set_rollback(True)
    return JsonResponse({"said": "by the view"}, status=409 if story == "undo" else 200)


def plain(request: Any, story: str) -> Any:
    return order(request, story)


async def awaiting(request: Any, story: str) -> Any:
    from asgiref.sync import sync_to_async

    return await sync_to_async(order)(request, story)


urls = ModuleType("orders_urls")
urls.urlpatterns = [path("orders/<str:story>", awaiting if colour == "async" else plain)]  # type: ignore[attr-defined]
sys.modules["orders_urls"] = urls


def told(response: Any) -> list[Any]:
    return [response.status_code, response.content.decode(), response.headers.get("Idempotency-Replayed")]


def send(story: str) -> list[Any]:
    headers = {"Idempotency-Key": f"k-{story}"}
    if colour == "plain":
        return told(Client(raise_request_exception=False).post(f"/orders/{story}", headers=headers))

    async def sent() -> Any:
        return await AsyncClient(raise_request_exception=False).post(f"/orders/{story}", headers=headers)

    return told(asyncio.run(sent()))


with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
answers = {story: [send(story), send(story)] for story in ("well", "raise", "undo")}
with connection.cursor() as cursor:
    cursor.execute("SELECT count(*) FROM orders")
    rows = cursor.fetchone()[0]
print(json.dumps({"answers": answers, "rows": rows}))
