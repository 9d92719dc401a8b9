"""
How a claim ends: the ending is put, whatever the store does meanwhile, and told.

What follows a lost race, a lost answer or a store that is away is the same for every ending, and is here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from onceward._core import advice, record
from onceward._core.codec import Encoded, Restore, decode, decode_failure
from onceward._core.errors import (
    AlreadySettled,
    OwnershipLost,
    RecordRefused,
    StoreContended,
    StoreUnavailable,
    Unrecorded,
)
from onceward._core.events import Event, Happening
from onceward._core.flow import MONOTONIC, Emit, Flow, Put, Sleep
from onceward._core.keys import digest_of
from onceward._core.operation import Operation, Outcome, instant
from onceward._core.record import Glance, Record, Standing, Write

if TYPE_CHECKING:
    from onceward._core.engine import Ask

CLAIM_SPINS_MAX: Final = 20
"""Lost races in a row before giving up: each loss means that somebody else moved the record, so one is plenty."""

POLL_MAX: Final = 0.25
"""Seconds: how seldom another holder's record is looked at, at last."""

STORE_RETRY_FIRST = 0.02
STORE_RETRY_MAX = 1.0
"""Seconds between tries to store a result; the lease is the bound."""


HAPPENING = {
    record.State.SETTLED.value: Happening.SETTLED,
    record.State.RELEASED.value: Happening.RELEASED,
    record.State.IN_DOUBT.value: Happening.IN_DOUBT,
}


def end(ask: Ask, held: Record, write: Write, operation: Operation | None, value: Any = None) -> Flow[Record]:
    """
    Put the ending of a claim. Retried within the lease if the store is away, with the same version, so that an
    answer that was lost is recognised; moved on by our own renewal, put again; overtaken, told.
    """
    expect, pause, spins = held.version, STORE_RETRY_FIRST, 0
    while spins < CLAIM_SPINS_MAX:
        try:
            standing: Standing = yield Put(_AT[write.state], write, expect)
        except StoreUnavailable as error:
            if isinstance(error, RecordRefused) and write.result is not None:
                write = record.without_result(write)  # No patience makes it fit, and it has happened all the same.
                continue
            yield from _hold_out(ask, held, operation, error, pause, value)
            pause = min(pause * 2, STORE_RETRY_MAX)
            continue
        found = standing.record
        if found is not None and landed(standing, write):
            return found
        if found is None or record.outranks(found, held.token):
            yield from tell(ask, Happening.OVERTAKEN, held)
            raise advice.about(
                OwnershipLost(advice.overtaken(held, found), outcome=winner_of(found, ask.restore)), held
            )
        if record.same_ending(found, write):
            return found
        if not record.is_claimed(found):
            raise advice.about(AlreadySettled(advice.already(found)), found)
        expect = found.version  # Our own renewal moved it.
        spins += 1
    raise StoreContended(retry_after_seconds=POLL_MAX)


_AT = {
    record.State.SETTLED.value: "settle",
    record.State.RELEASED.value: "release",
    record.State.IN_DOUBT.value: "doubt",
}


def _hold_out(
    ask: Ask, held: Record, operation: Operation | None, error: StoreUnavailable, pause: float, value: Any
) -> Flow[None]:
    """The store is away: pause if the lease allows it, else give the caller the value with the error."""
    left = 0.0 if operation is None else operation.held_until - (yield MONOTONIC)
    if left <= 0:
        raise advice.about(Unrecorded(advice.unrecorded(held, error), value=value), held) from error
    yield from tell(ask, Happening.STORE_RETRIED, held, type(error).__name__)
    yield Sleep(min(pause, left))


def landed(standing: Standing, write: Write) -> bool:
    """Whether our write stands there: it landed now, or it did before and the answer was lost."""
    return standing.landed or (standing.record is not None and standing.record.version == write.version)


def outcome_of(found: Record | Glance, restore: Restore | None) -> Outcome[Any]:
    """The stored answer of a settled record; a remembered failure is raised, as data."""
    if found.error is not None:
        failure = decode_failure(found.error)
        if isinstance(found, Record):
            raise advice.about(failure, found)
        raise failure.about(fence=found.fence, first_at=instant(found.first_at))
    value = decode(Encoded(found.codec, found.result), restore)
    return Outcome(value, True, found.first_at, found.attempt, found.fence)


def winner_of(found: Record | None, restore: Restore | None) -> Outcome[Any] | None:
    if found is None or not record.is_settled(found) or found.codec is None:
        return None
    return outcome_of(found, restore)


def add_note(error: BaseException, note: str) -> None:
    with suppress(Exception):  # An exception that cannot take a note is raised without one.
        error.add_note(note)


def tell(ask: Ask, happening: Happening, about: Record, detail: str = "") -> Flow[None]:
    if ask.listening:
        digest = digest_of(about.id)
        yield Emit(Event(happening, digest, about.scope, about.operation, about.attempt, about.fence, detail))
