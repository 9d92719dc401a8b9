"""What came of it, and whether it is good enough."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from soak.memory import GROWTH_MEGABYTES, GROWTH_SHARE
from soak.neighbours.tenants import is_attacker, is_neighbour
from soak.processes import Memory
from soak.subject import Verdict

RATIO_MAX = 3.0
"""The 99th percentile beside attackers, over that beside honest neighbours of the same rate."""
MEMORY_MAX = Memory(512.0, 1400.0)
"""Megabytes: bodies of all tenants together and what they are parsed to; four workers with what SQLite may take."""
ACCOUNTED_SHARE = 0.5
"""Of the processor time of the workers, what must be on somebody's account; files are opened for several at once."""
START_SECONDS = 2.0
"""What half a dozen workers use until they are ready, which is on nobody's account."""
PARSED = "attacker-json"
"""What it uses is used by the service itself."""
HONEST_TIMES, HONEST_SECONDS = 5, 0.5
"""
What an honest tenant may have on its account, as times of a neighbour's and seconds: it sends in every round, and a
neighbour in every other one.
"""

LIMITED = {"429", "507", "closed"}
"""What an attacker hears who is told to wait, has filled its quota, or whose connection was ended."""


class Round(NamedTuple):
    """What the honest tenants saw in one round."""

    kind: str
    """`honest` or `attack`: who was beside them."""
    answers: int
    failures: list[str]
    p50: float
    p99: float
    most: float
    memory: Memory
    """The most that was held."""
    cpu: dict[str, float]
    """Seconds of processor time: service, workers, and the two processes that send."""


class Use(NamedTuple):
    """What a tenant's account says."""

    cpu_seconds: float
    refused: int
    running: int = 0
    """Requests that run: what they use is on the account when they have ended."""


class MemoryUse(NamedTuple):
    """What the service held."""

    first: Memory
    last: Memory
    most: Memory

    @property
    def holds(self) -> bool:
        """Whether there is a limit, and the service itself has not grown."""
        bounded = all(one <= most for one, most in zip(self.most, MEMORY_MAX, strict=True))
        return bounded and self.last.parent <= self.first.parent * (1 + GROWTH_SHARE) + GROWTH_MEGABYTES


def percentile(seconds: Sequence[float], share: float) -> float:
    """The smallest value that so many are not above."""
    ordered = sorted(seconds)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


@dataclass
class Outcome:
    """All rounds, and what was found at the end."""

    ratio_max: float = RATIO_MAX
    """0: time is not judged."""
    rounds: list[Round] = field(default_factory=list)
    heard: dict[str, Counter[str]] = field(default_factory=dict)
    """What attackers were answered, by tenant."""
    effects: Verdict | None = None
    """The honest tenants' writes, counted in their files."""
    used: dict[str, float] = field(default_factory=dict)
    """Processor seconds of the service and of its workers, from the first request to the last."""
    uses: dict[str, Use] = field(default_factory=dict)
    """What everybody's account said at the end."""

    @property
    def ratios(self) -> list[float]:
        """Of the 99th percentiles: each round beside attackers, over the honest one before it."""
        return [
            attack.p99 / before.p99
            for before, attack in zip(self.rounds, self.rounds[1:], strict=False)
            if attack.kind == "attack"
        ]

    @property
    def ratio(self) -> float:
        """The median: one round in which the machine did something else says nothing."""
        return statistics.median(self.ratios) if self.ratios else math.nan

    @property
    def failures(self) -> list[str]:
        """Whatever failed for the honest tenants, in any round."""
        return [one for round in self.rounds for one in round.failures]

    @property
    def lost(self) -> int:
        """Acknowledged writes that are not there."""
        return len(self.effects.lost) if self.effects else 0

    @property
    def doubled(self) -> int:
        """Writes that are there more than once."""
        return len(self.effects.doubled) if self.effects else 0

    @property
    def memory(self) -> MemoryUse:
        """Over the rounds beside attackers."""
        held = [one.memory for one in self.rounds if one.kind == "attack"] or [Memory(0, 0)]
        third = max(1, len(held) // 3)
        return MemoryUse(_median(held[:third]), _median(held[-third:]), Memory(*map(max, zip(*held, strict=True))))

    @property
    def wrong_accounts(self) -> list[str]:
        """What is on the wrong account, or on nobody's."""
        wrong = []
        others = [use.cpu_seconds for name, use in self.uses.items() if is_neighbour(name)]
        usual = HONEST_TIMES * statistics.median(others or [0.0]) + HONEST_SECONDS
        for name, use in self.uses.items():
            if is_attacker(name):
                heard = LIMITED & self.heard.get(name, Counter()).keys()
                if not (use.cpu_seconds or use.refused or heard):
                    wrong.append(f"nothing of what {name} did is on its account, and it was never refused")
            elif use.refused:
                wrong.append(f"{name} is honest, and was refused {use.refused} times")
            elif use.cpu_seconds > usual:
                wrong.append(f"{name} has {use.cpu_seconds:.2f} processor seconds on its account: not all are its own")
        accounted = sum(use.cpu_seconds for use in self.uses.values())
        least = ACCOUNTED_SHARE * (self.used.get("workers", 0.0) - START_SECONDS)
        most = sum(self.used.values()) + HONEST_SECONDS
        if not least <= accounted - self.uses.get(PARSED, Use(0.0, 0)).cpu_seconds:
            wrong.append(f"{accounted:.1f} processor seconds are on an account; the workers alone have used more")
        if accounted > most:
            wrong.append(f"{accounted:.1f} processor seconds are on an account, and {most:.1f} were used")
        return wrong

    @property
    def holds(self) -> bool:
        """Whether the honest tenants had what they asked for, soon enough, and everybody else its own bill."""
        complete = self.effects is not None and self.effects.holds and not self.failures and bool(self.rounds)
        soon = not self.ratio_max or self.ratio <= self.ratio_max
        return complete and soon and self.memory.holds and not self.wrong_accounts


def _median(held: Sequence[Memory]) -> Memory:
    return Memory(statistics.median(one.parent for one in held), statistics.median(one.workers for one in held))
