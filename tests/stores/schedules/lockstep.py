"""
The explorer's schedules on a real store, in lockstep with its model.

A schedule of the explorer is a row of choices: whose flow goes on, who dies, which answer is lost, when time passes.
Here the same flows take the same choices, and every put, load, extend and purge is carried out on a real store as well.
What the store answers must be what the model answers, and the explorer's invariants are judged at every change: so what
they promise of the model, they promise of the store.

The clock of a server cannot be moved, but what it has written can: time passes by making every instant that much
older. Fences, instants and the versions of tombstones are the store's own; each is translated to and fro, and fences
must rise.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from onceward._core.erasure_marks import mark_scope
from onceward._core.flow import Extend, Load, Put, PutBack
from onceward._core.record import NOW, Guarantee, PutResult, Record, Write
from onceward.runtime.environment import REAL
from onceward.runtime.flow_driver import run
from onceward.testing.explorer import INVARIANTS, SCENARIOS, AdvanceTime, Erase, Forget, Scenario
from onceward.testing.explorer.actor_flows import SCOPE
from onceward.testing.explorer.actors import Position
from onceward.testing.explorer.machine import REST, ExplorerState, Machine, ScheduleStep, Transition
from onceward.testing.explorer.schedule_text import describe_step
from onceward.testing.explorer.world import SimulatedStore, World

SLACK_US = 8_000_000
"""How much later the real clock may be, because a schedule takes time: less than any lease of a scenario."""
STEPS_MAX = 500

SAME = (
    *("id", "kind", "scope", "key", "operation", "family", "state", "guarantee", "doubt", "fingerprint", "token"),
    *("attempt", "codec", "result", "error", "holder"),
)
SPANS = ("lease_left", "replay_left", "forget_left")


def playable() -> list[Scenario]:
    """
    Those that a store by itself can play.

    Not those in a caller's transaction (there the database decides who waits), nor those with a slow clock.
    """
    return [one for one in SCENARIOS if one.terms.guarantee != Guarantee.ATOMIC and not one.lag]


class Parted(AssertionError):
    """The store and the model do not agree, or an invariant is broken; with the schedule that leads there."""


class Theatre(Protocol):
    """A real store that is empty, and whose past can be moved."""

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """See `onceward.stores.Store.put`."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Any other method of the store."""

    def age(self, microseconds: int) -> None:
        """Make everything that was written so much older."""


class Known(NamedTuple):
    """What the model calls by one name and the store by another."""

    fences: dict[tuple[bytes, int], int]
    instants: dict[tuple[bytes, int], int]
    versions: dict[bytes, bytes]


