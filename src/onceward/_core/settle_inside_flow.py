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


def choose_flow(ask: OperationRequest) -> Flow[Outcome[Any]]:
    """The flow of one operation, by who settles it."""
    return operate_inside(ask) if ask.terms.settle == INSIDE else operate(ask)


def operate_inside(ask: OperationRequest) -> Flow[Outcome[Any]]:
    """Claim, run the function, and learn whether the transaction in which it settled was committed."""
    claimed = yield from claim(ask)
    if isinstance(claimed, Outcome):
        return claimed
    operation = Operation(claimed.held, ask.given)
    ended = yield from call_function(operation)
    try:
        found: Record | None = yield Load("inside.load", ask.claimant.id)
    except StoreUnavailable as away:
        if isinstance(ended, Raised):
            add_note(ended.error, advice.unseen(operation.record))
            raise ended.error from None
        raise advice.about(StoreUnavailable(advice.unseen(operation.record)), operation.record) from away
    if found is None:
        # The store forgot the claim, and what was committed with it or after it. It is ended as if it stood.
        return (yield from _not_committed(ask, operation, operation.record, claimed.chance[32:], ended))
    if is_claimed_anew(found, operation.record):
        said = advice.forgotten(operation.record, found)
        forgot = yield from store_forgot_error(ask, operation.record, found, said)
        raise forgot from (ended.error if isinstance(ended, Raised) else None)
    if record.belongs_to_another(found, operation.record.token):
        yield from emit_event(ask, EventType.OVERTAKEN, operation.record)
        lost = advice.about(
            OwnershipLost(advice.overtaken(operation.record, found), outcome=winner_of(found, ask.restore)),
            operation.record,
        )
        raise lost from (ended.error if isinstance(ended, Raised) else None)
    if not record.is_claimed(found):
        return (yield from _committed(ask, found, ended))
    return (yield from _not_committed(ask, operation, found, claimed.chance[32:], ended))


def _committed(ask: OperationRequest, found: Record, ended: Returned | Raised) -> Flow[Outcome[Any]]:
    """It stands. What was raised after that commit, or because its answer was lost, is told all the same."""
    if not record.is_settled(found):
        raise IllegalMove(f"this operation is {record.shown_state(found)}: its own holder cannot have done that")
    if ask.listening:
        yield from emit_event(ask, EventType.SETTLED, found)
    if isinstance(ended, Raised):
        add_note(ended.error, advice.settled_note(found))
        mark_judged(ended.error)
        raise ended.error
    return outcome_of(found, ask.restore)._replace(replayed=False)


def _not_committed(
    ask: OperationRequest, operation: Operation, held: Record, version: bytes, ended: Returned | Raised
) -> Flow[Outcome[Any]]:
    """The claim still stands there."""
    failure = encode_failure(ended.error if isinstance(ended, Raised) else NotSettled(advice.NEVER_SETTLED))
    if _may_stand_alone(operation, ended):
        write = record.leave_in_doubt(held, version=version, error=failure)
    else:
        write = record.release(held, version=version, forget=ask.terms.remember_release, error=failure)
    try:
        stands = yield from finish_claim(ask, held, write, operation, patient=False)
    except AlreadySettled:
        # Its commit came between the look and the release, which changed nothing.
        found: Record | None = yield Load("inside.load", ask.claimant.id)
        if found is None:
            raise
        return (yield from _committed(ask, found, ended))
    except (OwnershipLost, StoreForgot) as lost:
        raise lost from (ended.error if isinstance(ended, Raised) else None)
    except StoreUnavailable as away:
        if isinstance(ended, Raised):
            add_note(ended.error, advice.unseen(held))
            raise ended.error from None
        raise advice.about(NotSettled(advice.still_open(held)), held) from away
    yield from emit_event(ask, EVENT_TYPE_OF_STATE[stands.state], stands, "not settled")
    if isinstance(ended, Raised):
        if record.is_in_doubt(stands):
            add_note(ended.error, advice.doubt_note(stands))
        mark_judged(ended.error)
        raise ended.error
    if record.is_in_doubt(stands):
        raise advice.in_doubt(stands)
    raise advice.about(NotSettled(advice.not_settled(stands)), stands)


def _may_stand_alone(operation: Operation, ended: Returned | Raised) -> bool:
    """Whether rows may have been committed without the record: only then is there anything to doubt."""
    inside = operation.inside
    if not operation.started or inside is None:
        return False
    return inside.astray or (isinstance(ended, Returned) and (inside.nested or not inside.called))


def settle_inside(ask: OperationRequest, operation: Operation, value: Any) -> Flow[None]:
    """
    Put the answer into the transaction of the function, which it is part of from now on.

    A renewal of our own that came in between is no reason to fail: the token decides. If another caller has taken over,
    nothing is written and `OwnershipLost` is raised, so that the function's transaction is undone.
    """
    kept = _kept(ask, value)
    chance = yield RANDOM_BYTES
    if (yield Begin("begin")):
        yield Rollback("rollback")
        raise ConfigurationError(advice.no_transaction(operation.record))
    try:
        yield from _put_inside(ask, operation.record, kept, chance)
        yield Commit("commit")  # Of the savepoint; the transaction is the function's to commit.
    except GeneratorExit:
        raise
    except BaseException:
        yield Rollback("rollback")
        raise


def _put_inside(ask: OperationRequest, held: Record, kept: Encoded, chance: bytes) -> Flow[None]:
    write = record.settle(
        held,
        version=chance[:16],
        replay=ask.terms.retain,
        forget=ask.terms.forget,
        codec=kept.codec,
        result=kept.data,
    )
    expect = held.version
    for _ in range(CLAIM_SPINS_MAX):
        standing: PutResult = yield Put("inside", write, expect)
        found = standing.record
        if standing.landed:
            return
        if found is None:
            raise advice.about(NotSettled(advice.forgotten_inside(held)), held)
        if record.belongs_to_another(found, held.token):
            raise advice.lost(held, found, winner_of(found, ask.restore))
        if record.same_ending(found, write):
            return  # Settled before in this very transaction, with the same answer.
        if record.is_settled(found):
            raise advice.about(AlreadySettled(advice.already_settled(found)), found)
        if not record.is_claimed(found):
            raise IllegalMove(f"this operation has ended ({record.shown_state(found)}): settle it while it runs")
        expect = found.version  # Our own renewal moved it.
    raise StoreContended(retry_after_seconds=POLL_MAX)


def _kept(ask: OperationRequest, value: Any) -> Encoded:
    """What is stored of the answer; one that cannot be is refused while everything can still be undone."""
    try:
        kept = encode(value)
    except NotEncodable as error:
        raise ResultInvalid(f"{error}. Nothing was settled: let this error through, and your rows are undone") from None
    if kept.data is not None and len(kept.data) > ask.terms.result_bytes_max:
        raise ResultInvalid(
            f"the result has {len(kept.data)} bytes and at most {ask.terms.result_bytes_max} are stored; settle less, "
            "or raise result_bytes_max. Nothing was settled: let this error through, and your rows are undone"
        )
    return kept
