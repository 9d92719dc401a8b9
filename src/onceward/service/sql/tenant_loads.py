"""
Who has used how much processor time lately: for whose turn it is, and who has to wait for the others.

A load halves every ten seconds. In the quick workers a long turn weighs more than many short ones of the same length
together: between two short ones somebody else can have a turn.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

HALF_LIFE_SECONDS = 10.0
HEAVY = 1.5
"""
Seconds of load from which on a tenant is heavy: a tenth of a core in short statements for as long as it likes, or one
that used up its slice (for a second; two, for ten).
"""
SHORT_SECONDS = 0.01
"""A turn of this length weighs twice what it takes."""
MEGABYTE = 1_000_000
SMALL_BYTES = 100_000
"""
Whoever adds much to a database keeps its writer waiting for the disk, which takes no processor time. A megabyte at once
weighs ten seconds, ten times a tenth of it one second, and small rows nothing.
"""
WRITTEN_MAX = 2.0
"""The most that writing weighs: one such turn is enough to be heavy for four seconds."""
LEVEL = HEAVY / 4
"""Below this load, everybody's turn is as good as anybody's. Each doubling stands one step behind."""
OVERRUN = 1.5
"""The load of a request that used up its slice, besides what it took: it was in the way, and for nothing."""
KILLED = 100.0
"""The load of whoever made it necessary to kill a quick worker: a minute among the heavy."""
LOAD_MAX = 1_000.0
LIGHT_SECONDS = 10.0
"""For how long the heavy make way for a tenant who is not, after its last request."""
TENANTS_MAX = 10_000


class TenantLoads:
    """The loads of everybody who has asked lately."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._loads: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._light: OrderedDict[str, float] = OrderedDict()
        """The last two tenants that were not heavy, and when they asked."""

    def of(self, tenant: str) -> float:
        """A tenant's load now."""
        found = self._loads.get(tenant)
        return 0.0 if found is None else found[0] * 0.5 ** ((self._clock() - found[1]) / HALF_LIFE_SECONDS)

    def level(self, tenant: str) -> int:
        """How far behind the others it stands in a line."""
        load = self.of(tenant)
        return 0 if load < LEVEL else 1 + int(math.log2(load / LEVEL))

    def note_turn(self, tenant: str, cpu_seconds: float, grown_bytes: int = 0) -> None:
        """It had a turn in a quick worker, and added so much to its database."""
        written = min(WRITTEN_MAX, grown_bytes / MEGABYTE * grown_bytes / SMALL_BYTES)
        self.add(tenant, cpu_seconds * (1 + cpu_seconds / SHORT_SECONDS) + written)

    def is_heavy(self, tenant: str) -> bool:
        """Whether a tenant has used much lately."""
        return self.of(tenant) >= HEAVY

    def add(self, tenant: str, load: float) -> None:
        """It has used so much."""
        self._loads[tenant] = min(self.of(tenant) + load, LOAD_MAX), self._clock()
        self._loads.move_to_end(tenant)
        if len(self._loads) > TENANTS_MAX:
            self._loads.popitem(last=False)

    def makes_way(self, tenant: str) -> bool:
        """Whether a tenant that asks now is heavy while one that is not has asked lately."""
        now = self._clock()
        if self.is_heavy(tenant):
            return any(one != tenant and now - at < LIGHT_SECONDS for one, at in self._light.items())
        self._light[tenant] = now
        self._light.move_to_end(tenant)
        if len(self._light) > 2:
            self._light.popitem(last=False)
        return False
