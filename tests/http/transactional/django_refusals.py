"""
Views that refuse (4xx) after they wrote something, or nothing: FOLDER COLOUR. Prints what became of each, as JSON.

Each view counts its runs in a file; rows are counted in the database.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.db import connection, transaction
from django.http import Http404, JsonResponse, StreamingHttpResponse
from django.urls import path

from onceward import AsyncGate, Gate
from onceward.http.django import idempotent

FOLDER, COLOUR = Path(sys.argv[1]), sys.argv[2]
STORE = f"sqlite:///{FOLDER / 'gate.db'}"
GATES: dict[str, Any] = {
    "plain": {"GATE": Gate(STORE, scope="test:shop")},
    "async": {"ASYNC_GATE": lambda: AsyncGate(STORE, scope="test:shop")},
    "async-blocking-gate": {"GATE": Gate(STORE, scope="test:shop")},
}
runs: dict[str, int] = {}


def write(name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO rows (name) VALUES (%s)", [name])


def refused(name: str) -> JsonResponse:
    runs[name] = runs.get(name, 0) + 1
    return JsonResponse({"refused": name, "run": runs[name]}, status=409)


def returned(request: Any) -> Any:
    write("returned")
    return refused("returned")


def streamed(request: Any) -> Any:
    write("streamed")
    return StreamingHttpResponse(iter([refused("streamed").content]), status=409)


def marked(request: Any) -> Any:
    write("marked")
    transaction.set_rollback(True)
    return refused("marked")


def raised(request: Any) -> Any:
    write("raised")
    refused("raised")
    raise Http404


def read(request: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM rows")
        cursor.fetchone()
    return refused("read")


def undone(request: Any) -> Any:
    try:
        with transaction.atomic():
            write("undone")
            raise LookupError
    except LookupError:
        return refused("undone")


@transaction.non_atomic_requests
def autocommitted(request: Any) -> Any:
    write("autocommitted")
    return refused("autocommitted")


@idempotent(guarantee="atomic")
@transaction.non_atomic_requests
def committed_then_raised(request: Any) -> Any:
    with transaction.atomic():
        write("committed_then_raised")
    refused("committed_then_raised")
    raise ValueError("after the commit")


@idempotent(guarantee="keyed")
def doubtful(request: Any) -> Any:
    """An earlier attempt may have happened; then it refuses."""
    write("doubtful")
    refused("doubtful")
    status = 500 if runs["doubtful"] == 1 else 409
    return JsonResponse({"run": runs["doubtful"]}, status=status)


VIEWS = (returned, streamed, marked, raised, read, undone, autocommitted, committed_then_raised, doubtful)
urlpatterns = [path(one.__name__, one) for one in VIEWS]


def main() -> None:
    logging.disable()
    settings.configure(
        ROOT_URLCONF=__name__,
        SECRET_KEY="test",
        ALLOWED_HOSTS=["*"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": str(FOLDER / "shop.db"),
                "ATOMIC_REQUESTS": True,
                "OPTIONS": {"timeout": 20},
            }
        },
        MIDDLEWARE=["onceward.http.django.IdempotencyMiddleware"],
        ONCEWARD={**GATES[COLOUR], "SCOPE": "test:shop"},
        LOGGING_CONFIG=None,
    )
    django.setup()
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE rows (name TEXT)")
    told = {one.__name__: sent(one.__name__) for one in VIEWS}
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, count(*) FROM rows GROUP BY name")
        rows = dict(cursor.fetchall())
    print(json.dumps({"told": told, "rows": rows, "runs": runs}))


def sent(name: str) -> list[Any]:
    from django.test import AsyncClient, Client

    headers = {"Idempotency-Key": f"k-{name}"}
    times = 3 if name == "doubtful" else 2
    if COLOUR == "plain":
        client = Client(raise_request_exception=False)
        return [shown(one, b"".join(one)) for one in (client.post(f"/{name}", headers=headers) for _ in range(times))]

    async def send() -> list[Any]:
        client, answers = AsyncClient(raise_request_exception=False), []
        for _ in range(times):
            response = await client.post(f"/{name}", headers=headers)
            if getattr(response, "is_async", False):
                answers.append(shown(response, b"".join([piece async for piece in response])))
            else:
                answers.append(shown(response, b"".join(response)))
        return answers

    return asyncio.run(send())


def shown(response: Any, body: bytes) -> list[Any]:
    """What was answered, once its body has been read."""
    return [response.status_code, response.headers.get("Idempotency-Replayed")]


if __name__ == "__main__":
    main()
