"""
What must hold, whatever the schedule. Each is judged at every single change, and says in a sentence how it was broken.

They are written against the world (what is in the store, what took place outside, what callers were told) and ask
nothing of `record.py`: a rule cannot vouch for itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from onceward._core.codec import Encoded, decode
from onceward._core.errors import (
    Expired,
    InDoubt,
    InFlight,
    KeyReused,
    NotReplayable,
    NotSettled,
    OutOfOrder,
    OwnershipLost,
    RecordedFailure,
    StoreContended,
    StoreForgot,
    StoreUnavailable,
    Unrecorded,
)
from onceward._core.flow import CallFunction, Commit, Finish, Put, PutBack
from onceward._core.keys import KEY_PARTS
from onceward._core.record import Guarantee, State
from onceward._core.sequence_flow import ENTRY, MARK, entry_id
from onceward.testing.explorer.actors import Barred, Interrupted, MissingResult
from onceward.testing.explorer.both_ways import WaysDiffer
from onceward.testing.explorer.machine import Transition, acknowledged
from onceward.testing.explorer.scenario import AdvanceTime, Erase, Purge
from onceward.testing.explorer.world import Row

Judge = Callable[[Transition], str | None]


class Invariant(NamedTuple):
    """Something that must hold: its name, its promise, and what judges it."""

    name: str
    promise: str
    judge: Judge


INVARIANTS: list[Invariant] = []
"""What must hold at the end of every schedule."""


def invariant(name: str) -> Callable[[Judge], Judge]:
    """Add a judge to the list; its docstring is the promise."""

    def add(judge: Judge) -> Judge:
        INVARIANTS.append(Invariant(name, " ".join((judge.__doc__ or "").split()), judge))
        return judge

    return add


_HELD = frozenset(("settle", "release", "doubt", "renew", "takeback"))
"""Puts that only the holder of a claim may land."""

_HARMLESS = (Guarantee.ATOMIC.value, Guarantee.REPEATABLE.value)


# --- the effect ---


@invariant("one-effect")
def one_effect(move: Transition) -> str | None:
    """No key has more than one effect, unless running again is harmless."""
    most = move.scenario.effects_max
    if most is None or type(move.effect) not in (CallFunction, Commit, Finish):
        return None
    counts = Counter(deed.id for deed in move.after.applied_effects + move.after.table)
    if counts and max(counts.values()) > most:
        by = ", ".join(deed.by for deed in move.after.applied_effects + move.after.table)
        return f"the effect took place {max(counts.values())} times (runs of {by})"
    return None


@invariant("doubt-never-reruns")
def doubt_never_reruns(move: Transition) -> str | None:
    """What may have happened is not run again, unless a key, a probe or a person makes that safe."""
    if type(move.effect) is not CallFunction or move.actor is None or move.was is None:
        return None
    held, terms = move.effect.operation.record, move.scenario.terms
    earlier = [run for run in move.notes.runs if run[0] == held.id]
    if not earlier or terms.guarantee in _HARMLESS or move.was.not_found or isinstance(move.answer, MissingResult):
        return None
    if move.answer.barred:
        return None
    if terms.guarantee == Guarantee.KEYED and move.before.now - earlier[0][2] < terms.keyed_for:
        return None
    return f"{earlier[0][1]} may have had its effect, but {move.actor.name} ran anyway"


@invariant("atomic-together")
def atomic_together(move: Transition) -> str | None:
    """In atomic mode business rows and settled records are committed one for one."""
    if move.scenario.terms.guarantee != Guarantee.ATOMIC or move.scenario.forgets:
        return None
    effects = sorted(deed.id for deed in move.after.table)
    settled = sorted(r.write.id for r in move.after.rows if r.write.state == State.SETTLED and r.write.error is None)
    claims_apart = move.scenario.terms.settle == "inside"  # Then a claim commits by itself, before anything is done.
    unsettled = [row for row in move.after.rows if row.write.state == State.CLAIMED and not claims_apart]
    if effects != settled or unsettled:
        return f"{len(effects)} business rows, {len(settled)} settled and {len(unsettled)} claimed records committed"
    return None


# --- the answer ---


@invariant("same-answer")
def same_answer(move: Transition) -> str | None:
    """Every caller who is given an answer for a key is given the same one."""
    if move.now is None or move.actor is None:
        return None
    for identity, outcome in acknowledged(move.now):
        for other, value in move.notes.answers:
            if other == identity and outcome.replayable and value != outcome.value:
                return f"{move.actor.name} got {outcome.value!r}; an earlier caller got {value!r}"
    return None


@invariant("acknowledged-stands")
def acknowledged_stands(move: Transition) -> str | None:
    """An answer that a caller was given is what is in the store."""
    if move.now is None or move.actor is None:
        return None
    for identity, outcome in acknowledged(move.now):
        row = move.after.find(identity)
        if row is None or row.write.state != State.SETTLED:
            stands = "nothing" if row is None else row.write.state
            return f"{move.actor.name} got {outcome.value!r}, but {stands} is in the store"
        if outcome.replayable and _value_of(row) != outcome.value:
            return f"{move.actor.name} got {outcome.value!r}, but {_value_of(row)!r} is in the store"
    return None


@invariant("settled-stands")
def settled_stands(move: Transition) -> str | None:
    """What is settled is never changed; purging may drop an answer that has expired."""
    if move.before.rows is move.after.rows or type(move.effect) in (AdvanceTime, Erase):
        return None
    for row in move.before.rows:
        if row.write.state != State.SETTLED or row.write.kind == MARK or row.is_forgotten(move.before.now):
            continue
        new = move.after.find(row.write.id)
        expired = row.write.replay is not None and row.write.replay <= move.before.now - row.at
        if type(move.effect) is Purge and expired and new is not None and new.write.state == State.SETTLED:
            continue
        if new is None or _ending(new) != _ending(row):
            return f"a settled record became {'nothing' if new is None else _told(new)}"
    return None


@invariant("other-request-untouched")
def other_request_untouched(move: Transition) -> str | None:
    """A different request under the same key is neither run nor answered, and leaves the record as it was."""
    if move.actor is None:
        return None
    orders = {actor.name: actor.order for actor in move.scenario.actors}
    if type(move.effect) in (Put, Finish) and move.old is not None and move.new is not move.old:
        old, write = move.old, move.effect.write
        if not old.is_forgotten(move.before.now) and old.write.fingerprint != write.fingerprint:
            return f"{move.actor.name} has a different request, but changed the record"
    if type(move.effect) is CallFunction and not isinstance(move.answer, MissingResult):
        held = move.effect.operation.record
        others = [run[1] for run in move.notes.runs if run[0] == held.id and orders[run[1]] != move.actor.order]
        if others:
            return f"{move.actor.name} ran, but its request is not that of {others[0]}, who ran before it"
    for _, outcome in acknowledged(move.now) if move.now is not None else ():
        if outcome.replayable and orders.get(outcome.value, move.actor.order) != move.actor.order:
            return f"{move.actor.name} got the result of {outcome.value}'s request, which is a different one"
    return None


@invariant("unrecorded-ran")
def unrecorded_ran(move: Transition) -> str | None:
    """Nobody is told that an operation ran and could not be recorded, unless it ran."""
    if move.now is None or move.now.ended is None or move.actor is None:
        return None
    if isinstance(move.now.ended.error, Unrecorded) and not move.now.ran:
        return f"{move.actor.name} was told that its operation ran, but it did not"
    return None


# --- the record ---


@invariant("fingerprint-stays")
def fingerprint_stays(move: Transition) -> str | None:
    """The fingerprint stored at the claim is in every later write, until the record is forgotten."""
    old, new = move.old, move.new
    if old is None or new is None or new is old or old.is_forgotten(move.before.now):
        return None
    if new.write.fingerprint != old.write.fingerprint:
        return f"the {move.effect.at} changed the fingerprint"
    return None


@invariant("fence-rises")
def fence_rises(move: Transition) -> str | None:
    """Every claim of a key gets a higher fence than all before it, across release, expiry and purge."""
    new = move.new
    if new is None or new is move.old:
        return None
    highest = dict(move.notes.fences).get(new.write.id, 0)
    if new.write.rise and new.fence <= highest:
        return f"a claim got {'a fence' if new.fence == highest else 'a lower fence than one'} given out before"
    if not new.write.rise and move.old is not None and new.fence != move.old.fence:
        return f"the {move.effect.at} changed the fence"
    return None


@invariant("one-live-lease")
def one_live_lease(move: Transition) -> str | None:
    """
    While a holder's lease lasts, by the store's clock, nobody else gets the key; unless the holder is dead, and no
    probe would be asked too early.
    """
    old, new = move.old, move.new
    if old is None or new is None or new is old or new.write.token == old.write.token:
        return None
    if move.effect.at in _HELD or not old.is_live(move.before.now):
        return None  # What an overtaken holder writes has an invariant of its own.
    if move.before.is_left_behind(old) and old.write.guarantee != Guarantee.PROBED:
        return None
    return f"a {move.effect.at} took the key from a holder whose lease lasts"


@invariant("overtaken-changes-nothing")
def overtaken_changes_nothing(move: Transition) -> str | None:
    """A holder that was overtaken changes nothing."""
    if type(move.effect) is not Put or move.actor is None or move.new is move.old:
        return None
    if move.effect.at not in _HELD and move.effect.at != "inside":
        return None
    if move.old is None or move.old.write.token != move.effect.write.token:
        return f"{move.actor.name} was overtaken, but its {move.effect.at} landed"
    return None


@invariant("overtaken-is-told")
def overtaken_is_told(move: Transition) -> str | None:
    """A holder that was overtaken is told, with the winner's answer if there is one; nobody else is told so."""
    if type(move.effect) is not Put or move.effect.at not in _HELD or move.now is None:
        return None
    if isinstance(move.answer, MissingResult):
        return None
    old, name = move.old, move.now.actor.name
    error = move.now.ended.error if move.now.ended is not None else None
    told = isinstance(error, OwnershipLost)
    if old is not None and old.write.token == move.effect.write.token:
        if told and old.write.state == State.CLAIMED:
            return f"{name} was told that it was overtaken, but its claim still holds"
        return None
    if move.effect.at == "takeback":
        return None
    if old is None:
        return f"{name} was told that it was overtaken, and the store had forgotten its claim" if told else None
    if old.write.attempt <= move.effect.write.attempt and old.fence != move.effect.write.fence:
        # Not claimed over this one, but begun anew after the store had forgotten it.
        return None if isinstance(error, StoreForgot) else f"the store forgot the claim of {name}: {_heard(error)}"
    if not isinstance(error, OwnershipLost):
        return f"{name} was overtaken, but got {_heard(error)}"
    answer = _value_of(old)
    if (None if error.outcome is None else error.outcome.value) != answer:
        return f"{name} was overtaken, but did not get the winner's result"
    return None


