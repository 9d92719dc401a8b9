"""
The limits on Redis: redis-py (with hiredis) and nothing else.

A claim is SET NX GET, which is also a replay's one command, and a settle is a SET: no scripts, no expiry, no indexes.
Awaiting callers use `redis.asyncio` with the pool that it comes with. `RawRedisBatched` is the limit of a crowd: what
all tasks ask for, in one pipeline at a time. What it does not do is the same as in `raw.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

from bench.adapters.batching import Asked, BatchedTasks, read_stored
from bench.adapters.raw import identity
from bench.work import Request, Result, Work


class RawRedis:
    """Two commands for a fresh operation, the first of them for a replay."""

    def __init__(self, folder: Path, work: Work, url: str) -> None:
        self._work = work
        self._client: Any = redis.Redis.from_url(url)
        self._async_client: Any = redis.asyncio.Redis.from_url(url)

    def fresh(self, key: str, request: Request) -> Result:
        """Claim, run, settle; or find."""
        stored = identity(key, request)
        found = self._client.set(stored, b"", nx=True, get=True)
        if found is not None:
            return read_stored(found)
        result = self._work.effect()
        self._client.set(stored, json.dumps(result))
        return result

    replay = fresh

    async def afresh(self, key: str, request: Request) -> Result:
        """Claim, run, settle; or find."""
        stored = identity(key, request)
        found = await self._async_client.set(stored, b"", nx=True, get=True)
        if found is not None:
            return read_stored(found)
        result = self._work.effect()
        await self._async_client.set(stored, json.dumps(result))
        return result

    areplay = afresh

    def close(self) -> None:
        """Connections go with the process."""


class RawRedisBatched(BatchedTasks, RawRedis):
    """The same for tasks, in pipelines; blocking callers as above."""

    async def _send(self, number: int, batch: list[Asked]) -> list[str | None]:
        pipeline = self._async_client.pipeline(transaction=False)
        for one in batch:
            if one.result is None:
                pipeline.set(one.id, b"", nx=True, get=True)
            else:
                pipeline.set(one.id, one.result)
        found = await pipeline.execute()
        return [
            answer.decode() if one.result is None and answer is not None else None
            for one, answer in zip(batch, found, strict=True)
        ]
