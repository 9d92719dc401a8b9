"""
Both store protocols in one place: `Store` blocks, `AsyncStore` awaits. One record per id, changed by compare-and-swap.

A store knows nothing of leases, retries or replay. Those rules live once, in `record.py`, so that a new store
cannot get them wrong. What each method must do is in `store_async.py`, and `onceward.testing.store_suite` tests it.

Both have the same methods. A store opened from a URL has both colours.
"""

from __future__ import annotations

from onceward._core.record_types import PurgeResult, Selection
from onceward._core.store import Store
from onceward._core.store_async import AsyncStore

__all__ = ["AsyncStore", "PurgeResult", "Selection", "Store"]
