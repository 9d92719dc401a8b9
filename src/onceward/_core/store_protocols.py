"""
The seam between the rules and the stores: one record per id, changed by compare-and-swap.

A store knows nothing of leases, retries or replay. Those rules live once, in `record.py`, so that a new store
cannot get them wrong. What a store owes is in `store_async.py`, and `onceward.testing.store_suite` judges it.

Two colours, the same names: `Store` blocks, `AsyncStore` awaits. A store opened from a URL has both.
"""

from __future__ import annotations

from onceward._core.store import Store
from onceward._core.store_async import AsyncStore
from onceward._core.store_values import PurgeResult, Selection

__all__ = ["AsyncStore", "PurgeResult", "Selection", "Store"]
