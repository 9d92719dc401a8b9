"""
How a claim ends: the final record is put, and listeners are told.

Every ending handles a lost race, a lost reply and a store that is away in the same way, and that is here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from onceward._core import advice, record
from onceward._core.codec import HTTP, Encoded, Restorer, decode, decode_failure
from onceward._core.erasure_marks import marks_of
from onceward._core.errors import (
    AlreadySettled,
    RecordRefused,
    SealBroken,
    SealKeyMissing,
    StoreContended,
    StoreForgot,
    StoreUnavailable,
    Unrecorded,
)
from onceward._core.events import Event, EventType
from onceward._core.flow import BOOTTIME, MONOTONIC, Emit, Flow, Put, PutBack, Sleep
from onceward._core.keys import digest_of, kind_family
from onceward._core.operation import Operation, Outcome, to_datetime
from onceward._core.record import PeekResult, PutResult, Record, Write, new_tuple
from onceward._core.reply import unpack_reply

if TYPE_CHECKING:
    from onceward._core.operation_flow import OperationRequest

CLAIM_SPINS_MAX: Final = 20
"""Lost races in a row before giving up. Each loss means that somebody else changed the record."""

POLL_MAX: Final = 0.25
"""The longest pause between looks at another holder's record, in seconds."""

STORE_RETRY_FIRST = 0.02
STORE_RETRY_MAX = 1.0
"""Seconds between tries to store a result; the lease is the bound."""


PUT_BACK: Final = kind_family("put-back")
"""The family of records that the store had lost while they were held, and that were put back."""

EVENT_TYPE_OF_STATE = {
    record.State.SETTLED.value: EventType.SETTLED,
    record.State.RELEASED.value: EventType.RELEASED,
    record.State.IN_DOUBT.value: EventType.IN_DOUBT,
}


def finish_claim(
    request: OperationRequest,
    held: Record,
    write: Write,
    operation: Operation | None,
    value: Any = None,
    *,
    patient: bool = True,
) -> Flow[Record]:
    """
    Put the final record of a claim, and return what is stored.

    If the store is away, it is retried within the lease, with the same version: a put that landed although its reply
    was lost is recognised. If our own renewal changed the record, it is put again. If the store lost the claim, it is
    put back. If another caller took over, `OwnershipLost` is raised.
    """
    expect, pause, spins, gone, ending = held.version, STORE_RETRY_FIRST, 0, False, write
    while spins < CLAIM_SPINS_MAX:
        try:
            put: PutResult = yield put_back_effect(write) if gone else Put(_AT[write.state], write, expect)
        except StoreUnavailable as error:
            if isinstance(error, RecordRefused) and write.result is not None:
                # It will never fit, but the operation happened: store it without its result.
                write = ending = record.without_result(write)
                continue
            yield from _wait_for_store(request, held, operation if patient else None, error, pause, value)
            pause = min(pause * 2, STORE_RETRY_MAX)
            continue
        found = put.record
        if found is not None and has_landed(put, write):
            if not gone:
                return found
            yield from emit_event(request, EventType.STORE_FORGOT, found, f"put back as {found.state}")
            if write is ending:
                return found
            raise (yield from store_forgot_error(request, held, found, advice.forgotten(held, found), value))
        if (gone and found is None) or is_claimed_anew(found, held):
            yield from emit_event(request, EventType.STORE_FORGOT, held, "not put back")
            raise (
                yield from store_forgot_error(request, held, found, advice.forgotten(held, found, erased=True), value)
            )
        if found is None:
            within = yield from within_lease(request, held, operation)
            if within is None:
                yield from emit_event(request, EventType.STORE_FORGOT, held, "too late to put it back")
                raise (yield from store_forgot_error(request, held, None, advice.forgotten(held, None), value))
            write = record.put_back(held, ending, within_lease=within)
            gone, spins = True, spins + 1
            continue
        if record.belongs_to_another(found, held.token):
            yield from emit_event(request, EventType.OVERTAKEN, held)
            raise advice.lost(held, found, winner_of(found, request.restore))
        if record.same_ending(found, write):
            return found
        if not record.is_claimed(found):
            raise advice.about(AlreadySettled(advice.already_settled(found)), found)
        if found.family != ending.family:
            ending = ending._replace(family=found.family)  # It was put back, in the family of what was.
        expect, gone, write = found.version, False, ending  # Our own renewal changed it, or has put it back.
        spins += 1
    raise StoreContended(retry_after_seconds=POLL_MAX)