class Lockstep(Machine):
    """The explorer's machine, with a real store beside its world."""

    def __init__(self, scenario: Scenario, store: Theatre, register: SimulatedStore | None = None) -> None:
        super().__init__(scenario, register or SimulatedStore())
        self.store = store
        self.compared = 0
        self._known = Known({}, {}, {})
        self._greatest: dict[bytes, int] = {}

    def take(self, now: ExplorerState, step: ScheduleStep) -> tuple[ExplorerState, list[Transition]]:
        """See `Machine.take`; time passes on the store as well."""
        if step.kind == "rest":
            self.store.age(REST)
        after, moves = super().take(now, step)
        if step.kind == "event":
            event = self.scenario.events[now.event]
            if isinstance(event, AdvanceTime):
                self.store.age(event.microseconds)
            elif isinstance(event, Forget | Erase):
                if isinstance(event, Erase):
                    run(mark_scope(SCOPE), self._left_mark)
                self.store.call("erase", [row.write.id for row in now.world.rows])
            else:
                self._purge(now.world, after.world)
        return after, moves

    def _left_mark(self, effect: Any) -> Any:
        return self.store.put(effect.write, effect.expect) if isinstance(effect, Put) else REAL.random(48)

    def _perform(self, now: ExplorerState, position: Position) -> tuple[World, Any]:
        world, answer = super()._perform(now, position)
        match position.effect:
            case Put(write=write, expect=expect):
                self._put(write, expect, answer)
            case PutBack(write=write, marks=marks):
                self._put(write, None, answer, marks)
            case Load(id=id):
                self._compare("load", answer, self.store.call("load", id))
            case Extend(family=family, replay=replay, forget=forget):
                self._agree("extend", answer, self.store.call("extend", family, replay, forget))
        return world, answer

    def _take_flush(self, now: ExplorerState) -> tuple[ExplorerState, list[Transition]]:
        together = self.register.sent_together(now.world.queue)
        after, moves = super()._take_flush(now)
        for (_, put), move in zip(together, moves, strict=True):
            self._put(put.write, put.expect, move.answer)
        return after, moves

    def _put(
        self, write: Write, expect: bytes | None, modelled: PutResult, marks: tuple[bytes, ...] | None = None
    ) -> None:
        fences, instants, versions = self._known
        id, before = write.id, write.fence - 1
        real = write._replace(
            fence=fences[id, before] + 1 if write.rise and (id, before) in fences else fences.get((id, write.fence), 1),
            first_at=instants.get((id, write.first_at), NOW),
            settled_at=None if write.settled_at is None else instants.get((id, write.settled_at), NOW),
        )
        if marks is None:
            told = self.store.put(real, None if expect is None else versions.get(expect, expect))
        else:
            told = self.store.call("put_back", real, marks)
        self._agree("landed", modelled.landed, told.landed)
        if told.landed and modelled.record is not None and told.record is not None:
            if write.rise:
                self._agree("its fence rises", True, told.record.fence > self._greatest.get(id, 0))
                self._greatest[id] = told.record.fence
            self._learn(modelled.record, told.record)
        self._compare("put", modelled.record, told.record)

    def _learn(self, modelled: Record, real: Record) -> None:
        fences, instants, versions = self._known
        fences[real.id, modelled.fence] = real.fence
        instants[real.id, modelled.first_at] = real.first_at
        if modelled.settled_at is not None and real.settled_at is not None:
            instants[real.id, modelled.settled_at] = real.settled_at
        versions[modelled.version] = real.version

    def _purge(self, before: World, after: World) -> None:
        self.store.call("purge", 1_000)
        for row in before.rows:
            real, left = self.store.call("load", row.write.id), after.find(row.write.id)
            if left is not None and left.write.version != row.write.version and real is not None:
                self._known.versions[left.write.version] = real.version
            self._compare("purge", None if left is None else left.read(after.now), real)

    def _compare(self, what: str, modelled: Record | None, real: Record | None) -> None:
        self.compared += 1
        if modelled is None or real is None:
            self._agree(what, modelled, real)
            return
        for name in SAME:
            self._agree(f"{what}: {name}", getattr(modelled, name), getattr(real, name))
        version = self._known.versions.get(modelled.version, modelled.version)
        self._agree(f"{what}: version", version, real.version)
        self._agree(f"{what}: fence", self._known.fences.get((real.id, modelled.fence)), real.fence)
        for name in SPANS:
            expected, actual = getattr(modelled, name), getattr(real, name)
            near = expected == actual or (
                expected is not None and actual is not None and 0 <= expected - actual < SLACK_US
            )
            self._agree(f"{what}: {name} ({expected}, {actual})", True, near)

    def _agree(self, what: str, modelled: Any, real: Any) -> None:
        if modelled != real:
            raise Parted(f"{what}: the model says {modelled!r}, the store {real!r}")


class Played(NamedTuple):
    """What came of some schedules."""

    schedules: int
    steps: int
    comparisons: int
    judged: int


def play(
    theatre: Callable[[], Theatre], schedules: int, *, seed: int, scenarios: list[Scenario] | None = None
) -> Played:
    """Play that many schedules, chosen by chance, each in an empty theatre; raises `Parted` at the first that fails."""
    chosen, played = scenarios or playable(), Played(0, 0, 0, 0)
    for number in range(schedules):
        dice = random.Random(f"{seed}/{number}")
        machine = Lockstep(chosen[number % len(chosen)], theatre())
        steps, judged = play_one(machine, dice)
        played = Played(
            played.schedules + 1, played.steps + steps, played.comparisons + machine.compared, played.judged + judged
        )
    return played


def play_one(machine: Lockstep, dice: random.Random) -> tuple[int, int]:
    """Play one schedule, chosen by the dice: how many steps it had, and how many judgements."""
    now, told, judged = machine.beginning(), list[str](), 0
    for taken in range(STEPS_MAX):
        choices = machine.steps(now)
        if not choices:
            if left := machine.unfinished(now):
                raise Parted(_story(machine, told, f"{left[0].name} waits for ever"))
            return taken, judged
        step = dice.choice(choices)
        try:
            after, moves = machine.take(now, step)
        except Parted as parted:
            raise Parted(_story(machine, [*told, str(step)], str(parted))) from None
        told.append(describe_step(machine.scenario, now, step, moves))
        for move in moves:
            for name, _, judge in INVARIANTS:
                judged += 1
                if (how := judge(move)) is not None:
                    raise Parted(_story(machine, told, f"{name}: {how}"))
        now = after
    raise Parted(_story(machine, told, "it has no end"))


def _story(machine: Lockstep, told: list[str], how: str) -> str:
    return "\n".join([f"{machine.scenario.name}: {how}", *(f"  {line}" for line in told)])
