"""
Brooker's congestive collapse: a server that gets slower with every request in flight, and clients that give up waiting.

Nobody takes a request back. A client that has timed out sends another, the server works on both, gets slower for
everybody, and more clients time out: after a short spike the load alone keeps the system down. Back-off delays that;
a budget ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from onceward._core.backoff import Backoff
from onceward._core.token_bucket import AWS_2026, RATIO, BudgetRule, TokenBucket
from onceward.runtime.environment import SeededRandom
from onceward.testing.simulator.event_queue import EventQueue
from onceward.testing.simulator.report import (
    Progress,
    ReportPlot,
    ReportTable,
    SimulationFinding,
    SimulationReport,
    ignore_progress,
)

SECONDS = 80
TRIES = 3
TIMEOUT = 3.0
SPIKE = (20.0, 25.0)
RAMP_PEAK = 25.0
RUNS = 5
"""Whether one run of blind retries recovers is luck; the average over a few is not."""
SETTLED = 60
"""From here on the spike is long over: what is reached now is what the system has come to."""

_NETWORK = 0.1
_SERVICE, _SLOPE = 1.0, 0.01
BACKOFF = Backoff(base=20.0, cap=3_600.0)
"""As in the model: a first window of 20 seconds, then 40."""


class CollapsePolicy(NamedTuple):
    """What clients do when they have given up waiting."""

    name: str
    tries: int
    backoff: Backoff | None = None
    budget: BudgetRule | None = None


POLICIES = (
    CollapsePolicy("no retry", 1),
    CollapsePolicy("3 tries", TRIES),
    CollapsePolicy("3 tries, back-off", TRIES, BACKOFF),
    CollapsePolicy("3 tries, budget", TRIES, None, RATIO),
    CollapsePolicy("3 tries, back-off, budget", TRIES, BACKOFF, RATIO),
    CollapsePolicy("3 tries, AWS 2026 budget", TRIES, None, AWS_2026),
)


@dataclass(slots=True)
class CollapseTally:
    """What happened in so many runs, by the second."""

    runs: int
    offered: list[int] = field(default_factory=lambda: [0] * SECONDS)
    sent: list[int] = field(default_factory=lambda: [0] * SECONDS)
    good: list[int] = field(default_factory=lambda: [0] * SECONDS)

    @property
    def success(self) -> float:
        """The share of calls that were answered in time."""
        return sum(self.good) / sum(self.offered)

    @property
    def load(self) -> float:
        """Requests per call that was wanted."""
        return sum(self.sent) / sum(self.offered)

    def settled(self, counts: list[int]) -> float:
        """Per second, in the end."""
        return sum(counts[SETTLED:]) / (SECONDS - SETTLED) / self.runs


class CollapseSimulation:
    """A server and everybody who calls it."""

    def __init__(
        self, policy: CollapsePolicy, arrivals: Callable[[float], float], dice: SeededRandom, tally: CollapseTally
    ) -> None:
        self._policy = policy
        self._arrivals = arrivals
        self._dice = dice
        self._events = EventQueue()
        self._budget = TokenBucket(policy.budget) if policy.budget is not None else None
        self._in_flight = 0
        self.tally = tally

    def run(self) -> None:
        """Let it run."""
        self._events.after(0.01, self._arrive)
        self._events.run(SECONDS)

    def _arrive(self) -> None:
        rate = self._arrivals(self._events.now)
        if rate > 0:
            self._events.after(self._dice.expovariate(rate), self._arrive)
        self._count(self.tally.offered)
        _Call(self).send(0.0)

    def _count(self, counts: list[int]) -> None:
        if self._events.now < SECONDS:
            counts[int(self._events.now)] += 1

    def _trip(self) -> float:
        return self._dice.expovariate(1 / _NETWORK)


class _Call:
    """One call: its attempts, one after the other. An answer to an attempt that was given up is not heard."""

    __slots__ = ("_attempt", "_paid", "_world")

    def __init__(self, world: CollapseSimulation) -> None:
        self._world = world
        self._attempt = 0
        self._paid: float | None = None

    def send(self, wait: float) -> None:
        events = self._world._events
        events.after(wait, self._world._count, self._world.tally.sent)
        events.after(wait + TIMEOUT, self._give_up, self._attempt)
        events.after(wait + self._world._trip(), self._serve, self._attempt)

    def _serve(self, attempt: int) -> None:
        world = self._world
        world._in_flight += 1
        world._events.after(_SERVICE + _SLOPE * world._in_flight, self._served, attempt)

    def _served(self, attempt: int) -> None:
        self._world._in_flight -= 1
        self._world._events.after(self._world._trip(), self._hear, attempt)

    def _hear(self, attempt: int) -> None:
        if attempt != self._attempt:
            return
        self._attempt = -1
        self._world._count(self._world.tally.good)
        if self._world._budget is not None:
            self._world._budget.succeeded(self._world._events.now, self._paid)

    def _give_up(self, attempt: int) -> None:
        if attempt != self._attempt:
            return
        world, retries = self._world, attempt
        self._attempt += 1
        if self._attempt >= world._policy.tries:
            return
        if world._budget is not None:
            world._budget.failed(world._events.now, first=retries == 0)
            self._paid = world._budget.withdraw(world._events.now)
            if self._paid is None:
                self._attempt = -1
                return
        backoff = world._policy.backoff
        self.send(backoff.wait(retries, world._dice.random()) if backoff is not None else 0.0)


def spike(now: float) -> float:
    """40 calls a second, and 80 for five seconds."""
    return 80.0 if SPIKE[0] <= now <= SPIKE[1] else 40.0


def ramp(now: float) -> float:
    """From 40 up to 80 calls a second, and down to none."""
    return 80.0 - 1.6 * abs(now - RAMP_PEAK)


def simulate_collapse(seed: int = 7, *, runs: int = RUNS, progress: Progress = ignore_progress) -> SimulationReport:
    """Every policy under a spike and under a ramp."""
    dice = SeededRandom(seed)
    spiked, ramped = {}, {}
    for done, policy in enumerate(POLICIES):
        progress(done, len(POLICIES))
        spiked[policy.name], ramped[policy.name] = CollapseTally(runs), CollapseTally(runs)
        for _ in range(runs):
            CollapseSimulation(policy, spike, dice, spiked[policy.name]).run()
            CollapseSimulation(policy, ramp, dice, ramped[policy.name]).run()
    blind, budgeted = (spiked[name] for name in ("3 tries", "3 tries, budget"))
    return SimulationReport(
        "collapse",
        "a server that slows down under load, and clients that time out and retry, after M. Brooker's simulator (2023)",
        seed,
        [
            _table("a spike: 40 calls a second, 80 from second 20 to 25", spiked),
            _table("a ramp: 40 to 80 to 0", ramped),
        ],
        [_plot("A spike of five seconds", spiked, SPIKE), _plot("A ramp up and down", ramped, None)],
        [
            SimulationFinding(
                "after the spike, blind retries stay below half of the offered load",
                blind.settled(blind.good) < blind.settled(blind.offered) / 2,
            ),
            SimulationFinding(
                "after the spike, retries on a budget return to at least 95 % of the offered load",
                budgeted.settled(budgeted.good) >= 0.95 * budgeted.settled(budgeted.offered),
            ),
            SimulationFinding("a budget adds at most 5 % of load", budgeted.load <= 1.05),
        ],
    )


def _table(title: str, tallies: dict[str, CollapseTally]) -> ReportTable:
    headings = ("policy", "success", "load", f"answered a second, from second {SETTLED}", "offered a second")
    rows: list[tuple[str | int | float, ...]] = [
        (
            name,
            round(tally.success, 3),
            round(tally.load, 2),
            round(tally.settled(tally.good), 1),
            round(tally.settled(tally.offered), 1),
        )
        for name, tally in tallies.items()
    ]
    return ReportTable(title, headings, rows)


def _plot(title: str, tallies: dict[str, CollapseTally], marked: tuple[float, float] | None) -> ReportPlot:
    shown = ("no retry", "3 tries", "3 tries, back-off", "3 tries, back-off, budget")
    lines = [
        (name, [(second + 0.5, count / tallies[name].runs) for second, count in enumerate(tallies[name].good)])
        for name in shown
    ]
    return ReportPlot(title, "seconds", "calls answered in time, a second", lines, marked)
