"""Onceward's ASGI middleware, as its documentation shows it: whose keys they are is read from the request."""

from __future__ import annotations

from typing import Any

from compare.place import Place
from onceward import AsyncGate
from onceward.http import IncomingRequest
from onceward.http.asgi import IdempotencyMiddleware


def wrapped(app: Any, place: Place) -> Any:
    """In front of the application."""

    # what a user adds
    def tenant(request: IncomingRequest) -> str:
        return f"live:{(request.header('authorization') or '').removeprefix('Bearer ')}"

    gate = AsyncGate(place.url, scope="live:shop")
    return IdempotencyMiddleware(app, gate=gate, scope=tenant)
    # until here
