"""
The same operation inside the caller's own transaction.

    begin (or savepoint) -> claim -> run the function -> settle and commit (or release the savepoint)

and with claim="last", for effects that are wholly inside the database:

    begin (or savepoint) -> look -> run the function -> put the settled record and commit

Record and business rows commit together or not at all, so there is no doubt to keep: whatever goes wrong, the
transaction is undone and nothing happened. The unique constraint is the arbiter here as everywhere: under it a racer
waits for the winner's commit (the database makes it wait) and then replays the winner. Claimed first, it waits before
it has worked; claimed last, its work is undone.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from onceward._core import advice, record
from onceward._core.codec import Encoded, KeptResult, NotEncodable, encode, encode_failure, keep
from onceward._core.dead_holder_flow import decide_with_holder, put_in_doubt
from onceward._core.errors import IllegalMove, InFlight, OncewardError, ResultInvalid, StoreContended
from onceward._core.events import Event, EventType
from onceward._core.finish_flow import CLAIM_SPINS_MAX, POLL_MAX, emit_event, outcome_of
from onceward._core.flow import (
    MONOTONIC,
    RANDOM_BYTES,
    AfterCommit,
    Begin,
    Commit,
    Emit,
    Extend,
    Finish,
    Flow,
    Load,
    LoadInTransaction,
    Pause,
    Put,
    Raised,
    Returned,
    Rollback,
)
from onceward._core.keys import digest_of
from onceward._core.operation import AtomicOperation, Outcome, UnclaimedOperation, mark_judged
from onceward._core.operation_flow import POLL_FIRST, OperationRequest, call_function, settled_outcome
from onceward._core.record import Decision, PutResult, Record, Refuse, Replay, Start, Wait, Write
from onceward._core.unrun_results import UnrunResult


class TryAgain(NamedTuple):
    """The key was won by a record that has made room again: everything was undone, and can be tried once more."""


class UndoneFailure(NamedTuple):
    """The function raised this: everything is to be undone, and the error let through."""

    error: BaseException


class _Ending(Protocol):
    """The write that settles: the same for a claim that stands and for none."""

    def __call__(
        self, *, codec: str | None = None, result: bytes | None = None, error: bytes | None = None
    ) -> Write: ...


class AtomicRun(NamedTuple):
    """A function about to run in the transaction."""

    operation: AtomicOperation
    ending: _Ending
    expect: bytes | None
    """The version that the ending replaces."""
    opened: bool
    """Whether the transaction is ours; otherwise the caller's goes on when ours is undone."""


class RememberedFailure(NamedTuple):
    """The function raised this, and that is kept."""

    error: BaseException
    record: Record


_AttemptEnd: TypeAlias = Outcome[Any] | RememberedFailure | UndoneFailure | Wait | Refuse | TryAgain
"""What one attempt came to."""


