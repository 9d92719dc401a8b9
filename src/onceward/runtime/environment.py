"""
`Environment`: the one source of time, sleep and randomness.

Everything else is handed one of these. A test replaces it and time stands still; a house test walks the source and
refuses any other use of a clock, a sleep or a random number.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from functools import partial

from onceward._core.holders import Process
from onceward.runtime import processes


def _counts_suspension() -> Callable[[], float]:
    """Linux has a clock for it; elsewhere (macOS, Windows) the monotonic one goes on while the host sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic if clock is None else partial(time.clock_gettime, clock)


_boottime = _counts_suspension()


class Environment:
    """Time and chance, the real ones; and which processes live."""

    # What every operation asks for is handed on as it is: a method around it would cost more than what it asks.
    monotonic = staticmethod(time.monotonic)
    """Seconds on a clock that never goes back: for measuring how long this process has waited."""

    boottime = staticmethod(_boottime)
    """Seconds on a clock that never goes back, and also counts while the host is suspended."""

    chance = staticmethod(random.random)  # The module's own dice are thrown anew after a fork.
    """A number in [0, 1), for jitter: cheap, and other in every process of a fork. Never for keys or tokens."""

    random = staticmethod(os.urandom)
    """Unpredictable bytes, as many as are asked for."""

    process = staticmethod(processes.current_process)
    """This process, as a claim names its holder: known once found out, and anew after a fork."""

    def process_cpu_seconds(self) -> float:
        """Processor seconds that this process has used, all its threads together; Linux may tell a tick too few."""
        return time.process_time()

    def thread_cpu_clock(self) -> Callable[[], float]:
        """A clock of the processor seconds that this thread has used, to be read in any thread."""
        clock_of = getattr(time, "pthread_getcpuclockid", None)
        return time.process_time if clock_of is None else partial(time.clock_gettime, clock_of(threading.get_ident()))

    def cpu_seconds_of(self, pid: int) -> float | None:
        """Processor seconds that a process of this host has used, to a hundredth; None if nobody can tell."""
        return processes.cpu_seconds(pid)

    def thread_cpu_seconds(self) -> float:
        """Processor seconds that this thread has used."""
        return time.thread_time()

    def wall_us(self) -> int:
        """Microseconds since 1970 on the host's clock: the clock of stores that live on this host."""
        return time.time_ns() // 1000

    def lives(self, process: Process) -> bool | None:
        """Whether that process lives: True; False (it is proved dead); None (nobody can tell from here)."""
        return processes.lives(process)

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        """Sleep without blocking the event loop."""
        await asyncio.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Block this thread until the event is set, or for so many seconds."""
        event.wait(seconds)

    async def await_event(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for the event without blocking the event loop, or for so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return


REAL = Environment()
"""The host's own clock, sleep and chance; what everything uses unless it is given another."""


class SeededRandom(random.Random):
    """Chance that can be had again: the same seed throws the same. For simulations; never for keys or tokens."""
