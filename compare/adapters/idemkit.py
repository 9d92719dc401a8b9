"""idemkit: its decorators, with a key of one's own and a fingerprint of the request."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from idemkit import MethodConfig, PostgresBackend, RedisBackend, idempotent, idempotent_sync

from compare.place import Place, Request, Work


def fingerprint(arguments: Any) -> bytes:
    """What must be the same in a retry."""
    return sha256(json.dumps(arguments, sort_keys=True, default=str).encode()).digest()


class Idemkit:
    """Blocking calls run on a loop of its own in the background; so each colour has a backend."""

    def __init__(self, place: Place, work: Work) -> None:
        lease = {} if place.lease is None else {"lease_ttl_seconds": place.lease}
        # what a user adds
        config = MethodConfig(validation_fingerprint=fingerprint, scope=lambda _: "live:acme", **lease)

        @idempotent_sync(backend=_backend(place.url), config=config)
        def charge(*, key: str, request: Request) -> Any:
            return work(key, request)

        # until here
        async def acharge(*, key: str, request: Request) -> Any:
            return await work.awaited(key, request)

        self._charge = charge
        self._acharge = idempotent(backend=_backend(place.url), config=config)(acharge)

    def call(self, key: Any, request: Request) -> Any:
        """Run it once."""
        return self._charge(key=key, request=request, idempotency_key=key)

    async def acall(self, key: Any, request: Request) -> Any:
        """The same, awaited."""
        return await self._acharge(key=key, request=request, idempotency_key=key)

    def close(self) -> None:
        """Connections go with the process."""


def _backend(url: str) -> Any:
    return PostgresBackend.from_url(url) if url.startswith("postgres") else RedisBackend.from_url(url)


def make(place: Place, work: Work) -> Idemkit:
    """On the store that the question is asked on; its tables are made by its own command."""
    if place.url.startswith("postgres"):
        made = [str(Path(sys.executable).with_name("idemkit")), "init-pg", place.url]
        subprocess.run(made, check=False, capture_output=True)
    return Idemkit(place, work)
