"""
Charges over HTTP with Django: a view that fails half-way is tried again, and its row is written once.

    python examples/django_charges.py

The middleware stands below the one that knows the caller. With ATOMIC_REQUESTS a view that raises is rolled back, so
guarantee="atomic" lets the same key try again; nothing is in doubt, because nothing was left behind.
"""

from __future__ import annotations

import json
import logging
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse

from onceward import Gate
from onceward.http import IncomingRequest

TOKENS = {"t-acme": "acme", "t-globex": "globex"}


def authenticate(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Stands for your own authentication, which comes before the gate."""

    def middleware(request: Any) -> HttpResponse:
        request.tenant = TOKENS.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        return JsonResponse({}, status=401) if request.tenant is None else get_response(request)

    return middleware


def scope_of(request: IncomingRequest) -> str:
    return f"live:{request.raw.tenant}"


def configure(folder: Path) -> None:
    """A settings module, in one call."""
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "shop.db"), "ATOMIC_REQUESTS": True}
    here = __name__
    settings.configure(
        ALLOWED_HOSTS=["127.0.0.1"],
        SECRET_KEY="only an example",
        ROOT_URLCONF=here,
        DATABASES={"default": {**database, "OPTIONS": {"timeout": 20}}},
        MIDDLEWARE=[f"{here}.authenticate", "onceward.http.django.IdempotencyMiddleware"],
        ONCEWARD={
            "GATE": Gate(f"sqlite:///{folder / 'keys.db'}", scope="live:shop"),
            "SCOPE": f"{here}.scope_of",
            "REQUIRE_KEY": True,
            "GUARANTEE": "atomic",
        },
        LOGGING_CONFIG=None,
        USE_TZ=True,
    )
    django.setup()


urlpatterns: list[Any] = []
broken = {"next"}


def declare() -> Any:
    """The model and its view."""
    from django.db import connection, models
    from django.urls import path

    class Charge(models.Model):
        tenant = models.CharField(max_length=20)
        amount = models.DecimalField(max_digits=19, decimal_places=4)

        class Meta:
            app_label = "shop"

    with connection.schema_editor() as editor:
        editor.create_model(Charge)

    def create(request: Any) -> HttpResponse:
        charge = Charge.objects.create(tenant=request.tenant, amount=json.loads(request.body)["amount"])
        if broken:
            raise ConnectionError(f"the database is away {broken.pop()}")
        return JsonResponse({"id": charge.pk, "amount": charge.amount}, status=201)

    urlpatterns.append(path("charges", create))
    return Charge


def send(url: str, token: str, key: str, amount: str) -> str:
    """A client; what it heard."""
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key, "Content-Type": "application/json"}
    asked = urllib.request.Request(f"{url}/charges", json.dumps({"amount": amount}).encode(), headers)
    try:
        with urllib.request.urlopen(asked) as answer:
            replayed = " (replayed)" if answer.headers["Idempotency-Replayed"] else ""
            return f"{answer.status} {answer.read().decode()}{replayed}"
    except urllib.error.HTTPError as refusal:
        with refusal:
            said = refusal.read()
            is_problem = refusal.headers["Content-Type"] == "application/problem+json"
            return f"{refusal.status} {json.loads(said)['code']}" if is_problem else str(refusal.status)


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[str]:
    from django.core.wsgi import get_wsgi_application

    with make_server("127.0.0.1", 0, get_wsgi_application(), handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def main(folder: Path) -> None:
    from django.db import connections

    configure(folder)
    charges = declare()
    with serving() as url:
        print("fails half-way:   ", send(url, "t-acme", "order-17", "12.50"))
        print("sent again:       ", send(url, "t-acme", "order-17", "12.50"))
        print("and again:        ", send(url, "t-acme", "order-17", "12.50"))
        print("by another tenant:", send(url, "t-globex", "order-17", "7.00"))
        print("another amount:   ", send(url, "t-acme", "order-17", "99.00"))
        print("by nobody:        ", send(url, "t-nobody", "order-17", "12.50"))
    print(f"6 requests, {charges.objects.count()} rows")
    connections.close_all()
    settings.ONCEWARD["GATE"].close()


if __name__ == "__main__":
    logging.disable()  # Django and Onceward both say in the log why a request was answered 500.
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