@invariant("erased-stays-erased")
def erased_stays_erased(move: Transition) -> str | None:
    """What was claimed before an erasure does not stand after it, also if the store had forgotten it by then."""
    if move.before.rows is move.after.rows:
        return None
    back = [row for row in move.after.rows if row.fence <= move.after.erased]
    return f"what was erased is {back[0].write.state} again" if back else None


@invariant("doubt-is-sticky")
def doubt_is_sticky(move: Transition) -> str | None:
    """Doubt is cleared by a settle, a reconcile or a probe that found nothing: by nothing else."""
    old, new = move.old, move.new
    if old is None or new is None or new is old or move.was is None or old.is_forgotten(move.before.now):
        return None
    write = old.write
    doubtful = write.state == State.IN_DOUBT or (write.state == State.CLAIMED and bool(write.doubt))
    if new.write.token != write.token and write.state == State.CLAIMED and write.guarantee not in _HARMLESS:
        doubtful = True  # A lapsed claim: its holder may have acted.
    happened = new.write.state == State.SETTLED and new.write.error is None  # A failure says nothing of others.
    cleared = happened or move.effect.at == "reconcile" or move.was.not_found
    if doubtful and not cleared and not new.write.doubt:
        return f"the {move.effect.at} of {move.was.actor.name} forgot the doubt that an earlier attempt left"
    return None


