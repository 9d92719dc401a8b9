"""
A world in which time stands still until it is moved, and chance repeats itself.

    environment = StillEnvironment()
    gate = Gate(MemoryStore(environment=environment), scope="test:acme", environment=environment)
    ...
    environment.advance(timedelta(hours=25))    # retention is over now

Whoever sleeps or waits in it moves the clock by what it would have slept, and goes on at once: an hour of back-off
takes no time, and is over on the clock all the same. Handed to both a store and a gate, it is the time of both; handed
two of them, their clocks differ, which is how a skewed caller is tested.
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
    """Time that passes only when told to, and chance that is the same for the same seed. Safe for threads."""

    def __init__(self, *, wall_us: int = START_US, seed: str = "") -> None:
        self._lock = threading.Lock()
        self._wall_us = wall_us
        self._monotonic_us = 0
        self._suspended_us = 0
        self._seed = seed.encode()
        self._drawn = 0

    def advance(self, by: float | timedelta) -> None:
        """Let so much time pass (seconds or timedelta), on both clocks. Never backwards: that is what `jump` is for."""
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
        """Same as `monotonic`, with the time that the host was suspended."""
        return (self._monotonic_us + self._suspended_us) / 1e6

    def monotonic(self) -> float:
        """Seconds that have passed since this environment was made."""
        return self._monotonic_us / 1e6

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return self._wall_us

    def random(self, size: int) -> bytes:
        """The next bytes of a stream that depends on the seed alone. Never twice the same within one environment."""
        with self._lock:
            first, blocks = self._drawn, -(-size // 32)
            self._drawn += max(blocks, 1)
        return b"".join(sha256(b"%s/%d" % (self._seed, first + block)).digest() for block in range(blocks))[:size]

    def chance(self) -> float:
        """The next number of that stream."""
        return random_fraction(self.random(7))

    def sleep(self, seconds: float) -> None:
        """Move the clock instead of sleeping."""
        self.advance(max(seconds, 0))

    async def asleep(self, seconds: float) -> None:
        """Same as `sleep`; other tasks get their turn."""
        await super().asleep(0)
        self.advance(max(seconds, 0))

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Move the clock instead of waiting, unless the event is set."""
        if not event.is_set():
            self.advance(max(seconds, 0))

    async def await_event(self, event: asyncio.Event, seconds: float) -> None:
        """Same as `wait`; other tasks get their turn first, and may set the event in it."""
        await super().asleep(0)
        if not event.is_set():
            self.advance(max(seconds, 0))


def _microseconds(by: float | timedelta) -> int:
    # A timedelta is divided exactly; going through a float would lose microseconds of long spans.
    return by // timedelta(microseconds=1) if isinstance(by, timedelta) else round(by * 1_000_000)
