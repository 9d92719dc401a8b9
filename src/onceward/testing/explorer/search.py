"""
Try everything: every schedule of a scenario, each state once.

The search goes breadth first, so that the first schedule found to break an invariant is a shortest one. Two schedules
that lead to the same state have the same future, so it is followed once; how many schedules there are is counted on
the graph of states afterwards. `remember=False` follows every schedule by itself, to check that shortcut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from onceward.testing.explorer.invariants import INVARIANTS
from onceward.testing.explorer.machine import ExplorerState, Machine, ScheduleStep, Transition
from onceward.testing.explorer.scenario import Scenario
from onceward.testing.explorer.schedule_text import describe_step
from onceward.testing.explorer.world import SimulatedStore

STATES_MAX = 200_000
"""A scenario beyond this is not a small one: it is cut off, and says so."""


_CRASHES = {"crash": "before", "die": "after"}


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that was broken, how, and a shortest schedule that leads there."""

    invariant: str
    how: str
    schedule: tuple[str, ...]


@dataclass(slots=True)
class ExplorationReport:
    """What came of trying a scenario."""

    scenario: Scenario
    schedules: int = 0
    """How many schedules there are, from the beginning to an end."""
    states: int = 0
    """How many different states they lead through."""
    steps: int = 0
    """How many steps between two states were tried."""
    checks: int = 0
    """How many times an invariant was judged."""
    violations: dict[str, Violation] = field(default_factory=dict)
    """By the invariant's name: the first found, so a shortest."""
    ends: Counter[ExplorerState] = field(default_factory=Counter, repr=False)
    """The states at which schedules end, and how many end there."""
    crashes: set[str] = field(default_factory=set)
    """The places where somebody died, by the names of the failpoints there."""
    cut_off: bool = False

    @property
    def ok(self) -> bool:
        """Whether everything held (or, for a limit, whether what it shows was seen)."""
        if self.cut_off:
            return False
        return self.scenario.limit in self.violations if self.scenario.limit else not self.violations


class Search:
    """One search through one scenario."""

    def __init__(
        self, scenario: Scenario, register: SimulatedStore, progress: Callable[[int], None] | None = None
    ) -> None:
        self._machine = Machine(scenario, register)
        self._progress = progress
        self._report = ExplorationReport(scenario)
        self._numbers: dict[ExplorerState, int] = {}
        self._came: list[tuple[int, ScheduleStep]] = []
        """For each state: from which one, by which step."""
        self._next: list[list[int]] = []

    def run(self, *, remember: bool = True) -> ExplorationReport:
        """Try everything."""
        if remember:
            self._breadth_first()
            self._count_schedules()
        else:
            self._every_schedule(self._machine.beginning())
        self._report.states = len(self._numbers)
        return self._report

    def _breadth_first(self) -> None:
        waiting = [self._machine.beginning()]
        self._number(waiting[0], -1, ScheduleStep(""))
        for number, now in enumerate(waiting):  # It grows while it is walked through: a queue.
            for step in self._machine.steps(now):
                after = self._take(now, step, number)
                reached = self._number(after, number, step)
                self._next[number].append(reached)
                if reached == len(waiting):
                    waiting.append(after)
            if not self._next[number]:
                self._end(now, number)
            if len(waiting) > STATES_MAX:
                self._report.cut_off = True
                return
            if self._progress is not None and not number % 1_000:
                self._progress(number)

    def _number(self, now: ExplorerState, parent: int, step: ScheduleStep) -> int:
        """The number of a state: its own, or the next one if it is new."""
        number = self._numbers.setdefault(now, len(self._came))
        if number == len(self._came):
            self._came.append((parent, step))
            self._next.append([])
        return number

    def _take(self, now: ExplorerState, step: ScheduleStep, number: int) -> ExplorerState:
        after, moves = self._machine.take(now, step)
        self._report.steps += 1
        if step.kind in _CRASHES:
            position = now.positions[step.actor]
            at = getattr(position.effect if position is not None else None, "at", "pause")
            self._report.crashes.add(f"{at}.{_CRASHES[step.kind]}")
        for move in moves:
            self._judge(move, number, step)
        return after

    def _judge(self, move: Transition, number: int, step: ScheduleStep) -> None:
        self._report.checks += len(INVARIANTS)
        for name, _, judge in INVARIANTS:
            how = judge(move)
            if how is not None and name not in self._report.violations:
                self._report.violations[name] = Violation(name, how, self._schedule(number, step))

    def _schedule(self, number: int, last: ScheduleStep | None = None) -> tuple[str, ...]:
        """The steps to that state (and one more) in words: they are taken again, and told."""
        steps = [last] if last is not None else []
        while number > 0:
            number, step = self._came[number]
            steps.append(step)
        told, now = [], self._machine.beginning()
        for step in reversed(steps):
            after, moves = self._machine.take(now, step)
            told.append(describe_step(self._machine.scenario, now, step, moves))
            now = after
        return tuple(told)

    def _end(self, now: ExplorerState, number: int) -> None:
        left = self._machine.unfinished(now)
        if left and "never-stuck" not in self._report.violations:
            how = f"{left[0].name} waits for ever"
            self._report.violations["never-stuck"] = Violation("never-stuck", how, self._schedule(number))

    def _count_schedules(self) -> None:
        """Count the paths from the beginning to an end: sum them along the graph, which has no cycles."""
        entering = Counter(target for targets in self._next for target in targets)
        paths = [0] * len(self._next)
        paths[0], ready, nows = 1, [0], list(self._numbers)
        while ready:
            number = ready.pop()
            if not self._next[number]:
                self._report.schedules += paths[number]
                self._report.ends[nows[number]] += paths[number]
            for target in self._next[number]:
                paths[target] += paths[number]
                entering[target] -= 1
                if not entering[target]:
                    ready.append(target)

    def _every_schedule(self, now: ExplorerState) -> None:
        """Follow each schedule by itself, from its beginning to its end."""
        self._number(now, -1, ScheduleStep(""))
        steps = self._machine.steps(now)
        if not steps:
            self._report.schedules += 1
            self._report.ends[now] += 1
        for step in steps:
            self._every_schedule(self._take(now, step, 0))
