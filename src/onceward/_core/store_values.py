"""
What stores are asked with, and what they answer, besides records.
"""

from __future__ import annotations

from typing import NamedTuple


class PurgeResult(NamedTuple):
    """What one bounded purge did."""

    forgotten: int
    """Rows deleted: settled or released, and past their time to be forgotten."""
    shrunk: int
    """Rows made tombstones: settled, past their retention; result, codec and error are dropped, the rest stays."""


class Selection(NamedTuple):
    """Which records a scan is to show."""

    scope: str | None = None
    kind: str | None = None
    unsettled: bool = False
    """Only claimed and in-doubt records."""
