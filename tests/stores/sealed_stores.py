"""Our stores behind a seal, as a store of their own: opened like any other, by a kind."""

from __future__ import annotations

from typing import Any

from onceward._core.sealing import Sealer
from onceward.gate import Sealed
from onceward.gate.sealed_store import SealedStore
from onceward.gate.sealed_store_async import AsyncSealedStore
from onceward.stores import StoreKind, open_async_store, open_store

KEY = "c2VhbGVkIHN0b3JlcyBoYXZlIHRoaXMgMzItYnl0ZS4="
"""The same for every process of a test."""


def open_sealed(url: str, **options: Any) -> Any:
    """A store that blocks, behind a seal."""
    return SealedStore(open_store(url, **options), Sealer(Sealed(KEY), sealed_only=True))


def open_sealed_async(url: str, **options: Any) -> Any:
    """A store that awaits, behind a seal."""
    return AsyncSealedStore(open_async_store(url, **options), Sealer(Sealed(KEY), sealed_only=True))


KIND = StoreKind(open=open_sealed, open_async=open_sealed_async, local=True)
