"""Memory over time, and whether it is flat."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from soak.processes import Memory

GROWTH_SHARE = 0.10
GROWTH_MEGABYTES = 8.0
"""What the last third may have over the first: allocators keep what they once had, and a page cache fills."""
SETTLE_SECONDS = 5.0
"""Left out at the beginning: a process that has just started imports, compiles and fills what is bounded."""
JUDGED_SECONDS = 20.0
"""Less than that without a kill says nothing."""


class Sample(NamedTuple):
    """What a process held at a moment of a life without a kill."""

    at: float
    memory: Memory


class Grown(NamedTuple):
    """The median of the first third and of the last one."""

    first: Memory
    last: Memory

    @property
    def flat(self) -> bool:
        """Whether neither the parent nor its workers have grown."""
        return all(
            last <= first * (1 + GROWTH_SHARE) + GROWTH_MEGABYTES
            for first, last in zip(self.first, self.last, strict=True)
        )


def grown(samples: Sequence[Sample]) -> Grown | None:
    """The comparison; None if the time was too short for one."""
    if not samples or samples[-1].at - samples[0].at < JUDGED_SECONDS:
        return None
    kept = [one for one in samples if one.at - samples[0].at >= SETTLE_SECONDS]
    third = max(1, len(kept) // 3)
    return Grown(_median(kept[:third]), _median(kept[-third:]))


def _median(samples: Sequence[Sample]) -> Memory:
    return Memory(
        statistics.median(one.memory.parent for one in samples),
        statistics.median(one.memory.workers for one in samples),
    )