def is_claimed_anew(found: Record | None, held: Record) -> bool:
    """Whether another caller has claimed the key after the store lost this claim."""
    return (
        found is not None and record.belongs_to_another(found, held.token) and not record.came_after_claim(found, held)
    )


def store_forgot_error(
    request: OperationRequest, held: Record, found: Record | None, message: str, value: Any = None
) -> Flow[StoreForgot]:
    """The error for a claim that the store lost, where the final record could not be put back."""
    yield from emit_event(request, EventType.IN_DOUBT, found or held, "the store forgot")
    return advice.about(StoreForgot(message, value=value), held)


def put_back_effect(write: Write) -> PutBack:
    """
    The effect that puts a record back where there is none, unless its scope was erased.

    What was put back is in a family of its own, so that people find out that the store forgot. A plan's step stays in
    that of its plan.
    """
    return PutBack("putback", write._replace(family=write.family or PUT_BACK), marks_of(write.id, write.scope))


def within_lease(request: OperationRequest, held: Record, operation: Operation | None) -> Flow[bool | None]:
    """
    Whether the last confirmed lease of a claim that the store lost still holds, on a clock that counts suspension.

    None: it was claimed so long ago that nothing may be put back, not even doubt. By then the mark of an erasure may be
    gone, too, and what was erased would come back.
    """
    if operation is None:
        return None
    now: float = yield BOOTTIME
    if now >= operation.claimed_at + request.terms.lease_max / 1e6:
        return None
    return now < operation.confirmed_until


_AT = {
    record.State.SETTLED.value: "settle",
    record.State.RELEASED.value: "release",
    record.State.IN_DOUBT.value: "doubt",
}


def _wait_for_store(
    request: OperationRequest,
    held: Record,
    operation: Operation | None,
    error: StoreUnavailable,
    pause: float,
    value: Any,
) -> Flow[None]:
    """The store is away: pause if the lease allows it; if not, raise `Unrecorded` with the value."""
    left = 0.0 if operation is None else operation.held_until - (yield MONOTONIC)
    if left <= 0:
        yield from emit_event(request, EventType.UNRECORDED, held, type(error).__name__)
        raise advice.about(Unrecorded(advice.unrecorded(held, error), value=value), held) from error
    yield from emit_event(request, EventType.STORE_RETRIED, held, type(error).__name__)
    yield Sleep(min(pause, left))


def has_landed(put: PutResult, write: Write) -> bool:
    """Whether our write is stored: it landed now, or it did before and the reply was lost."""
    return put.landed or (put.record is not None and put.record.version == write.version)


def outcome_of(found: Record | PeekResult, restore: Restorer | None) -> Outcome[Any]:
    """The stored result of a settled record; a stored failure is raised as `RecordedFailure`."""
    if found.error is not None:
        failure = decode_failure(found.error)
        if isinstance(found, Record):
            raise advice.about(failure, found)
        raise failure.about(fence=found.fence, first_at=to_datetime(found.first_at))
    codec, result = found.codec, found.result
    if codec == HTTP and result is not None and restore is None:
        value: object = unpack_reply(result)  # As `decode` does, and without asking which codecs there are.
    else:
        value = decode(Encoded(codec, result), restore)
    outcome: Outcome[Any] = new_tuple(
        Outcome, (value, True, found.first_at, found.attempt, found.fence, True, False, None)
    )
    return outcome


def winner_of(found: Record | None, restore: Restorer | None) -> Outcome[Any] | None:
    if found is None or not record.is_settled(found) or found.codec is None:
        return None
    try:
        return outcome_of(found, restore)
    except (SealBroken, SealKeyMissing):
        return None  # That somebody else has won is the news; whoever asks again is told about the seal.


def add_note(error: BaseException, note: str) -> None:
    with suppress(Exception):  # An exception that cannot take a note is raised without one.
        error.add_note(note)


def emit_event(request: OperationRequest, happening: EventType, about: Record, detail: str = "") -> Flow[None]:
    if request.listening:
        yield Emit(event_about(happening, about, detail))


def event_about(happening: EventType, about: Record, detail: str = "") -> Event:
    """What listeners are told of a record."""
    told = (happening, digest_of(about.id), about.scope, about.operation, about.attempt, about.fence, detail, None)
    return new_tuple(Event, told)  # type: ignore[no-any-return]
