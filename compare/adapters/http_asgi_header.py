"""asgi-idempotency-header on Redis. It takes UUIDs as keys by default; any text is allowed here."""

from __future__ import annotations

from typing import Any

from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import RedisBackend
from redis.asyncio import from_url

from compare.place import Place


def wrapped(app: Any, place: Place) -> Any:
    """In front of the application."""
    # what a user adds
    backend = RedisBackend(redis=from_url(place.url))
    return IdempotencyHeaderMiddleware(app, backend=backend)
    # until here
