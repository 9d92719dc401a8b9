"""fastapi-idempotency-key on Redis."""

from __future__ import annotations

from typing import Any

from fastapi_idempotency_key import IdempotencyMiddleware
from fastapi_idempotency_key.backends.redis import RedisBackend

from compare.place import Place


def wrapped(app: Any, place: Place) -> Any:
    """In front of the application."""
    # what a user adds
    backend = RedisBackend(redis_url=place.url)
    return IdempotencyMiddleware(app, backend=backend)
    # until here
