"""
Charges over HTTP with Django REST framework: validated, made once, and answered with the first status ever after.

    python examples/drf_charges.py

The middleware stands in front of REST framework, so its authentication classes come too late to say who is calling:
the token is looked up in a middleware of its own. What a serializer rejects (400) runs again if it is sent again.
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

TOKENS = {"t-acme": "acme"}
charges: dict[str, str] = {}
urlpatterns: list[Any] = []


def authenticate(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Before the gate."""

    def middleware(request: Any) -> HttpResponse:
        request.tenant = TOKENS.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        return JsonResponse({}, status=401) if request.tenant is None else get_response(request)

    return middleware


def scope_of(request: IncomingRequest) -> str:
    return f"live:{request.raw.tenant}"


def configure(folder: Path) -> None:
    settings.configure(
        ALLOWED_HOSTS=["127.0.0.1"],
        SECRET_KEY="only an example",
        ROOT_URLCONF=__name__,
        INSTALLED_APPS=["rest_framework"],
        REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None},
        MIDDLEWARE=[f"{__name__}.authenticate", "onceward.http.django.IdempotencyMiddleware"],
        ONCEWARD={
            "GATE": Gate(f"sqlite:///{folder / 'keys.db'}", scope="live:shop"),
            "SCOPE": f"{__name__}.scope_of",
            "PROFILE": "ietf",
        },
        LOGGING_CONFIG=None,
    )
    django.setup()


def declare() -> None:
    """The view, once the settings are there."""
    from django.urls import path
    from django.utils.decorators import method_decorator
    from rest_framework import serializers, status
    from rest_framework.response import Response
    from rest_framework.views import APIView

    from onceward.http.django import idempotent

    class NewCharge(serializers.Serializer):
        amount = serializers.DecimalField(max_digits=19, decimal_places=4, min_value=0)

    @method_decorator(idempotent(guarantee="keyed"), name="dispatch")
    class Charges(APIView):
        def post(self, request: Any) -> Any:
            asked = NewCharge(data=request.data)
            asked.is_valid(raise_exception=True)
            # `request` is REST framework's; what it does not have, Django's own request has.
            charges[request.operation.downstream_key("stripe")] = str(asked.validated_data["amount"])
            return Response({"charge": f"ch_{len(charges)}", **asked.data}, status=status.HTTP_201_CREATED)

    urlpatterns.append(path("charges", Charges.as_view()))


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


def send(url: str, key: str | None, amount: str) -> str:
    """A client; what it heard."""
    headers = {"Authorization": "Bearer t-acme", "Content-Type": "application/json"}
    if key is not None:
        headers["Idempotency-Key"] = key
    asked = urllib.request.Request(f"{url}/charges", json.dumps({"amount": amount}).encode(), headers)
    try:
        with urllib.request.urlopen(asked) as answer:
            replayed = " (replayed)" if answer.headers["Idempotency-Replayed"] else ""
            return f"{answer.status} {answer.read().decode()}{replayed}"
    except urllib.error.HTTPError as refusal:
        with refusal:
            said = json.load(refusal)
            return f"{refusal.status} {said.get('code', said)}"


def main(folder: Path) -> None:
    configure(folder)
    declare()
    with serving() as url:
        print("no amount:   ", send(url, "order-16", "a lot"))
        print("first:       ", send(url, "order-17", "12.50"))
        print("sent again:  ", send(url, "order-17", "12.50"))
        print("other amount:", send(url, "order-17", "99.00"))
        print("no key:      ", send(url, None, "12.50"))
    settings.ONCEWARD["GATE"].close()
    print(f"5 requests, {len(charges)} charge")


if __name__ == "__main__":
    logging.getLogger("django.request").setLevel("ERROR")  # It logs every 4xx otherwise.
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
