"""A caller whose clock jumps, back and forth, by hours and days: nothing runs a second time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from onceward._core.errors import Expired
from onceward.drill.bench import Bench
from onceward.drill.proof import ONE_EFFECT, Claim, Numbers, Proof
from onceward.runtime.environment import Environment
from onceward.stores._store_kinds import kind_of

HOURS = (0, -48, 48, -1, 25)


class JumpingClock(Environment):
    """The host's clock, so many hours off."""

    def __init__(self) -> None:
        self.hours = 0

    def wall_us(self) -> int:
        """Microseconds since 1970, off by so many hours."""
        return super().wall_us() + self.hours * 3_600_000_000


def _run(bench: Bench) -> Numbers:
    key, clock = bench.key("jump"), JumpingClock()
    url = bench.url
    if kind_of(url).local:
        # There the caller's clock is the store's, and a store that has seen a later time does not go back behind it.
        url = bench.own_file()
        bench.said.append("a temporary SQLite file: the clock of a local store is this machine's")
    gate = bench.gate(url, environment=clock, retain=timedelta(days=1), tombstone=timedelta(days=30))
    told = []
    first, *later = HOURS
    for clock.hours in (first, *bench.random.sample(later, len(later))):

        def charge(_: Any) -> str:
            bench.book.happen(key)
            return "charged"

        try:
            told.append(bench.send(gate, key, charge)[1])
        except Expired:
            told.append(True)
    return {"operations": 1, "effects": bench.book.count(key), "jumps": len(later), "notRunAgain": sum(told)}


CLOCK_JUMP = Proof(
    name="clock-jump",
    shows="a caller whose clock jumps by hours and days runs nothing twice",
    without="the gate",
    run=_run,
    claims=(
        ONE_EFFECT,
        Claim(
            "after each jump the caller gets the result, or is refused",
            lambda n: n["notRunAgain"] == n["jumps"] == len(HOURS) - 1,
        ),
    ),
)
