"""
What a person at the terminal reads while a large table is filled: how far it is, and about how long it still takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from onceward.runtime.environment import REAL, Environment
from onceward.runtime.progress import Progress, part_of

Say: TypeAlias = Callable[[str], None]


class SayAndDraw:
    """A `Say` that has a line of progress besides: then nothing is said about how far it is, but drawn."""

    def __init__(self, say: Say, progress: Progress) -> None:
        self._say = say
        self.progress = progress

    def __call__(self, text: str) -> None:
        """Say something that stays."""
        self._say(text)


_SECONDS_BETWEEN = 2.0


class Backfill:
    """Counts rows, and says now and then how many are left."""

    def __init__(self, say: Say, total: int, environment: Environment = REAL) -> None:
        self._say = say
        self._total = total
        self._environment = environment
        self._started = self._said = environment.monotonic()
        self.rows = 0

    def add(self, rows: int) -> None:
        """So many rows more have a key, and are committed."""
        self.rows += rows
        if isinstance(self._say, SayAndDraw):
            part_of(self._say.progress, self.rows, self._total, "rows")
            return
        now = self._environment.monotonic()
        if rows and now - self._said >= _SECONDS_BETWEEN:
            self._said = now
            total = max(self._total, self.rows)  # Others may insert meanwhile.
            left = (now - self._started) / self.rows * (total - self.rows)
            percent = 100 * self.rows // total
            self._say(f"backfill: {self.rows:,} of {total:,} rows ({percent} %), about {left:,.0f} s left")
