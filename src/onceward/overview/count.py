"""
`Count`: how many there are, as far as it was counted.
"""

from __future__ import annotations

from typing import NamedTuple

COUNT_MAX = 10_000
"""What is counted one by one. Nobody decides more than this by hand; beyond it, "or more" says all there is to say."""


class Count(NamedTuple):
    """How many there are. Without `exact`, there are at least this many."""

    number: int
    exact: bool = True

    def __str__(self) -> str:
        return f"{self.number:,}" if self.exact else f"{self.number:,} or more"

    def __bool__(self) -> bool:
        return self.number > 0

    @classmethod
    def up_to_limit(cls, found: int) -> Count:
        """Of what was counted up to one more than the limit."""
        return cls(min(found, COUNT_MAX), exact=found <= COUNT_MAX)