def operate_atomic(request: OperationRequest, begun: AtomicOperation | None = None) -> Flow[Outcome[Any]]:
    """
    Run an operation once inside the caller's transaction, or learn what became of it.

    `begun` is an operation that the straight line made, in its first attempt.
    """
    inside = _claim_last if request.terms.claim == "last" else _claim_first
    deadline, poll, spins = None, POLL_FIRST, 0
    while True:
        chance = yield RANDOM_BYTES
        began = (yield MONOTONIC) if request.listening else 0.0
        opened = None
        try:
            opened = yield Begin("begin")
            came_to = yield from inside(request, chance, opened, begun)
        except GeneratorExit:
            raise
        except BaseException as error:
            undone = yield Rollback("rollback")
            if not undone and opened is not None:
                yield from _record_parted_transaction(request, chance, error)
            raise
        match came_to:
            case Outcome() if came_to.replayed:
                yield from _emit_replayed(request, EventType.REPLAYED, came_to.attempt, came_to.fence)
                return came_to
            case Outcome():
                took = (yield MONOTONIC) - began if request.listening else 0.0
                yield after_commit(request, chance, opened, came_to.attempt, came_to.fence, took)
                return came_to
            case RememberedFailure(failure, kept):
                took = (yield MONOTONIC) - began if request.listening else 0.0
                yield after_commit(request, chance, opened, kept.attempt, kept.fence, took, type(failure).__name__)
                raise failure  # Its record is committed, its rows are not.
            case UndoneFailure(failure):
                undone = yield Rollback("rollback")
                if not undone:
                    yield from _record_parted_transaction(request, chance, failure)
                raise failure
            case TryAgain():
                begun, spins = None, spins + 1
                if spins >= CLAIM_SPINS_MAX:
                    raise StoreContended(retry_after_seconds=POLL_MAX)
                continue
            case Refuse(why, found):
                yield Rollback("rollback")
                if opened:  # Inside a transaction of the caller's own, the store might wait for it, and it for us.
                    found = (yield from put_in_doubt(came_to, chance)) or found
                yield from emit_event(request, EventType.REFUSED, found, why.value)
                raise advice.refusal(why, found)
        # Somebody holds it outside this transaction. Waiting inside would keep that holder from settling.
        yield Rollback("rollback")
        begun = None
        now = yield MONOTONIC
        if deadline is None:
            deadline = now + request.terms.wait / 1e6
            yield from emit_event(request, EventType.WAITING, came_to.record)
        if not opened or request.terms.in_flight != "wait" or now >= deadline:
            yield from emit_event(request, EventType.REFUSED, came_to.record, "in_flight")
            after = record.retry_after_seconds_of(came_to, request.claimant.lease)
            raise advice.about(InFlight(advice.in_flight(came_to), retry_after_seconds=after), came_to.record)
        yield Pause(request.claimant.id, min(poll, deadline - now))
        poll = min(poll * 1.6, POLL_MAX)


def foretold_write(request: OperationRequest, kept: Encoded, chance: bytes) -> Write:
    """
    The settled record of an operation whose result is certain before it runs, or that ran in this very transaction.

    For whoever can put it together with the work, where no record stands under the key. Where one does, nothing of it
    may land, and `operate_atomic` says what becomes of the call.
    """
    return record.settle_unclaimed(
        request.claimant,
        record.FRESH,
        token=chance[:16],
        version=chance[32:],
        replay=request.terms.retain,
        forget=request.terms.forget,
        codec=kept.codec,
        result=kept.data,
    )


def _claim_first(
    request: OperationRequest, chance: bytes, opened: bool, begun: AtomicOperation | None
) -> Flow[_AttemptEnd]:
    yield from _touch(request)
    start = record.FRESH
    for _ in range(CLAIM_SPINS_MAX):
        write = record.claim(request.claimant, start, token=chance[:16], version=chance[16:32])
        put = yield Put("claim", write, None if start.over is None else start.over.version)
        if put.landed and put.record is not None:
            return (yield from _run(request, claimed(request, put.record, chance, opened, begun)))
        decision = yield from _decided(request, put.record)
        if not isinstance(decision, Start):
            return (yield from _not_run(request, decision))
        start = decision
    raise StoreContended(retry_after_seconds=POLL_MAX)


def _claim_last(
    request: OperationRequest, chance: bytes, opened: bool, begun: AtomicOperation | None
) -> Flow[_AttemptEnd]:
    yield from _touch(request)
    found: Record | None = yield LoadInTransaction("peek", request.claimant.id)
    decision = yield from _decided(request, found)
    if not isinstance(decision, Start):
        return (yield from _not_run(request, decision))
    return (yield from _run(request, unclaimed(request, decision, chance, opened, begun)))


def _emit_replayed(request: OperationRequest, happening: EventType, attempt: int, fence: int) -> Flow[None]:
    """Tell at once: nothing was written."""
    if request.listening:
        yield Emit(event_in_transaction(request, happening, attempt, fence))


