"""
The flow of one operation: claim, run, settle.

    claim ----> replay, wait or refuse
      |
      v
    run the function ----> returned: settle            (it happened; its result is stored if it can be)
                     ----> raised, nothing happened: release
                     ----> raised, nobody knows: leave in doubt (or free, where running again is harmless)

`record.py` makes every decision; every effect is yielded to whoever drives the flow. The process may die between any
two effects: the next caller's `decide` then sees what is in the store.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from onceward._core import advice, record
from onceward._core.codec import Encoded, KeptResult, NotEncodable, Restorer, encode, encode_failure, given_back, keep
from onceward._core.dead_holder_flow import decide_with_holder, lives, put_in_doubt
from onceward._core.errors import (
    AlreadySettled,
    BudgetExhausted,
    ConfigurationError,
    IllegalMove,
    InFlight,
    NothingHappened,
    OncewardError,
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
    has_landed,
    is_claimed_anew,
    outcome_of,
    put_back_effect,
    winner_of,
    within_lease,
)
from onceward._core.flow import (
    MONOTONIC,
    RANDOM_BYTES,
    CallFunction,
    CheckRefusal,
    Flow,
    Load,
    Pause,
    PayForRerun,
    Probe,
    Put,
    Raised,
    Returned,
)
from onceward._core.keys import digest_of
from onceward._core.operation import Found, NotFound, Operation, Outcome, mark_judged
from onceward._core.record import (
    Claimant,
    Guarantee,
    PeekResult,
    PutResult,
    Record,
    Refuse,
    Replay,
    Start,
    Wait,
    Write,
    new_tuple,
)
from onceward._core.resilience import Resilience
from onceward._core.terms import Terms
from onceward._core.unrun_results import checked_result

POLL_FIRST = 0.002
"""Seconds between looks at another holder's record: often at first, later four a second. A notification ends it."""


class OperationRequest(NamedTuple):
    """One call: who requests what, on which terms."""

    claimant: Claimant
    terms: Terms
    restore: Restorer | None = None
    marked: bool = False
    """Whether the function marks its effect."""
    listening: bool = False
    peeks: bool = False
    """Whether to look, while waiting, before claiming again: where a look costs far less than a write."""
    given: str | None = None
    """The key as the caller gave it; None if only the stored one is known."""
    resilience: Resilience | None = None
    """The policy, breaker and budget of this operation, if it has any."""


class HeldClaim(NamedTuple):
    """A claim that landed."""

    held: Record
    probe: bool
    chance: bytes


def operate(request: OperationRequest, begun: Operation | None = None) -> Flow[Outcome[Any]]:
    """Run an operation once, or return the result of the run before; `begun` is one that the straight line made."""
    claimed = yield from claim(request)
    if isinstance(claimed, Outcome):
        return claimed
    held, ending_version = claimed.held, claimed.chance[32:]
    operation = Operation(held, request.given) if begun is None else begun
    if claimed.probe:
        probed = yield from _run_probe(request, operation, ending_version)
        if isinstance(probed, Outcome):
            return probed
        held = operation.record = probed
    ended = yield from call_function(operation)
    if operation.record.version != held.version:  # Renewed meanwhile.
        held = held._replace(version=operation.record.version)
    if isinstance(ended, Raised):
        return (yield from _failed(request, operation, held, ending_version, ended))
    if _remembers(request, ended):
        return (yield from settle(request, operation, held, ending_version, ended.value))
    return (yield from _unremembered(request, operation, held, ending_version, ended.value))


# --- claim ---


