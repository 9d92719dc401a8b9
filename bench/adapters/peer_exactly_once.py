"""Peer: exactly-once. Its decorator, with an explicit key and a fingerprint of the request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exactly_once import Store, once

from bench.work import Request, Result, Work


class ExactlyOnce:
    """The decorator over a plain and over an async function."""

    def __init__(self, store: Any, work: Work) -> None:
        self._store = store
        guard = once(
            self._store,
            key=lambda key, request: key,
            fingerprint=lambda key, request: request,
        )

        def charge(key: str, request: Request) -> Result:
            return work.effect()

        async def acharge(key: str, request: Request) -> Result:
            return work.effect()

        self.fresh = self.replay = guard(charge)
        self.afresh = self.areplay = guard(acharge)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def full(folder: Path, work: Work) -> ExactlyOnce:
    """At the durability of the others."""
    return ExactlyOnce(_file(folder, "FULL"), work)


def normal(folder: Path, work: Work) -> ExactlyOnce:
    """As shipped."""
    return ExactlyOnce(_file(folder, "NORMAL"), work)


def _file(folder: Path, synchronous: str) -> Any:
    store = Store.sqlite(str(folder / "peer.db"))
    # It sets NORMAL and offers no option; a later pragma on the same connection is what counts.
    store._conn.execute(f"PRAGMA synchronous={synchronous};")
    return store


def postgres(folder: Path, work: Work, url: str) -> ExactlyOnce:
    """On PostgreSQL: one connection for all callers."""
    return ExactlyOnce(Store.postgres(url), work)


def redis(folder: Path, work: Work, url: str) -> ExactlyOnce:
    """On Redis."""
    return ExactlyOnce(Store.redis(url), work)