def after_commit(
    request: OperationRequest, chance: bytes, opened: bool, attempt: int, fence: int, took: float, failure: str = ""
) -> AfterCommit:
    """It ran, and took so many seconds: what is to be told when it is committed."""
    events: tuple[Event, ...] = ()
    if request.listening:
        began = event_in_transaction(request, EventType.CLAIMED, attempt, fence, amount=took)
        events = (began, event_in_transaction(request, EventType.SETTLED, attempt, fence, failure, took))
    return AfterCommit(request.claimant.id, chance[:16], events, opened)


def event_in_transaction(
    request: OperationRequest,
    happening: EventType,
    attempt: int,
    fence: int,
    detail: str = "",
    amount: float | None = None,
) -> Event:
    """What is told of a run in the caller's transaction."""
    claimant = request.claimant
    return Event(happening, digest_of(claimant.id), claimant.scope, claimant.operation, attempt, fence, detail, amount)


def _touch(request: OperationRequest) -> Flow[None]:
    if request.claimant.family is not None:
        yield Extend("touch", request.claimant.family, request.terms.retain, request.terms.forget)


def _decided(request: OperationRequest, found: Record | None) -> Flow[Decision]:
    decision = record.decide(found, request.claimant)
    return (yield from decide_with_holder(decision, request.claimant)) if isinstance(decision, Wait) else decision


def _not_run(request: OperationRequest, decision: Replay | Refuse | Wait) -> Flow[Outcome[Any] | Wait | Refuse]:
    if isinstance(decision, Wait):
        return decision
    if isinstance(decision, Refuse):
        if record.is_abandoned(decision):
            return decision  # Its holder is dead, which is to be stored outside of this transaction.
        yield from emit_event(request, EventType.REFUSED, decision.record, decision.why.value)
        raise advice.refusal(decision.why, decision.record)
    outcome = outcome_of(decision.record, request.restore)
    yield Commit("commit")
    return outcome


def claimed(
    request: OperationRequest, held: Record, chance: bytes, opened: bool, begun: AtomicOperation | None = None
) -> AtomicRun:
    """A function that may run because its claim landed."""
    terms = request.terms
    ending = partial(record.settle, held, version=chance[32:], replay=terms.retain, forget=terms.forget)
    return AtomicRun(begun or AtomicOperation(held, request.given), ending, held.version, opened)


def unclaimed(
    request: OperationRequest, start: Start, chance: bytes, opened: bool, begun: AtomicOperation | None = None
) -> AtomicRun:
    """A function that may run, with claim="last", because nothing stood under its key."""
    ending = partial(
        record.settle_unclaimed,
        request.claimant,
        start,
        token=chance[:16],
        version=chance[32:],
        replay=request.terms.retain,
        forget=request.terms.forget,
    )
    if begun is None:
        shown = record.record_from_claimant(request.claimant, first_at=0, attempt=ending().attempt, fence=0)
        begun = UnclaimedOperation(shown, request.given)
    return AtomicRun(begun, ending, None if start.over is None else start.over.version, opened)


def _run(request: OperationRequest, run: AtomicRun) -> Flow[_AttemptEnd]:
    """Run the function; a failure that is to be remembered keeps its record and undoes its rows."""
    remembers_failures = request.terms.remember == "all"
    if remembers_failures:
        yield Begin("begin")  # A savepoint around the function.
    ended = yield from call_function(run.operation)
    if isinstance(ended, Returned):
        if remembers_failures:
            yield from _release_savepoint()
        return (yield from _settle(request, run, ended.value))
    if remembers_failures:
        yield Rollback("rollback")
        if isinstance(ended.error, Exception) and not isinstance(ended.error, UnrunResult):
            return (yield from _remember(request, run, ended))
    mark_judged(ended.error)
    return UndoneFailure(ended.error)