def claim(request: OperationRequest) -> Flow[HeldClaim | Outcome[Any]]:
    """Claim the key, or return the first result."""
    chance = yield RANDOM_BYTES
    start, deadline, poll, spins, look = record.FRESH, None, POLL_FIRST, 0, False
    while spins < CLAIM_SPINS_MAX:
        refused: OncewardError | None = None
        if request.resilience is not None:
            refused = yield CheckRefusal(request.resilience)
        if look or refused is not None:
            found: Record | None = yield Load("peek", request.claimant.id)
        else:
            write = record.claim(request.claimant, start, token=chance[:16], version=chance[16:32])
            put = yield from _put_claim(request, write, start, chance[32:])
            if has_landed(put, write):
                return (yield from _claimed(request, put, start, chance))
            found = put.record
        look = False
        decision = record.decide(found, request.claimant)
        start = record.FRESH
        if isinstance(decision, Wait):
            decision = yield from decide_with_holder(decision, request.claimant)
            if isinstance(decision, Refuse):
                spins += 1
                stored = yield from put_in_doubt(decision, chance)
                if stored is None:
                    continue
                decision = decision._replace(record=stored)
        if isinstance(decision, Start):
            if request.resilience is not None:
                yield from _check_permission(request, request.resilience, refused, decision)
            start = decision
            spins += 1
        elif isinstance(decision, Wait):
            if request.terms.in_flight == "accept":
                return _pending(request, decision)
            if deadline is None:
                deadline = (yield MONOTONIC) + request.terms.wait / 1e6
                yield from emit_event(request, EventType.WAITING, decision.record)
            yield from _wait(request, decision, deadline, poll)
            poll, look = min(poll * 1.6, POLL_MAX), request.peeks
        else:
            return (yield from _replay_or_refuse(request, decision))
    raise StoreContended(retry_after_seconds=POLL_MAX)


def _check_permission(
    request: OperationRequest, around: Resilience, refused: OncewardError | None, start: Start
) -> Flow[None]:
    """Before a claim: breaker and deadline must allow it, and a run after a failed one is paid from the budget."""
    if refused is not None:
        raise advice.about_claimant(refused, request.claimant)
    if start.over is not None and (start.doubt or record.is_released(start.over)) and not (yield PayForRerun(around)):
        raise advice.about(BudgetExhausted(advice.budget_exhausted(start.over)), start.over)


def _put_claim(request: OperationRequest, write: Write, start: Start, spare: bytes) -> Flow[PutResult]:
    """Put the claim. If that is interrupted, release it: nobody would hold it."""
    try:
        put: PutResult = yield Put("claim", write, None if start.over is None else start.over.version)
        return put
    except GeneratorExit:
        raise
    except BaseException as error:
        if not isinstance(error, OncewardError) or isinstance(error, StoreUnavailable):
            yield from _take_back(request, write.token, spare)
        raise


def _take_back(request: OperationRequest, token: bytes, version: bytes) -> Flow[None]:
    """It is not known whether the claim landed. Release it if it did: nothing has run yet."""
    try:
        found: Record | None = yield Load("takeback.load", request.claimant.id)
        if found is not None and record.still_holds(found, token):
            release = record.release(found, version=version, forget=request.terms.remember_release)
            yield Put("takeback", release, found.version)
    except StoreUnavailable:
        return  # The store is away. If the claim did land, its lease will run out.


def _claimed(request: OperationRequest, put: PutResult, start: Start, chance: bytes) -> Flow[HeldClaim]:
    held = put.record
    if held is None:
        raise IllegalMove("the store says that a put landed, but returned no record. This is a bug in the store")
    if start.doubt and not start.probe and not record.still_honoured(held, request.claimant):
        # Between decision and claim, the downstream's time ran out: it would not recognise the key.
        with suppress(StoreUnavailable):  # If that fails, the lease runs out, which means the same.
            yield from finish_claim(request, held, record.leave_in_doubt(held, version=chance[32:]), None)
        raise advice.in_doubt(held, "the downstream may not know its key any more")
    if is_short(held, request):
        # The put took long, and the lease counts from when it was sent. Do not run with less than half of it.
        try:
            held = yield from renew(request, held)
        except StoreUnavailable:
            yield from _take_back(request, held.token, chance[32:])
            raise
        except StoreForgot as forgot:
            raise StoreUnavailable(advice.forgotten_before(held)) from forgot
    if request.listening:
        yield from emit_event(request, EventType.CLAIMED, held)
    return HeldClaim(held, start.probe, chance)


