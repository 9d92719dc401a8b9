"""
A test's clock and source of random numbers: time passes only when the test says so, and a seed repeats.

    environment = StillEnvironment()
    gate = Gate(MemoryStore(environment=environment), scope="test:acme", environment=environment)
    ...
    environment.advance(timedelta(hours=25))    # retention is over now

Code that sleeps or waits moves the clock by that time and goes on at once: an hour of back-off takes no time. Give one
environment to a store and a gate, and both have the same time; give each its own, and their clocks differ, which is how
a skewed caller is tested.
"""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from hashlib import sha256

from onceward._core.backoff import random_fraction
from onceward.runtime.environment import Environment

START_US = 1_000_000_000_000_000
"""9 September 2001, 01:46:40 UTC: round, so that it reads well, and long ago, so that a real clock stands out."""


class StillEnvironment(Environment):
    """Time passes only on `advance`; random numbers depend on the seed alone. Safe for threads."""

    def __init__(self, *, wall_us: int = START_US, seed: str = "") -> None:
        self._lock = threading.Lock()
        self._wall_us = wall_us
        self._monotonic_us = 0
        self._suspended_us = 0
        self._seed = seed.encode()
        self._drawn = 0

    def advance(self, by: float | timedelta) -> None:
        """Let so much time pass (seconds or timedelta), on all clocks. Never backwards: use `jump` for that."""
        passed = _microseconds(by)
        if passed < 0:
            raise ValueError("time does not run backwards; jump() sets the wall clock back")
        with self._lock:
            self._wall_us += passed
            self._monotonic_us += passed

    def jump(self, by: float | timedelta) -> None:
        """Set the wall clock forwards or back, as an administrator or a time server does; no time passes."""
        with self._lock:
            self._wall_us += _microseconds(by)

    def suspend(self, seconds: float | timedelta) -> None:
        """The host is suspended for so long: the wall clock and `boottime` go on, `monotonic` stands still."""
        passed = _microseconds(seconds)
        with self._lock:
            self._wall_us += passed
            self._suspended_us += passed

    def boottime(self) -> float:
        """Seconds since this environment was made, including those that the host was suspended."""
        return (self._monotonic_us + self._suspended_us) / 1e6

    def monotonic(self) -> float:
        """Seconds that have passed since this environment was made."""
        return self._monotonic_us / 1e6

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return self._wall_us

    def random(self, size: int) -> bytes:
        """The next bytes of a stream that depends on the seed alone. They never repeat within one environment."""
        with self._lock:
            first, blocks = self._drawn, -(-size // 32)
            self._drawn += max(blocks, 1)
        return b"".join(sha256(b"%s/%d" % (self._seed, first + block)).digest() for block in range(blocks))[:size]

    def chance(self) -> float:
        """The next number from 0 to 1 of the random stream."""
        return random_fraction(self.random(7))

    def sleep(self, seconds: float) -> None:
        """Move the clock instead of sleeping."""
        self.advance(max(seconds, 0))

    async def asleep(self, seconds: float) -> None:
        """Let other tasks run, then move the clock instead of sleeping."""
        await super().asleep(0)
        self.advance(max(seconds, 0))

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Move the clock instead of waiting, unless the event is set."""
        if not event.is_set():
            self.advance(max(seconds, 0))

    async def await_event(self, event: asyncio.Event, seconds: float) -> None:
        """Let other tasks run, which may set the event; if it is not set, move the clock instead of waiting."""
        await super().asleep(0)
        if not event.is_set():
            self.advance(max(seconds, 0))


def _microseconds(by: float | timedelta) -> int:
    # A timedelta is divided exactly; going through a float would lose microseconds of long spans.
    return by // timedelta(microseconds=1) if isinstance(by, timedelta) else round(by * 1_000_000)