@invariant("answer-is-true")
def answer_is_true(move: Transition) -> str | None:
    """A store says what is so: what landed stands there, and what is shown is what stands there."""
    if type(move.effect) not in (Put, PutBack, Finish) or isinstance(move.answer, MissingResult):
        return None
    if move.actor is None or move.now is None:
        return None
    standing, new = move.answer, move.new
    shown = None if standing.record is None else standing.record.version
    if standing.landed and (new is None or new.write.version != move.effect.write.version):
        return f"the {move.effect.at} of {move.actor.name} was reported as landed, but is not in the store"
    if shown != (None if new is None else new.write.version):
        return f"the {move.effect.at} of {move.actor.name} returned a record that is no longer in the store"
    return None


# --- shapes ---


@invariant("in-order")
def in_order(move: Transition) -> str | None:
    """A sequence runs each number after the one before it has settled; its mark never falls and is never ahead."""
    if type(move.effect) is CallFunction and move.effect.operation.record.kind == ENTRY:
        held = move.effect.operation.record
        name, _, number = held.key.partition(KEY_PARTS)
        if int(number) > 1:
            before = move.before.find(entry_id(held.scope, name, int(number) - 1))
            if before is None or not _is_done(before):
                return f"number {number} ran before number {int(number) - 1} had settled"
    new = move.new
    if new is None or new is move.old or new.write.kind != MARK:
        return None
    upcoming = _mark_of(new)
    entry = move.after.find(entry_id(new.write.scope, new.write.key, upcoming - 1))
    if entry is None or not _is_done(entry):
        return f"the mark says {upcoming}, but number {upcoming - 1} has not settled"
    if move.old is not None and _mark_of(move.old) > upcoming:
        return f"the mark fell from {_mark_of(move.old)} to {upcoming}"
    return None