def is_short(held: Record, request: OperationRequest) -> bool:
    """Whether less than half of the lease is left, so that it is renewed before anything runs."""
    return held.lease_left is not None and held.lease_left * 2 < request.claimant.lease


def _replay_or_refuse(request: OperationRequest, decision: Replay | Refuse) -> Flow[Outcome[Any]]:
    """The key was used before: return the first result, or raise why not."""
    found = decision.record
    if isinstance(decision, Replay):
        if request.listening:
            yield from emit_event(request, EventType.REPLAYED, found)
        return outcome_of(found, request.restore)
    yield from emit_event(request, EventType.REFUSED, found, decision.why.value)
    raise advice.refusal(decision.why, found)


def _wait(request: OperationRequest, wait: Wait, deadline: float, poll: float) -> Flow[None]:
    left = deadline - (yield MONOTONIC)
    if request.terms.in_flight == "refuse" or left <= 0:
        yield from emit_event(request, EventType.REFUSED, wait.record, "in_flight")
        after = record.retry_after_seconds_of(wait, request.claimant.lease)
        raise advice.about(InFlight(advice.in_flight(wait), retry_after_seconds=after), wait.record)
    yield Pause(wait.record.id, min(poll, left, wait.lease_left / 1e6 + 0.001))


def _pending(request: OperationRequest, wait: Wait) -> Outcome[Any]:
    found, after = wait.record, record.retry_after_seconds_of(wait, request.claimant.lease)
    return Outcome(None, False, found.first_at, found.attempt, found.fence, True, True, after)


def renew(request: OperationRequest, held: Record, operation: Operation | None = None) -> Flow[Record]:
    """
    Renew the lease; `OwnershipLost` if somebody else has taken over, `IllegalMove` if the operation has ended.

    If the store lost the claim while the last lease still holds, the claim is put back, so that nobody else starts.
    """
    chance = yield RANDOM_BYTES
    write = record.renew(held, version=chance[:16], lease=request.claimant.lease)
    expect, gone = held.version, False
    for _ in range(CLAIM_SPINS_MAX):
        put: PutResult = yield put_back_effect(write) if gone else Put("renew", write, expect)
        found = put.record
        if found is not None and has_landed(put, write):
            yield from emit_event(request, EventType.STORE_FORGOT if gone else EventType.RENEWED, found)
            return found
        if found is None and not gone and (yield from within_lease(request, held, operation)):
            gone = True
            continue
        if found is None or is_claimed_anew(found, held):
            yield from emit_event(request, EventType.STORE_FORGOT, held, "not put back")
            raise StoreForgot(advice.forgotten(held, found, erased=True))
        if record.belongs_to_another(found, held.token):
            yield from emit_event(request, EventType.OVERTAKEN, held)
            raise advice.lost(held, found, winner_of(found, request.restore))
        if not record.is_claimed(found):
            raise IllegalMove(
                f"this operation has ended already ({record.shown_state(found)}), so its lease cannot be renewed"
            )
        expect, gone = found.version, False  # Another renewal of ours changed it, or has put it back.
    raise StoreContended(retry_after_seconds=POLL_MAX)


# --- run ---


def call_function(operation: Operation) -> Flow[Returned | Raised]:
    """Run the user's function. An interrupt while it runs counts as raised by it."""
    try:
        ended: Returned | Raised = yield CallFunction("call", operation)
    except GeneratorExit:
        raise
    except BaseException as error:
        return Raised(error)
    if type(ended) is Returned and not (operation.inside is not None and operation.inside.called):
        return checked_result(ended)
    return ended


