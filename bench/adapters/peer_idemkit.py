"""Peer: idemkit. `idempotent` and `idempotent_sync` with an explicit key and a fingerprint of the request."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from idemkit import MethodConfig, PostgresBackend, RedisBackend, idempotent, idempotent_sync

from bench.work import Request, Result, Work


class Idemkit:
    """Blocking calls run on a loop of its own in the background; so each colour has a backend."""

    def __init__(self, backend: Callable[[], Any], work: Work) -> None:
        config = MethodConfig(validation_fingerprint=_fingerprint, scope=lambda _: "live:acme")

        def charge(*, request: Request) -> Result:
            return work.effect()

        async def acharge(*, request: Request) -> Result:
            return work.effect()

        self._charge = idempotent_sync(backend=backend(), config=config)(charge)
        self._acharge = idempotent(backend=backend(), config=config)(acharge)

    def fresh(self, key: str, request: Request) -> Result:
        """Run once."""
        result: Result = self._charge(request=request, idempotency_key=key)
        return result

    replay = fresh

    async def afresh(self, key: str, request: Request) -> Result:
        """Same as `fresh`, but awaits."""
        result: Result = await self._acharge(request=request, idempotency_key=key)
        return result

    areplay = afresh

    def close(self) -> None:
        """Connections go with the process."""


def _fingerprint(arguments: Any) -> bytes:
    return sha256(json.dumps(arguments, sort_keys=True, default=str).encode()).digest()


def postgres(folder: Path, work: Work, url: str) -> Idemkit:
    """On PostgreSQL, with its own pool (asyncpg, 4 to 20 connections)."""
    subprocess.run([str(Path(sys.executable).with_name("idemkit")), "init-pg", url], check=True, capture_output=True)
    return Idemkit(lambda: PostgresBackend.from_url(url), work)


def redis(folder: Path, work: Work, url: str) -> Idemkit:
    """On Redis."""
    return Idemkit(lambda: RedisBackend.from_url(url), work)
