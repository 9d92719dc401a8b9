"""
The limits on Redis: redis-py (with hiredis) and nothing else.

A claim is SET NX, a settle a SET, a replay a GET and `json.loads`: no scripts, no expiry, no indexes. Awaiting callers
use `redis.asyncio` with the pool that it comes with. What it does not do is the same as in `raw.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

from bench.adapters.raw import identity
from bench.work import Request, Result, Work


class RawRedis:
    """Two commands for a fresh operation, one for a replay."""

    def __init__(self, folder: Path, work: Work, url: str) -> None:
        self._work = work
        self._client: Any = redis.Redis.from_url(url)
        self._async_client: Any = redis.asyncio.Redis.from_url(url)

    def fresh(self, key: str, request: Request) -> Result:
        """Claim, run, settle."""
        stored = identity(key, request)
        if not self._client.set(stored, b"", nx=True):
            raise RuntimeError("the key is taken")
        result = self._work.effect()
        self._client.set(stored, json.dumps(result))
        return result

    def replay(self, key: str, request: Request) -> Result:
        """Find."""
        result: Result = json.loads(self._client.get(identity(key, request)))
        return result

    async def afresh(self, key: str, request: Request) -> Result:
        """Same as `fresh`, but awaits."""
        stored = identity(key, request)
        if not await self._async_client.set(stored, b"", nx=True):
            raise RuntimeError("the key is taken")
        result = self._work.effect()
        await self._async_client.set(stored, json.dumps(result))
        return result

    async def areplay(self, key: str, request: Request) -> Result:
        """Same as `replay`, but awaits."""
        result: Result = json.loads(await self._async_client.get(identity(key, request)))
        return result

    def close(self) -> None:
        """Connections go with the process."""