def _run_probe(request: OperationRequest, operation: Operation, version: bytes) -> Flow[Record | Outcome[Any]]:
    """An earlier attempt may have done it: run the probe. If it finds the effect, settle; if not, go on to run."""
    held = operation.record
    answer: Returned | Raised
    try:
        answer = yield Probe("probe", operation)
    except GeneratorExit:
        raise
    except BaseException as interrupt:
        answer = Raised(interrupt)
    match answer:
        case Returned(Found(value)):
            yield from emit_event(request, EventType.RECONCILED, held, "the probe found it")
            outcome = yield from settle(request, operation, held, version, value)
            return outcome._replace(replayed=True)
        case Returned(NotFound()):
            # This clears the doubt. The probe took time, so make sure that the claim still holds.
            return (yield from renew(request, held._replace(doubt=0), operation))
        case Returned(_):
            error: BaseException = TypeError("a probe returns Found(value) or NOT_FOUND")
        case Raised(raised):
            error = raised
    write = record.leave_in_doubt(held, version=version, error=encode_failure(error))
    with suppress(StoreUnavailable):  # If that fails, the lease runs out, which means the same.
        yield from finish_claim(request, held, write, operation, patient=False)
    yield from emit_event(request, EventType.IN_DOUBT, held, "the probe could not tell")
    if not isinstance(error, Exception):
        raise error
    raise advice.in_doubt(held, "the probe could not tell whether it happened") from error


# --- end ---


def settle(
    request: OperationRequest, operation: Operation, held: Record, version: bytes, value: Any
) -> Flow[Outcome[Any]]:
    """Store the result and end the claim. If the result cannot be stored, store that it happened."""
    kept, write = settling(request, held, version, value)
    stored = yield from finish_claim(request, held, write, operation, value)
    if stored.codec is None:
        yield from emit_event(request, EventType.NOT_REPLAYABLE, stored)
        return Outcome(value, False, stored.first_at, stored.attempt, stored.fence, False)
    if request.listening:
        yield from emit_event(request, EventType.SETTLED, stored)
    return settled_outcome(request, kept, stored)


def settling(request: OperationRequest, held: Record, version: bytes, value: Any) -> tuple[KeptResult, Write]:
    """
    A value as it is stored, and the record that stores it.

    Nothing is stored of a value that cannot be encoded, or is larger than `result_bytes_max`.
    """
    terms = request.terms
    try:
        kept = keep(value)
        if kept.data is not None and len(kept.data) > terms.result_bytes_max:
            kept = _NOTHING
    except NotEncodable:
        kept = _NOTHING
    write = record.settle(
        held,
        version=version,
        replay=terms.retain,
        forget=terms.forget,
        codec=kept.codec,
        result=kept.data,
        relaxed=terms.relaxed_settle,
    )
    return kept, write


def settled_outcome(request: OperationRequest, kept: KeptResult, stored: Record) -> Outcome[Any]:
    """What the first caller is told: its value as the codec gives it back, so that it equals every replay."""
    told = (given_back(kept, request.restore), False, stored.first_at, stored.attempt, stored.fence, True, False, None)
    return new_tuple(Outcome, told)  # type: ignore[no-any-return]


_NOTHING = KeptResult(None, None)


def _unremembered(
    request: OperationRequest, operation: Operation, held: Record, version: bytes, value: Any
) -> Flow[Outcome[Any]]:
    """`remember` says that this result is not to be stored, because nothing happened: release the key."""
    write = record.release(held, version=version, forget=request.terms.remember_release)
    stored = yield from finish_claim(request, held, write, operation, value)
    yield from emit_event(request, EVENT_TYPE_OF_STATE[stored.state], stored, "this result is not one to remember")
    return Outcome(value, False, stored.first_at, stored.attempt, stored.fence, False)


def _failed(
    request: OperationRequest, operation: Operation, held: Record, version: bytes, ended: Raised
) -> Flow[Outcome[Any]]:
    """The function raised: store what that means for the key, and raise the same error to the caller."""
    error = ended.error
    write = _after_failure(request, operation, held, version, ended)
    try:
        stored = yield from finish_claim(request, held, write, operation)
    except (OwnershipLost, StoreForgot) as lost:
        raise lost from error
    except StoreUnavailable as unstored:
        # When the lease runs out, the record means the same. What the function raised matters more.
        add_note(error, f"onceward: the record of {operation.digest} could not be updated: {unstored}")
        raise error from None
    operation.record = stored  # Whoever still has the operation can see how it ended.
    yield from emit_event(request, EVENT_TYPE_OF_STATE[stored.state], stored, type(error).__name__)
    if record.is_in_doubt(stored):
        add_note(error, advice.doubt_note(stored))
    mark_judged(error)
    if isinstance(error, OncewardError):
        advice.about(error, stored)
    raise error


