"""
One step at a time: which steps a state allows, and what each of them does.

    go           an actor's pending effect is performed, and it is told the answer
    lose, down   the same, but no answer comes: it was performed (lose), or it was not (down)
    crash, die   an actor is never resumed: before its pending effect (crash), or after it (die)
    stop, strike an interrupt strikes the actor: before its pending effect (stop), or after it (strike)
    event        time passes, somebody purges
    flush        the puts that wait are sent as one statement
    rest         nothing else can happen: a long time goes by
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from onceward._core.flow import (
    Begin,
    CallFunction,
    CheckProcess,
    Commit,
    Extend,
    Finish,
    Load,
    LoadInTransaction,
    Pause,
    Probe,
    Put,
    PutBack,
    Rollback,
    Sleep,
)
from onceward._core.operation import Operation
from onceward._core.record import Guarantee, State
from onceward._core.terms import LEASE_CEILING
from onceward.testing.explorer.actors import LOST, STRUCK, Actor, CallResult, Position, actor_clock
from onceward.testing.explorer.scenario import (
    AdvanceTime,
    Erase,
    Forget,
    LookUp,
    Scenario,
    ScenarioEvent,
    Watch,
)
from onceward.testing.explorer.world import SECOND, AppliedEffect, Row, SimulatedStore, World

REST = 100 * SECOND
"""Longer than any lease or wait of a scenario."""

RESTS_MAX = 4
"""After so many rests with somebody still waiting, somebody waits for ever."""

T = TypeVar("T", bound=tuple[Any, ...])

_STORE = (Put, PutBack, Load, Extend, Finish, Commit)
_LASTING = (Put, PutBack, CallFunction, Finish, Commit)
_STRIKABLE = (Put, PutBack, CallFunction, Probe, Finish, Pause, Sleep)
_ENDINGS = ("settle", "release", "doubt")


class History(NamedTuple):
    """What the invariants remember of the past."""

    fences: tuple[tuple[bytes, int], ...] = ()
    """The greatest fence given out, per id."""
    runs: tuple[tuple[bytes, str, int], ...] = ()
    """Runs that may have had their effect: id, whose, and when."""
    answers: tuple[tuple[bytes, Any], ...] = ()
    """Answers that callers were given."""


class ScheduleStep(NamedTuple):
    """One choice of a schedule."""

    kind: str
    actor: int = -1


class ExplorerState(NamedTuple):
    """Everything: the world, and where everybody stands in it."""

    world: World
    positions: tuple[Position | None, ...]
    """None: it is dead."""
    notes: History
    event: int
    crashes: int
    losses: int
    interrupts: int
    rests: int


class Transition(NamedTuple):
    """One change, as the invariants see it."""

    scenario: Scenario
    actor: Actor | None
    effect: Any
    answer: Any
    before: World
    after: World
    was: Position | None
    now: Position | None
    notes: History
    old: Row | None = None
    new: Row | None = None
    """The row that a put was about, before and after, as its actor sees it."""


class Machine:
    """The rules of the world for one scenario over one register."""

    def __init__(self, scenario: Scenario, register: SimulatedStore) -> None:
        self.scenario = scenario
        self.register = register

    def beginning(self) -> ExplorerState:
        """Where every schedule begins."""
        scenario, world = self.scenario, World(lag=self.scenario.lag)
        positions = tuple(Position(actor).begun(world.now) for actor in scenario.actors)
        return ExplorerState(world, positions, History(), 0, scenario.crashes, scenario.losses, scenario.interrupts, 0)

    # --- what can happen ---

    def steps(self, now: ExplorerState) -> list[ScheduleStep]:
        """Every choice there is. None: the schedule is at its end."""
        steps = [step for position in now.positions if position is not None for step in self._steps_of(now, position)]
        if now.event < len(self.scenario.events) and self._may_pass(now):
            steps.append(ScheduleStep("event"))
        if now.world.queue:
            steps.append(ScheduleStep("flush"))
        if not steps and now.rests < RESTS_MAX and self.unfinished(now):
            steps.append(ScheduleStep("rest"))
        return steps

    def unfinished(self, now: ExplorerState) -> list[Actor]:
        """Who is alive and has not come to an end."""
        return [p.actor for p in now.positions if p is not None and not p.is_over and not p.actor.background]

    def _steps_of(self, now: ExplorerState, position: Position) -> Iterator[ScheduleStep]:
        actor, effect = position.actor, position.effect
        if position.is_over or not self._may_begin(now, actor) or self._is_queued(now, actor):
            return
        number, last = actor.index, actor.after == "*"
        if self._can_perform(now, position):
            yield ScheduleStep("go", number)
            if now.losses and not last and isinstance(effect, _STORE) and self._may_lose(now, effect, number):
                yield ScheduleStep("lose", number)
                yield ScheduleStep("down", number)
            if now.crashes and not last and isinstance(effect, _LASTING) and not self.scenario.together:
                yield ScheduleStep("die", number)
            if now.interrupts and not last and isinstance(effect, (Put, PutBack, CallFunction, Finish)):
                yield ScheduleStep("strike", number)
        if now.crashes and not last:
            yield ScheduleStep("crash", number)
        if now.interrupts and not last and isinstance(effect, _STRIKABLE):
            yield ScheduleStep("stop", number)

    def _may_begin(self, now: ExplorerState, actor: Actor) -> bool:
        if actor.after == "*":
            return now.rests > 0 and self._events_are_over(now) and self._others_are_over(now, actor)
        return not actor.after or self._is_over(now, actor.after)

    def _events_are_over(self, now: ExplorerState) -> bool:
        events = self.scenario.events
        return now.event == len(events) or (type(events[now.event]) is Forget and not self._may_pass(now))

    def _is_over(self, now: ExplorerState, name: str) -> bool:
        position = now.positions[self.scenario.index[name]]
        return position is None or position.is_over

    def _others_are_over(self, now: ExplorerState, actor: Actor) -> bool:
        return all(
            one.index == actor.index or one.background or self._is_over(now, one.name) for one in self.scenario.actors
        )

    def _is_queued(self, now: ExplorerState, actor: Actor) -> bool:
        return any(number == actor.index for number, _ in now.world.queue)

    def _may_lose(self, now: ExplorerState, effect: Any, number: int) -> bool:
        """Inside a transaction only the commit can go unanswered: whatever else fails there, undoes it."""
        return isinstance(effect, (Commit, Finish)) or not now.world.layers(number)

    def _may_pass(self, now: ExplorerState) -> bool:
        event = self.scenario.events[now.event]
        if type(event) is Forget:  # What was answered and is lost, nobody can mend; nor what a dead holder held.
            return bool(now.world.rows) and all(row.write.state == State.CLAIMED for row in now.world.rows)
        return type(event) is not AdvanceTime or self.scenario.zombies or not self._about_to_act(now)

    def _about_to_act(self, now: ExplorerState) -> bool:
        return any(p is not None and type(p.effect) is CallFunction for p in now.positions)

    def _can_perform(self, now: ExplorerState, position: Position) -> bool:
        effect, number = position.effect, position.actor.index
        world = now.world
        match effect:
            case Put() | PutBack() | Finish():
                return not world.is_locked(effect.write.id, number)
            case Pause():
                if not effect.id:
                    return True
                row = world.find(effect.id, number)
                if row is not None and world.is_left_behind(row) and row.write.guarantee != Guarantee.PROBED:
                    return True  # Whoever waits looks again and again; here, when there is something to be seen.
                return (None if row is None else self.register.read(row, world, number)) != position.seen
            case Begin():
                return not (self.scenario.serial and any(one.actor != number for one in world.transactions))
            case LookUp():
                row = world.find(effect.id)
                doubtful = row is not None and row.write.state in (State.CLAIMED, State.IN_DOUBT)
                return doubtful and row is not None and not row.is_live(world.now) and not self._about_to_act(now)
            case Watch():
                watched = now.positions[self.scenario.index[effect.actor]]
                return watched is not None and type(watched.effect) is CallFunction
        return True

    # --- what then happens ---

    def take(self, now: ExplorerState, step: ScheduleStep) -> tuple[ExplorerState, list[Transition]]:
        """Take a step: what follows, and the changes on the way."""
        match step.kind:
            case "event":
                return self._take_event(now)
            case "rest":
                return self._advance(now, None, world=now.world._replace(now=now.world.now + REST), rests=now.rests + 1)
            case "flush":
                return self._take_flush(now)
            case "crash":
                world = now.world.without(step.actor)
                return self._advance(now, step.actor, world=world, crashes=now.crashes - 1)
        return self._take_turn(now, step)

    def _take_turn(self, now: ExplorerState, step: ScheduleStep) -> tuple[ExplorerState, list[Transition]]:
        position = now.positions[step.actor]
        if position is None:
            raise LookupError("a dead actor cannot act")
        effect = position.effect
        if step.kind == "go" and self.scenario.together and type(effect) is Put:
            queue = (*now.world.queue, (step.actor, effect))
            return now._replace(world=now.world._replace(queue=queue)), []
        if step.kind == "down":
            world = now.world.with_layers(step.actor, ())
            return self._advance(now, step.actor, LOST, world=world, losses=now.losses - 1)
        if step.kind == "stop":
            return self._advance(now, step.actor, STRUCK, world=now.world, interrupts=now.interrupts - 1)
        world, answer = self._perform(now, position)
        if step.kind == "strike":
            answer = answer._replace(interrupted=True) if type(effect) is CallFunction else STRUCK
            return self._advance(now, step.actor, answer, world=world, interrupts=now.interrupts - 1)
        if step.kind == "lose":
            return self._advance(now, step.actor, LOST, world=world, losses=now.losses - 1)
        if step.kind == "die":
            world = world.without(step.actor)
            return self._advance(now, step.actor, answer, dead=True, world=world, crashes=now.crashes - 1)
        return self._advance(now, step.actor, answer, world=world)

    def _take_event(self, now: ExplorerState) -> tuple[ExplorerState, list[Transition]]:
        event = self.scenario.events[now.event]
        world = apply_event(now.world, event)
        return self._advance(now, None, effect=event, world=world, event=now.event + 1)

    def _take_flush(self, now: ExplorerState) -> tuple[ExplorerState, list[Transition]]:
        together = self.register.sent_together(now.world.queue)
        left = tuple(waiting for waiting in now.world.queue if waiting not in together)
        done = self.register.put_together(now.world, together)
        now = now._replace(world=now.world._replace(queue=left))
        moves = []
        for (number, put), (world, standing) in zip(together, done, strict=True):
            world = world._replace(queue=left)
            now, made = self._advance(now, number, standing, effect=put, world=world)
            moves += made
        return now, moves

    def _advance(
        self,
        now: ExplorerState,
        number: int | None,
        answer: Any = None,
        *,
        world: World,
        effect: Any = None,
        dead: bool = False,
        **changes: int,
    ) -> tuple[ExplorerState, list[Transition]]:
        """The state after a change; tell the actor its answer, unless it is dead or about to be."""
        crashed = dead or "crashes" in changes
        was = now.positions[number] if number is not None else None
        positions, after = now.positions, None
        if number is not None:
            after = None if crashed or was is None else was.told(answer, world.now)
            positions = (*positions[:number], after, *positions[number + 1 :])
        performed = effect if effect is not None else was.effect if was is not None and (dead or not crashed) else None
        old = new = None
        if isinstance(performed, (Put, PutBack, Finish)) and number is not None:
            identity = performed.write.id
            old, new = now.world.find(identity, number), world.find(identity, number)
        actor = self.scenario.actors[number] if number is not None else None
        move = Transition(self.scenario, actor, performed, answer, now.world, world, was, after, now.notes, old, new)
        after_notes = updated_history(move)
        return now._replace(world=world, positions=positions, notes=after_notes, **changes), [move]

    def _perform(self, now: ExplorerState, position: Position) -> tuple[World, Any]:
        """Perform an effect: the world after it, and the answer."""
        world, effect, number = now.world, position.effect, position.actor.index
        match effect:
            case Put():
                changed = position.actor.body.mutates and effect.at in _ENDINGS
                return self.register.put(world, effect, number, changed)
            case PutBack():
                return self.register.put_back(world, effect, number)
            case Finish():
                put = Put(effect.at, effect.write, effect.expect)
                world, standing = self.register.put(world, put, number)
                return world.commit(number) if standing.landed else world.rollback(number), standing
            case Load() | LoadInTransaction():
                row = world.find(effect.id, number)
                return world, None if row is None else self.register.read(row, world, number)
            case CheckProcess():
                return world, effect.process.pid - 1 not in world.dead
            case CallFunction():
                return self._call(world, position.actor, effect.operation)
            case Probe():
                return self._probe(world, position.actor, effect.operation)
            case Extend():
                return world.extended(effect.family, effect.replay, effect.forget)
            case Begin():
                return world.begin(number)
            case Commit():
                return world.commit(number), None
            case Rollback():
                return world.rollback(number), bool(world.layers(number))
            case LookUp():
                return world, world.happened(effect.id)
            case Watch():
                watched = now.positions[self.scenario.index[effect.actor]]
                return world, None if watched is None else watched.effect.operation.record
        return world, None

    def _call(self, world: World, actor: Actor, operation: Operation) -> tuple[World, CallResult]:
        """The function runs, and the outside world answers it."""
        held, scenario = operation.record, self.scenario
        held_until = actor_clock(actor, world.now) + scenario.terms.lease / 1e6
        if scenario.terms.guarantee == Guarantee.ATOMIC:
            deed = AppliedEffect(held.id, actor.name, world.now)
            return world.insert(deed, actor.index) if actor.body.acts else world, CallResult(
                actor.name, False, held_until
            )
        if scenario.outside == "fenced":
            if held.fence < world.barred_below(held.id):
                return world, CallResult("", True, held_until)
            world = world.bar(held.id, held.fence)
        if not actor.body.acts:
            return world, CallResult(actor.name, False, held_until)
        key = operation.downstream_key() if scenario.outside == "keyed" else ""
        for deed in world.applied_effects:
            if key and deed.key == key and world.now - deed.at < scenario.terms.keyed_for:
                return world, CallResult(
                    deed.by, False, held_until
                )  # It knows the key: the first answer, and no new effect.
        deed = AppliedEffect(held.id, actor.name, world.now, key)
        return world._replace(applied_effects=_by_id((*world.applied_effects, deed))), CallResult(
            actor.name, False, held_until
        )

    def _probe(self, world: World, actor: Actor, operation: Operation) -> tuple[World, Any]:
        held = operation.record
        if actor.body.probe_fails:
            return world, None
        if self.scenario.outside == "fenced":
            world = world.bar(held.id, held.fence)
        return world, world.happened(held.id)


def apply_event(world: World, event: ScenarioEvent) -> World:
    """The world after an event."""
    match event:
        case AdvanceTime(microseconds):
            return world._replace(now=world.now + microseconds)
        case Forget():
            return world.forgotten()
        case Erase():
            return world.erased_now(LEASE_CEILING)
    return world.purged()


def updated_history(move: Transition) -> History:
    """What the invariants remember after this change."""
    notes, effect = move.notes, move.effect
    if isinstance(effect, (Put, PutBack, Finish)) and move.new is not None and move.new is not move.old:
        notes = _noted_put(notes, move, move.new)
    elif (
        type(effect) is CallFunction and move.actor is not None and move.answer is not STRUCK and not move.answer.barred
    ):
        notes = _noted_run(notes, move, move.actor)
    elif type(effect) is Commit:
        for row in move.after.rows:
            notes = _with_fence(notes, row)
    if move.now is not None and move.now.ended is not None and move.now.ended.value:
        given = {(identity, outcome.value) for identity, outcome in acknowledged(move.now) if outcome.replayable}
        if given - set(notes.answers):
            notes = notes._replace(answers=tuple(sorted(given | set(notes.answers))))
    return notes


def _noted_put(notes: History, move: Transition, new: Row) -> History:
    identity, old = new.write.id, move.old
    if new.write.rise and (old is None or old.is_forgotten(move.before.now)):
        notes = notes._replace(
            runs=tuple(run for run in notes.runs if run[0] != identity),
            answers=tuple(answer for answer in notes.answers if answer[0] != identity),
        )
    if move.effect.at == "reconcile" and new.write.state == State.RELEASED:
        notes = notes._replace(runs=tuple(run for run in notes.runs if run[0] != identity))
    in_transaction = move.actor is not None and bool(move.after.layers(move.actor.index))
    return notes if in_transaction else _with_fence(notes, new)


def _noted_run(notes: History, move: Transition, actor: Actor) -> History:
    if actor.body.proves_nothing_happened or move.scenario.terms.guarantee == Guarantee.ATOMIC:
        return notes
    run = (move.effect.operation.record.id, actor.name, move.before.now)
    return notes._replace(runs=_by_id((*notes.runs, run)))


def _by_id(entries: tuple[T, ...]) -> tuple[T, ...]:
    """In order of id, and within one in order of time: what happens to two keys has no order between them."""
    return tuple(sorted(entries, key=lambda entry: entry[0]))


def _with_fence(notes: History, row: Row) -> History:
    identity, known = row.write.id, dict(notes.fences)
    if known.get(identity, 0) >= row.fence:
        return notes
    known[identity] = row.fence
    return notes._replace(fences=tuple(sorted(known.items())))


def acknowledged(position: Position) -> list[tuple[bytes, Any]]:
    """The answers that a flow ended with: pairs of an id and an outcome that is not pending."""
    if position.ended is None or not isinstance(position.ended.value, tuple):
        return []
    return [(identity, outcome) for identity, outcome in position.ended.value if not outcome.pending]
