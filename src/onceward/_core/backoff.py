"""
How long to wait before the next attempt: arithmetic only. Chance comes in as a number, time not at all.

    full           uniform(0, ceiling)                    fewest calls from about twenty clients on: the default
    equal          ceiling/2 + uniform(0, ceiling/2)      never less than half: never the fastest, either
    decorrelated   uniform(base, 3 x the wait before)     sooner with few clients, a third more calls with many
    none           ceiling                                every client at the same instant: a herd, so say why

with ceiling = min(cap, base x 2^retries), where `retries` is how many retries there were already (0 at first).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from onceward._core.errors import ConfigurationError

Jitter: TypeAlias = Literal["full", "equal", "decorrelated", "none"]

JITTERS = ("full", "equal", "decorrelated", "none")

BASE = 0.1
"""Seconds: the first retry comes after 50 ms on average, about what a hiccup lasts."""

CAP = 10.0
"""Seconds: no single back-off of ours is longer. A server may ask for more."""

CAP_MAX = 3_600.0
"""An hour: whoever waits longer between two attempts wants a queue, not a retry."""

_DOUBLINGS_MAX = 60
_TWO_TO_53 = 2.0**53


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter. Chance is handed in as a number, so that equal inputs give equal waits."""

    base: float = BASE
    cap: float = CAP
    jitter: Jitter = "full"
    reason: str = ""
    """Why there is to be no jitter: needed for jitter="none"."""

    def __post_init__(self) -> None:
        for name, value in (("base", self.base), ("cap", self.cap)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= CAP_MAX:
                raise ConfigurationError(f"{name} is a number of seconds, more than 0 and at most {CAP_MAX:g}")
        if self.base > self.cap:
            raise ConfigurationError("base is where the back-off begins, so it cannot be more than cap")
        if self.jitter not in JITTERS:
            raise ConfigurationError(f"jitter is one of {', '.join(JITTERS)}, not {str(self.jitter)[:40]!r}")
        if self.jitter == "none" and not (isinstance(self.reason, str) and self.reason.strip()):
            raise ConfigurationError(
                "without jitter every client comes back at the same instant; if that is meant, say why: "
                'jitter="none", jitter_reason="one client only"'
            )

    def ceiling(self, retries: int) -> float:
        """The most that full jitter may wait before retry number `retries` + 1."""
        doubled = self.base * (1 << (retries if retries < _DOUBLINGS_MAX else _DOUBLINGS_MAX))
        return doubled if doubled < self.cap else self.cap

    def wait(self, retries: int, chance: float, previous: float = 0.0) -> float:
        """Seconds to wait after so many retries; `chance` is in [0, 1), `previous` the wait before (decorrelated)."""
        if self.jitter == "full":
            return chance * self.ceiling(retries)
        if self.jitter == "equal":
            return self.ceiling(retries) * (0.5 + chance / 2)
        if self.jitter == "none":
            return self.ceiling(retries)
        highest = 3 * max(self.base, previous)
        return min(self.cap, self.base + chance * (highest - self.base))


def random_fraction(drawn: bytes) -> float:
    """Seven random bytes as a number in [0, 1)."""
    return (int.from_bytes(drawn[:7], "big") >> 3) / _TWO_TO_53


def wait_after_server(asked: float, own: float) -> float:
    """
    The wait when the other side asked for one: never less than asked, and not everybody at the same instant.

    `own` is the back-off computed as if nobody had asked; it keeps growing, so that a server that is wrong about its
    own recovery ("one second", for minutes) is left alone longer and longer.
    """
    return (asked if math.isfinite(asked) and asked > 0 else 0.0) + own
