"""
Claimed by the gate, settled by the function: inside a transaction of the function's own.

    claim (the store's transaction)
      |
    the function:  begin -> rows -> settle -> commit        (the caller's transaction)
      |
    look ----> settled: that is the answer                  (whatever the function returned)
         ----> not, and settle was called: release          (the transaction was undone, and took the settle with it)
         ----> not, and it was never called: in doubt       (rows may stand without their record)

Record and rows commit together, so an effect exists only with a settled record: a claim whose holder died may simply be
claimed again. Who was overtaken cannot settle, and its transaction fails. The release after the function is no guess,
either: it names the version that it replaces, and an open transaction that has settled holds that row. So it waits for
the commit or the rollback, and lands only after a rollback.
"""

from __future__ import annotations

from typing import Any

from onceward._core import advice, record
from onceward._core.codec import Encoded, NotEncodable, encode, encode_failure
from onceward._core.errors import (
    AlreadySettled,
    ConfigurationError,
    IllegalMove,
    NotSettled,
    OwnershipLost,
    ResultInvalid,
    StoreContended,
    StoreForgot,
    StoreUnavailable,
)
from onceward._core.events import EventType
from onceward._core.finish_flow import (
    CLAIM_SPINS_MAX,
    EVENT_TYPE_OF_STATE,
    POLL_MAX,
    add_note,
    emit_event,
    finish_claim,
    is_claimed_anew,
    outcome_of,
    store_forgot_error,
    winner_of,
)
from onceward._core.flow import RANDOM_BYTES, Begin, Commit, Flow, Load, Put, Raised, Returned, Rollback
from onceward._core.operation import Operation, Outcome, mark_judged
from onceward._core.operation_flow import OperationRequest, call_function, claim, operate
from onceward._core.record import PutResult, Record

INSIDE = "inside"
"""What the option `settle` says."""


def choose_flow(request: OperationRequest) -> Flow[Outcome[Any]]:
    """The flow of one operation, by who settles it."""
    return operate_inside(request) if request.terms.settle == INSIDE else operate(request)


def operate_inside(request: OperationRequest) -> Flow[Outcome[Any]]:
    """Claim, run the function, and learn whether the transaction in which it settled was committed."""
    claimed = yield from claim(request)
    if isinstance(claimed, Outcome):
        return claimed
    operation = Operation(claimed.held, request.given)
    ended = yield from call_function(operation)
    try:
        found: Record | None = yield Load("inside.load", request.claimant.id)
    except StoreUnavailable as away:
        if isinstance(ended, Raised):
            add_note(ended.error, advice.unseen(operation.record))
            raise ended.error from None
        raise advice.about(StoreUnavailable(advice.unseen(operation.record)), operation.record) from away
    if found is None:
        # The store forgot the claim, and what was committed with it or after it. It is ended as if it stood.
        return (yield from _not_committed(request, operation, operation.record, claimed.chance[32:], ended))
    if is_claimed_anew(found, operation.record):
        said = advice.forgotten(operation.record, found)
        forgot = yield from store_forgot_error(request, operation.record, found, said)
        raise forgot from (ended.error if isinstance(ended, Raised) else None)
    if record.belongs_to_another(found, operation.record.token):
        yield from emit_event(request, EventType.OVERTAKEN, operation.record)
        lost = advice.about(
            OwnershipLost(advice.overtaken(operation.record, found), outcome=winner_of(found, request.restore)),
            operation.record,
        )
        raise lost from (ended.error if isinstance(ended, Raised) else None)
    if not record.is_claimed(found):
        return (yield from _committed(request, found, ended))
    return (yield from _not_committed(request, operation, found, claimed.chance[32:], ended))


def _committed(request: OperationRequest, found: Record, ended: Returned | Raised) -> Flow[Outcome[Any]]:
    """It is committed. An error after the commit, or because its reply was lost, is still raised."""
    if not record.is_settled(found):
        raise IllegalMove(f"this operation is {record.shown_state(found)}: its own holder cannot have done that")
    if request.listening:
        yield from emit_event(request, EventType.SETTLED, found)
    if isinstance(ended, Raised):
        add_note(ended.error, advice.settled_note(found))
        mark_judged(ended.error)
        raise ended.error
    return outcome_of(found, request.restore)._replace(replayed=False)


