"""
Flood control for calls without a valid token: a bucket of tokens for each address. The clock is handed in.

Who has a valid token is never counted and never slowed (authenticate first, then ask here only for those who failed). A
caller is its address, IPv6 by /64. As many addresses are remembered as a limit says, and the one unseen for longest is
forgotten first: it begins anew with a full bucket, so somebody with very many addresses is slowed less, and memory
stays bounded.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from onceward._core.errors import ConfigurationError
from onceward.service.access.addresses import flood_address

BURST = 60
"""Calls at once: a page with its parts, or a client that was given a wrong token and tries a while."""
PER_SECOND = 1.0
ADDRESSES_MAX = 10_000
"""About 2 MB."""


class BucketLevel(NamedTuple):
    """How much is in a bucket, at a time."""

    calls: float
    at: float


class BucketResult(NamedTuple):
    """What one call did to a bucket."""

    level: BucketLevel
    wait: float
    """Seconds until the next call would be let through; 0: this one is."""


def take_call(level: BucketLevel, now: float, *, burst: int, per_second: float) -> BucketResult:
    """Take one call out of a bucket that fills up by itself. A refused call costs nothing."""
    # A clock that went back must not empty a bucket.
    calls = min(float(burst), level.calls + max(0.0, now - level.at) * per_second)
    if calls >= 1.0:
        return BucketResult(BucketLevel(calls - 1.0, now), 0.0)
    return BucketResult(BucketLevel(calls, now), (1.0 - calls) / per_second)


class FloodControl:
    """Slows calls from one address. Safe for threads."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        burst: int = BURST,
        per_second: float = PER_SECOND,
        addresses_max: int = ADDRESSES_MAX,
    ) -> None:
        if burst < 1 or addresses_max < 1 or not (math.isfinite(per_second) and per_second > 0):
            raise ConfigurationError("flood control needs a burst and a number of addresses of at least 1, and a rate")
        self._clock = clock
        self._burst = burst
        self._per_second = per_second
        self._addresses_max = addresses_max
        self._levels: OrderedDict[str, BucketLevel] = OrderedDict()
        self._guard = threading.Lock()

    def retry_after(self, address: str) -> int | None:
        """Count one unauthenticated call: None if it may go on, else after how many whole seconds to retry."""
        caller = flood_address(address)
        with self._guard:
            now = self._clock()
            level = self._levels.pop(caller, None) or BucketLevel(float(self._burst), now)
            poured = take_call(level, now, burst=self._burst, per_second=self._per_second)
            self._levels[caller] = poured.level
            if len(self._levels) > self._addresses_max:
                self._levels.popitem(last=False)
        return math.ceil(poured.wait) if poured.wait > 0 else None

    def wait_of(self, address: str) -> int | None:
        """What `retry_after` would say; nothing is counted."""
        with self._guard:
            level = self._levels.get(flood_address(address))
            if level is None:
                return None
            wait = take_call(level, self._clock(), burst=self._burst, per_second=self._per_second).wait
        return math.ceil(wait) if wait > 0 else None

    def __len__(self) -> int:
        return len(self._levels)