# --- the straight line ---


@invariant("both-ways-agree")
def both_ways_agree(move: Transition) -> str | None:
    """The straight line does what its flow does: every put, every event, every outcome."""
    ended = None if move.now is None else move.now.ended
    return str(ended.error) if ended is not None and isinstance(ended.error, WaysDiffer) else None


# --- coming to an end ---

_EXPECTED = (InDoubt, InFlight, KeyReused, OwnershipLost, OutOfOrder, NotReplayable, Expired, RecordedFailure)
_AT_LAST = (InDoubt, NotReplayable, Expired, RecordedFailure)


@invariant("never-stuck")
def never_stuck(move: Transition) -> str | None:
    """After faults stop and time passes, every key is settled, free to claim or in doubt; nobody loops or waits on."""
    if move.now is None or move.now.ended is None or move.actor is None:
        return None
    error = move.now.ended.error
    faults = bool(move.scenario.losses)
    if error is None or isinstance(error, (move.actor.body.error, Barred, Interrupted)):
        return None
    if isinstance(error, StoreContended):
        return f"{move.actor.name} gave up on a healthy store: {_heard(error)}"
    if move.actor.after == "*":
        reused = isinstance(error, KeyReused) and any(one.order != move.actor.order for one in move.scenario.actors)
        return None if reused or isinstance(error, _AT_LAST) else f"much later, a retry gets {_heard(error)}"
    undone = isinstance(error, NotSettled) and move.actor.body.inside == "undoes"
    if undone or isinstance(error, _EXPECTED) or (faults and isinstance(error, StoreUnavailable)):
        return None
    return f"{move.actor.name} gets {_heard(error)}"


def _value_of(row: Row) -> object:
    write = row.write
    return None if write.codec is None else decode(Encoded(write.codec, write.result))


def _is_done(row: Row) -> bool:
    return row.write.state == State.SETTLED and row.write.error is None


def _mark_of(row: Row) -> int:
    value = _value_of(row)
    return value if isinstance(value, int) else 0


def _ending(row: Row) -> tuple[object, ...]:
    write = row.write
    return (write.state, write.codec, write.result, write.error)


def _told(row: Row) -> str:
    return f"{row.write.state} with {_value_of(row)!r}"


def _heard(error: BaseException | None) -> str:
    return "nothing of it" if error is None else f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"