def _not_committed(
    request: OperationRequest, operation: Operation, held: Record, version: bytes, ended: Returned | Raised
) -> Flow[Outcome[Any]]:
    """The claim still stands there."""
    failure = encode_failure(ended.error if isinstance(ended, Raised) else NotSettled(advice.NEVER_SETTLED))
    if _may_stand_alone(operation, ended):
        write = record.leave_in_doubt(held, version=version, error=failure)
    else:
        write = record.release(held, version=version, forget=request.terms.remember_release, error=failure)
    try:
        stored = yield from finish_claim(request, held, write, operation, patient=False)
    except AlreadySettled:
        # Its commit came between the look and the release, which changed nothing.
        found: Record | None = yield Load("inside.load", request.claimant.id)
        if found is None:
            raise
        return (yield from _committed(request, found, ended))
    except (OwnershipLost, StoreForgot) as lost:
        raise lost from (ended.error if isinstance(ended, Raised) else None)
    except StoreUnavailable as away:
        if isinstance(ended, Raised):
            add_note(ended.error, advice.unseen(held))
            raise ended.error from None
        raise advice.about(NotSettled(advice.still_open(held)), held) from away
    yield from emit_event(request, EVENT_TYPE_OF_STATE[stored.state], stored, "not settled")
    if isinstance(ended, Raised):
        if record.is_in_doubt(stored):
            add_note(ended.error, advice.doubt_note(stored))
        mark_judged(ended.error)
        raise ended.error
    if record.is_in_doubt(stored):
        raise advice.in_doubt(stored)
    raise advice.about(NotSettled(advice.not_settled(stored)), stored)


def _may_stand_alone(operation: Operation, ended: Returned | Raised) -> bool:
    """Whether rows may have been committed without the record: only then is there anything to doubt."""
    inside = operation.inside
    if not operation.started or inside is None:
        return False
    return inside.astray or (isinstance(ended, Returned) and (inside.nested or not inside.called))


def settle_inside(request: OperationRequest, operation: Operation, value: Any) -> Flow[None]:
    """
    Put the answer into the transaction of the function, which it is part of from now on.

    A renewal of our own that came in between is no reason to fail: the token decides. If another caller has taken over,
    nothing is written and `OwnershipLost` is raised, so that the function's transaction is undone.
    """
    kept = _kept(request, value)
    chance = yield RANDOM_BYTES
    if (yield Begin("begin")):
        yield Rollback("rollback")
        raise ConfigurationError(advice.no_transaction(operation.record))
    try:
        yield from _put_inside(request, operation.record, kept, chance)
        yield Commit("commit")  # Of the savepoint; the transaction is the function's to commit.
    except GeneratorExit:
        raise
    except BaseException:
        yield Rollback("rollback")
        raise


def _put_inside(request: OperationRequest, held: Record, kept: Encoded, chance: bytes) -> Flow[None]:
    write = record.settle(
        held,
        version=chance[:16],
        replay=request.terms.retain,
        forget=request.terms.forget,
        codec=kept.codec,
        result=kept.data,
    )
    expect = held.version
    for _ in range(CLAIM_SPINS_MAX):
        put: PutResult = yield Put("inside", write, expect)
        found = put.record
        if put.landed:
            return
        if found is None:
            raise advice.about(NotSettled(advice.forgotten_inside(held)), held)
        if record.belongs_to_another(found, held.token):
            raise advice.lost(held, found, winner_of(found, request.restore))
        if record.same_ending(found, write):
            return  # Settled before in this very transaction, with the same answer.
        if record.is_settled(found):
            raise advice.about(AlreadySettled(advice.already_settled(found)), found)
        if not record.is_claimed(found):
            raise IllegalMove(
                f"this operation has ended already ({record.shown_state(found)}). Settle it while it runs"
            )
        expect = found.version  # Our own renewal moved it.
    raise StoreContended(retry_after_seconds=POLL_MAX)


def _kept(request: OperationRequest, value: Any) -> Encoded:
    """What is stored of the answer; one that cannot be is refused while everything can still be undone."""
    try:
        kept = encode(value)
    except NotEncodable as error:
        raise ResultInvalid(
            f"{error}. Nothing was settled: do not catch this error, and your rows are rolled back"
        ) from None
    if kept.data is not None and len(kept.data) > request.terms.result_bytes_max:
        raise ResultInvalid(
            f"the result is too large to store: {len(kept.data)} bytes, and the limit is "
            f"{request.terms.result_bytes_max}. Settle less, or raise result_bytes_max. Nothing was settled: do not "
            "catch this error, and your rows are rolled back"
        )
    return kept
