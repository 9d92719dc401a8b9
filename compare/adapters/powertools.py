"""Powertools for AWS Lambda: its idempotency utility over Redis, for any function. The key is a field of the event."""

from __future__ import annotations

from typing import Any

import redis
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer

from compare.place import Place, Request, Work


class Context:
    """What Lambda passes: how long the function may still run. That is its lease."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        """In milliseconds."""
        return int(self._seconds * 1000)


class Powertools:
    """Its decorator over a plain function. It has none for async functions."""

    def __init__(self, place: Place, work: Work) -> None:
        compared = {"payload_validation_jmespath": "request"} if place.compared else {}
        # what a user adds
        layer = CachePersistenceLayer(client=redis.Redis.from_url(place.url, decode_responses=True))
        config = IdempotencyConfig(event_key_jmespath="key", **compared)

        @idempotent_function(data_keyword_argument="event", config=config, persistence_store=layer)
        def charge(*, event: dict[str, Any]) -> Any:
            return work(event["key"], event["request"])

        # until here
        if place.lease is not None:
            config.register_lambda_context(Context(place.lease))
        self._charge = charge

    def call(self, key: Any, request: Request) -> Any:
        """Run it once."""
        return self._charge(event={"key": key, "request": request})

    def close(self) -> None:
        """Connections go with the process."""


def make(place: Place, work: Work) -> Powertools:
    """On Redis."""
    return Powertools(place, work)
