"""
The clock of the store under judgement, as a test moves it.

A store that lives on this host takes its time from the environment it was given: that one stands still, and an hour
passes in no time. A store with a server has the server's clock, which nobody here can move: there time really passes,
twenty times faster than the tests say, and what is read is compared with some slack.
"""

from __future__ import annotations

from onceward._core.record import State, Write
from onceward.runtime.environment import REAL
from onceward.testing.clock import START_US, StillEnvironment
from onceward.testing.store_suite.rows import row

SCALE = 0.05
"""On a clock that cannot be moved, a test's second takes this many."""

SLACK_US = 5_000_000
"""How far off a duration may be on a clock that goes on meanwhile. Compare spans that are much longer."""

_DAY_US = 24 * 3_600 * 1_000_000


class StoreClock:
    """Time, as the store sees it."""

    def __init__(self, environment: StillEnvironment, *, still: bool) -> None:
        self.environment = environment
        self.still = still
        self._scale = 1.0 if still else SCALE

    def seconds(self, seconds: float) -> float:
        """So many of the test's seconds, in real ones."""
        return seconds * self._scale

    def us(self, seconds: float) -> int:
        """So many of the test's seconds, in microseconds: a duration to write."""
        return round(seconds * self._scale * 1_000_000)

    def advance(self, seconds: float) -> None:
        """Let time pass: move the still clock, or wait."""
        if self.still:
            self.environment.advance(seconds)
        else:
            REAL.sleep(self.seconds(seconds))

    def near(self, expected: int, actual: int | None) -> bool:
        """Whether a duration is the expected one: to the microsecond on a still clock, roughly on another."""
        return actual is not None and abs(expected - actual) <= (0 if self.still else SLACK_US)


def probe_row() -> Write:
    """A row to ask a store for its time with: `first_at` of what lands is the answer. It may be purged at once."""
    return row("test:clock", "what-time-is-it", state=State.RELEASED.value, lease=None, forget=0)


def is_still(first_at: int) -> bool:
    """Whether a store that gave this instant to a row took it from the still clock it was handed."""
    return abs(first_at - START_US) < _DAY_US
