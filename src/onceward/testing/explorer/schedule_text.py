"""
Schedules in words: one line per step, so that a counterexample can be read.
"""

from __future__ import annotations

from typing import Any

from onceward._core.flow import (
    CallFunction,
    CheckProcess,
    Commit,
    Finish,
    Load,
    LoadInTransaction,
    Pause,
    Probe,
    Put,
    PutBack,
)
from onceward._core.operation import Found
from onceward._core.record import PutResult
from onceward.testing.explorer.actors import MissingResult, Position
from onceward.testing.explorer.machine import REST, ExplorerState, ScheduleStep, Transition
from onceward.testing.explorer.scenario import LookUp, Scenario
from onceward.testing.explorer.world import SECOND


def describe_step(scenario: Scenario, now: ExplorerState, step: ScheduleStep, moves: list[Transition]) -> str:
    """One step, in words."""
    match step.kind:
        case "event":
            return f"-- {scenario.events[now.event]}"
        case "rest":
            return f"-- nothing else can happen: {REST // SECOND} s pass"
        case "flush":
            return "-- sent together: " + "; ".join(_turn(move) for move in moves)
    name = scenario.actors[step.actor].name
    if step.kind == "crash":
        return f"{name} dies before {_wanted(now.positions[step.actor])}"
    if not moves:
        return f"{name} waits to send {_wanted(now.positions[step.actor])}"
    return _turn(moves[0]) + _AFTERWARDS.get(step.kind, "")


_AFTERWARDS = {
    "down": " (it was not performed)",
    "lose": " (it was performed)",
    "stop": " (it was not performed)",
    "strike": " (it was performed)",
    "die": "; dies before it gets the answer",
}


def _wanted(position: Position | None) -> str:
    effect = position.effect if position is not None else None
    return f"its {getattr(effect, 'at', type(effect).__name__.lower())}"


def _turn(move: Transition) -> str:
    name = move.actor.name if move.actor is not None else "somebody"
    told = f"{name} {_done(move.effect, move)}"
    if move.now is not None and move.now.ended is not None:
        error = move.now.ended.error
        told += f"; ends with {type(error).__name__}" if error is not None else "; succeeds"
    return told


def _done(effect: Any, move: Transition) -> str:
    if isinstance(move.answer, MissingResult):
        return f"{getattr(effect, 'at', 'pause')}: {move.answer.value}"
    match effect:
        case Put() | PutBack() | Finish():
            return f"{effect.at}: {_standing(move.answer)}"
        case CallFunction():
            return f"runs its function: {_ran(move)}"
        case Probe():
            return f"asks its probe: {_seen(move.answer)}"
        case LookUp():
            return f"looks outside: {_seen(move.answer)}"
        case Load() | LoadInTransaction():
            return f"{effect.at}: {'nothing' if move.answer is None else move.answer.state}"
        case CheckProcess():
            return f"looks for process {effect.process.pid}: {'it is alive' if move.answer else 'it is dead'}"
        case Pause():
            return "has waited"
        case Commit():
            return "commits"
    return str(getattr(effect, "at", type(effect).__name__.lower()))


def _seen(answer: object) -> str:
    if answer is None:
        return "it raises"
    return "it happened" if isinstance(answer, Found) else "it did not happen"


def _standing(standing: PutResult) -> str:
    if standing.landed:
        return "landed"
    found = standing.record
    if found is None:
        return "refused, there is no record"
    lapsed = found.lease_left is not None and found.lease_left <= 0
    return f"refused, it is {found.state}{' and has lapsed' if lapsed else ''}"


def _ran(move: Transition) -> str:
    if move.answer.barred:
        return "refused by its fence"
    happened = (
        len(move.after.applied_effects) > len(move.before.applied_effects)
        or move.after.transactions != move.before.transactions
    )
    body = move.actor.body if move.actor is not None else None
    told = "the effect takes place" if happened else "no effect"
    if move.answer.interrupted:
        return f"{told}, then an interrupt strikes"
    return f"{told}, then it raises {body.error.__name__}" if body is not None and body.fails else told
