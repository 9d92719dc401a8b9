"""idemkit's ASGI middleware on Redis: whose keys they are is read from the request."""

from __future__ import annotations

from typing import Any

from idemkit import HttpConfig, IdempotencyMiddleware, RedisBackend

from compare.place import Place


def wrapped(app: Any, place: Place) -> Any:
    """In front of the application."""

    # what a user adds
    def tenant(request: Any) -> str:
        return str(request.headers.get("authorization", ""))

    backend = RedisBackend.from_url(place.url)
    return IdempotencyMiddleware(app, backend=backend, config=HttpConfig(scope=tenant))
    # until here