def _remember(request: OperationRequest, run: AtomicRun, ended: Raised) -> Flow[_AttemptEnd]:
    """Keep the record of a failure. If the transaction can keep nothing any more, the failure itself is the news."""
    try:
        put = yield Finish("settle", run.ending(error=encode_failure(ended.error)), run.expect)
    except OncewardError as lost:
        ended.error.add_note(f"This failure could not be remembered: {lost}")
        return UndoneFailure(ended.error)
    if not put.landed or put.record is None:
        return (yield from _overtaken(request, run))
    return RememberedFailure(ended.error, put.record)


def _release_savepoint() -> Flow[None]:
    """Keep what was done since the savepoint; if that cannot be, the savepoint must not stay open."""
    try:
        yield Commit("commit")
    except GeneratorExit:
        raise
    except BaseException:
        yield Rollback("rollback")
        raise


def _settle(request: OperationRequest, run: AtomicRun, value: Any) -> Flow[_AttemptEnd]:
    kept = keep_result(request, value)
    put: PutResult = yield Finish("settle", run.ending(codec=kept.codec, result=kept.data), run.expect)
    if not put.landed or put.record is None:
        return (yield from _overtaken(request, run))
    return settled_outcome(request, kept, put.record)


def keep_result(request: OperationRequest, value: Any, *, plain: bool = False) -> KeptResult:
    """A result as it is stored; `ResultInvalid` if it cannot be. `plain`: it is known to be plain data."""
    try:
        kept = KeptResult(*encode(value, plain=True)) if plain else keep(value)
    except NotEncodable as error:
        raise ResultInvalid(f"{error}. Your transaction was rolled back, so nothing happened") from None
    if kept.data is not None and len(kept.data) > request.terms.result_bytes_max:
        raise ResultInvalid(
            f"the result is too large to store: {len(kept.data)} bytes, and the limit is "
            f"{request.terms.result_bytes_max}. Return less, or raise result_bytes_max. Your transaction was "
            "rolled back"
        )
    return kept


def _overtaken(request: OperationRequest, run: AtomicRun) -> Flow[_AttemptEnd]:
    """The ending did not land, and the work is undone. Whoever has claimed nothing may have lost a race."""
    if not isinstance(run.operation, UnclaimedOperation):
        raise IllegalMove(
            "your function ended the transaction that it was given, so the claim in it is gone. Leave commit and "
            "rollback to the gate"
        )
    # Only now: what stood in the way may have been put by the function itself, and is undone with the rest.
    found: Record | None = yield (Load if run.opened else LoadInTransaction)("peek", request.claimant.id)
    if (None if found is None else found.version) == run.expect:
        raise IllegalMove(
            "your function used the same key again inside this operation, so everything was rolled back. Give the "
            "inner operation a key of its own"
        )
    match (yield from _decided(request, found)):
        case Replay(won):
            return outcome_of(won, request.restore)
        case Refuse(why, won) as decision:
            if record.is_abandoned(decision):
                return decision
            raise advice.refusal(why, won)
        case Wait() as decision:
            return decision
    return TryAgain()


def _record_parted_transaction(request: OperationRequest, chance: bytes, error: BaseException) -> Flow[None]:
    """
    The function ended the transaction itself, and then failed: what it committed cannot be undone.

    Nobody may take it for something that was rolled back: it is left in doubt, whether or not it had been claimed. That
    is put into the store and not through the caller's connection, which the function may have closed.
    """
    try:
        yield from _leave_in_doubt(request, chance)
    except OncewardError as silent:
        error.add_note(f"Your function ended its transaction itself, and that could not be recorded: {silent}")


def _leave_in_doubt(request: OperationRequest, chance: bytes) -> Flow[None]:
    found: Record | None = yield Load("parted.load", request.claimant.id)
    decision = record.decide(found, request.claimant)
    if request.terms.claim == "last" and isinstance(decision, Start):
        write = record.doubt_unclaimed(request.claimant, decision, token=chance[:16], version=chance[32:])
        yield Put("parted", write, None if found is None else found.version)
    elif found is not None and record.still_holds(found, chance[:16]):
        yield Put("parted", record.leave_in_doubt(found, version=chance[32:]), found.version)
