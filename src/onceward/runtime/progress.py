"""
`Progress`: who is told how far something is, and `silent`, who tells nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[float, str], object]
"""
Takes the share that is done, from 0 to 1 (0: that is not known), and words for a person. Called often; it must be quick
and must not raise.
"""


def silent(share: float, words: str = "") -> None:
    """Tell nobody."""


def part_of(progress: Progress, done: int, total: int, noun: str) -> None:
    """Tell how many of something are done."""
    total = max(total, done)
    progress(done / total if total else 0.0, f"{done:,} of {total:,} {noun}")
