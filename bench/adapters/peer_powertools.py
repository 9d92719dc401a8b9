"""Peer: Powertools for AWS Lambda, its idempotency utility over Redis. The key and the request make its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer

from bench.work import Request, Result, Work


class Powertools:
    """Its decorator over a plain function. It has none for async functions."""

    def __init__(self, folder: Path, work: Work, url: str) -> None:
        layer = CachePersistenceLayer(client=redis.Redis.from_url(url, decode_responses=True))
        # With payload_validation_jmespath its Redis layer takes every replay for another request.
        config = IdempotencyConfig(event_key_jmespath="[key, request]")

        @idempotent_function(data_keyword_argument="call", config=config, persistence_store=layer)  # type: ignore[untyped-decorator]
        def charge(*, call: dict[str, Any]) -> Result:
            return work.effect()

        self._charge = charge

    def fresh(self, key: str, request: Request) -> Result:
        """Run once."""
        result: Result = self._charge(call={"key": key, "request": request})
        return result

    replay = fresh

    async def afresh(self, key: str, request: Request) -> Result:
        """The blocking one: only to be checked, never timed."""
        return self.fresh(key, request)

    areplay = afresh

    def close(self) -> None:
        """Connections go with the process."""