def _after_failure(
    request: OperationRequest, operation: Operation, held: Record, version: bytes, ended: Raised
) -> Write:
    """The record after a failure: released (or back in doubt), settled with the failure, or in doubt."""
    terms, failure = request.terms, encode_failure(ended.error)
    harmless: tuple[type[BaseException], ...] = (NothingHappened, *terms.before)
    if operation.spared(ended.error, harmless, marked=request.marked, classifier=terms.classifier):
        return record.release(held, version=version, forget=terms.remember_release, error=failure)
    if isinstance(ended.error, Exception) and _remembers(request, ended) and not held.doubt:
        # A failure is about its own attempt only. While an earlier one is in doubt, it must not become the result.
        return record.settle(held, version=version, replay=terms.retain, forget=terms.forget, error=failure)
    if held.guarantee == Guarantee.REPEATABLE:
        return record.release(held, version=version, forget=terms.remember_release, error=failure)
    return record.leave_in_doubt(held, version=version, error=failure)


def _remembers(request: OperationRequest, ended: Returned | Raised) -> bool:
    remember = request.terms.remember
    if callable(remember):
        return bool(remember(ended))
    return remember == "all" or type(ended) is Returned


def peeked_outcome(seen: PeekResult, fingerprint: bytes, restore: Restorer | None) -> Outcome[Any] | None:
    """The first result, if a quick look shows one for this request; None: claim as usual."""
    return outcome_of(seen, restore) if record.replays(seen, fingerprint) else None


# --- reconcile ---


def reconcile(request: OperationRequest, decision: Found | NotFound, fence: int | None = None) -> Flow[Record]:
    """
    Decide an in-doubt record: it happened, with this result; or it did not.

    Pass the `fence` of the attempt that you checked: a decision that comes late then does not decide a later attempt.
    """
    chance = yield RANDOM_BYTES
    kept = _encode_decision(decision)
    for _ in range(CLAIM_SPINS_MAX):
        found: Record | None = yield Load("reconcile.load", request.claimant.id)
        if found is None:
            raise IllegalMove("there is no record of this key: it was never used, or has been deleted since")
        if fence is not None and found.fence != fence:
            raise IllegalMove(
                f"{digest_of(found.id)} has been claimed again since (its fence is {found.fence}, not {fence}). Check "
                "again: what you found out about the earlier attempt does not decide this one"
            )
        if record.is_settled(found) and isinstance(decision, Found):
            if (found.codec, found.result) == (kept.codec, kept.data):
                return found
            raise advice.about(AlreadySettled(advice.already_settled(found)), found)
        if record.is_released(found) and not isinstance(decision, Found):
            return found
        write = record.reconcile(
            found,
            happened=isinstance(decision, Found),
            token=chance[:16],
            version=chance[16:32],
            replay=request.terms.retain if isinstance(decision, Found) else None,
            forget=request.terms.forget if isinstance(decision, Found) else request.terms.remember_release,
            codec=kept.codec,
            result=kept.data,
            died=record.is_live(found) and (yield from lives(found)) is False,
        )
        put: PutResult = yield Put("reconcile", write, found.version)
        if has_landed(put, write) and put.record is not None:
            yield from emit_event(request, EventType.RECONCILED, put.record, put.record.state)
            return put.record
    raise StoreContended(retry_after_seconds=POLL_MAX)


def _encode_decision(decision: Found | NotFound) -> Encoded:
    """The result that a decision stores."""
    if isinstance(decision, NotFound):
        return Encoded(None, None)
    if not isinstance(decision, Found):
        raise ConfigurationError("a decision is Found(result) if it happened, or NOT_FOUND if it did not")
    try:
        return encode(decision.value)
    except NotEncodable as error:
        raise ResultInvalid(f"{error}. Nothing was changed") from None
