"""
The flow of one operation: claim, run, settle. It reads as the promise does.

    claim ----> replay, wait or refuse
      |
      v
    run the function ----> returned: settle            (executed; kept if it can be)
                     ----> raised, nothing happened: release
                     ----> raised, nobody knows: leave in doubt (or free, where running again is harmless)

Every decision is asked of `record.py`; every effect is yielded to a shell. Between any two effects the process may
die: what then stands in the store is what the next caller's `decide` is given.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from onceward._core import advice, record
from onceward._core.codec import Encoded, NotEncodable, Restorer, decode, encode, encode_failure
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
)
from onceward._core.resilience import Resilience
from onceward._core.terms import Terms
from onceward._core.unrun_results import checked_result

POLL_FIRST = 0.002
"""Seconds between looks at another holder's record: quick at first, then four a second. A bell cuts it short."""


class OperationRequest(NamedTuple):
    """One call: who asks for what, on which terms."""

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


def operate(ask: OperationRequest) -> Flow[Outcome[Any]]:
    """Run an operation once, or learn what became of it."""
    claimed = yield from claim(ask)
    if isinstance(claimed, Outcome):
        return claimed
    held, ending_version = claimed.held, claimed.chance[32:]
    operation = Operation(held, ask.given)
    if claimed.probe:
        answer = yield from _run_probe(ask, operation, ending_version)
        if isinstance(answer, Outcome):
            return answer
        held = operation.record = answer
    ended = yield from call_function(operation)
    if operation.record.version != held.version:  # Renewed meanwhile.
        held = held._replace(version=operation.record.version)
    if isinstance(ended, Raised):
        return (yield from _failed(ask, operation, held, ending_version, ended))
    if _remembers(ask, ended):
        return (yield from settle(ask, operation, held, ending_version, ended.value))
    return (yield from _unremembered(ask, operation, held, ending_version, ended.value))


# --- claim ---


def claim(ask: OperationRequest) -> Flow[HeldClaim | Outcome[Any]]:
    """Take the right to run, or come back with the first answer."""
    chance = yield RANDOM_BYTES
    start, deadline, poll, spins, look = record.FRESH, None, POLL_FIRST, 0, False
    while spins < CLAIM_SPINS_MAX:
        refused: OncewardError | None = None
        if ask.resilience is not None:
            refused = yield CheckRefusal(ask.resilience)
        if look or refused is not None:
            found: Record | None = yield Load("peek", ask.claimant.id)
        else:
            write = record.claim(ask.claimant, start, token=chance[:16], version=chance[16:32])
            standing = yield from _put_claim(ask, write, start, chance[32:])
            if has_landed(standing, write):
                return (yield from _claimed(ask, standing, start, chance))
            found = standing.record
        look = False
        decision = record.decide(found, ask.claimant)
        start = record.FRESH
        if isinstance(decision, Wait):
            decision = yield from decide_with_holder(decision, ask.claimant)
            if isinstance(decision, Refuse):
                spins += 1
                stands = yield from put_in_doubt(decision, chance)
                if stands is None:
                    continue
                decision = decision._replace(record=stands)
        if isinstance(decision, Start):
            if ask.resilience is not None:
                yield from _check_permission(ask, ask.resilience, refused, decision)
            start = decision
            spins += 1
        elif isinstance(decision, Wait):
            if ask.terms.in_flight == "accept":
                return _pending(ask, decision)
            if deadline is None:
                deadline = (yield MONOTONIC) + ask.terms.wait / 1e6
                yield from emit_event(ask, EventType.WAITING, decision.record)
            yield from _wait(ask, decision, deadline, poll)
            poll, look = min(poll * 1.6, POLL_MAX), ask.peeks
        else:
            return (yield from _replay_or_refuse(ask, decision))
    raise StoreContended(retry_after_seconds=POLL_MAX)


def _check_permission(
    ask: OperationRequest, around: Resilience, refused: OncewardError | None, start: Start
) -> Flow[None]:
    """Nobody was here before: whether it may run now is for breaker and deadline to say, and a retry is paid for."""
    if refused is not None:
        raise advice.about_claimant(refused, ask.claimant)
    if start.over is not None and (start.doubt or record.is_released(start.over)) and not (yield PayForRerun(around)):
        raise advice.about(BudgetExhausted(advice.budget_exhausted(start.over)), start.over)


def _put_claim(ask: OperationRequest, write: Write, start: Start, spare: bytes) -> Flow[PutResult]:
    """Put the claim; if that is interrupted, do not leave a claim behind that nobody holds."""
    try:
        standing: PutResult = yield Put("claim", write, None if start.over is None else start.over.version)
        return standing
    except GeneratorExit:
        raise
    except BaseException as error:
        if not isinstance(error, OncewardError) or isinstance(error, StoreUnavailable):
            yield from _take_back(ask, write.token, spare)
        raise


def _take_back(ask: OperationRequest, token: bytes, version: bytes) -> Flow[None]:
    """Whether the claim landed is unknown: release it if it did. Nothing has run yet."""
    try:
        found: Record | None = yield Load("takeback.load", ask.claimant.id)
        if found is not None and record.still_holds(found, token):
            release = record.release(found, version=version, forget=ask.terms.remember_release)
            yield Put("takeback", release, found.version)
    except StoreUnavailable:
        return  # The store is away. If the claim did land, its lease will lapse.


def _claimed(ask: OperationRequest, standing: PutResult, start: Start, chance: bytes) -> Flow[HeldClaim]:
    held = standing.record
    if held is None:
        raise IllegalMove("a store said that a put landed, and that nothing stands there")
    if start.doubt and not start.probe and not record.still_honoured(held, ask.claimant):
        # Between deciding and landing, the downstream's time ran out: sending again would not be recognised.
        with suppress(StoreUnavailable):  # If it cannot be stored: the lease will lapse, and says the same.
            yield from finish_claim(ask, held, record.leave_in_doubt(held, version=chance[32:]), None)
        raise advice.in_doubt(held, "the downstream may have forgotten its key meanwhile")
    if held.lease_left is not None and held.lease_left * 2 < ask.claimant.lease:
        # The claim waited in the store: its lease began when it was sent. Do not run on what is left of it.
        try:
            held = yield from renew(ask, held)
        except StoreUnavailable:
            yield from _take_back(ask, held.token, chance[32:])
            raise
        except StoreForgot as forgot:
            raise StoreUnavailable(advice.forgotten_before(held)) from forgot
    if ask.listening:
        yield from emit_event(ask, EventType.CLAIMED, held)
    return HeldClaim(held, start.probe, chance)


def _replay_or_refuse(ask: OperationRequest, decision: Replay | Refuse) -> Flow[Outcome[Any]]:
    """Somebody was here before: the first answer, or no."""
    found = decision.record
    if isinstance(decision, Replay):
        if ask.listening:
            yield from emit_event(ask, EventType.REPLAYED, found)
        return outcome_of(found, ask.restore)
    yield from emit_event(ask, EventType.REFUSED, found, decision.why.value)
    raise advice.refusal(decision.why, found)


def _wait(ask: OperationRequest, wait: Wait, deadline: float, poll: float) -> Flow[None]:
    left = deadline - (yield MONOTONIC)
    if ask.terms.in_flight == "refuse" or left <= 0:
        yield from emit_event(ask, EventType.REFUSED, wait.record, "in_flight")
        after = record.retry_after_seconds_of(wait, ask.claimant.lease)
        raise advice.about(InFlight(advice.in_flight(wait), retry_after_seconds=after), wait.record)
    yield Pause(wait.record.id, min(poll, left, wait.lease_left / 1e6 + 0.001))


def _pending(ask: OperationRequest, wait: Wait) -> Outcome[Any]:
    found, after = wait.record, record.retry_after_seconds_of(wait, ask.claimant.lease)
    return Outcome(None, False, found.first_at, found.attempt, found.fence, True, True, after)


def renew(ask: OperationRequest, held: Record, operation: Operation | None = None) -> Flow[Record]:
    """
    Hold on for another lease; `OwnershipLost` if somebody else has taken over, `IllegalMove` if it has ended.

    If the store forgot the claim, and the last lease still holds, it is put back, so that nobody begins meanwhile.
    """
    chance = yield RANDOM_BYTES
    write = record.renew(held, version=chance[:16], lease=ask.claimant.lease)
    expect, gone = held.version, False
    for _ in range(CLAIM_SPINS_MAX):
        standing: PutResult = yield put_back_effect(write) if gone else Put("renew", write, expect)
        found = standing.record
        if found is not None and has_landed(standing, write):
            yield from emit_event(ask, EventType.STORE_FORGOT if gone else EventType.RENEWED, found)
            return found
        if found is None and not gone and (yield from within_lease(ask, held, operation)):
            gone = True
            continue
        if found is None or is_claimed_anew(found, held):
            yield from emit_event(ask, EventType.STORE_FORGOT, held, "not put back")
            raise StoreForgot(advice.forgotten(held, found, erased=True))
        if record.belongs_to_another(found, held.token):
            yield from emit_event(ask, EventType.OVERTAKEN, held)
            raise advice.lost(held, found, winner_of(found, ask.restore))
        if not record.is_claimed(found):
            raise IllegalMove(
                f"its own holder has ended this operation ({record.shown_state(found)}): nothing to renew"
            )
        expect, gone = found.version, False  # Another renewal of our own moved it, or has put it back.
    raise StoreContended(retry_after_seconds=POLL_MAX)


# --- run ---


def call_function(operation: Operation) -> Flow[Returned | Raised]:
    """Run the user's function. An interrupt that strikes here is an answer, too."""
    try:
        ended: Returned | Raised = yield CallFunction("call", operation)
    except GeneratorExit:
        raise
    except BaseException as error:
        return Raised(error)
    if type(ended) is Returned and not (operation.inside is not None and operation.inside.called):
        return checked_result(ended)
    return ended


def _run_probe(ask: OperationRequest, operation: Operation, version: bytes) -> Flow[Record | Outcome[Any]]:
    """An earlier attempt may have done it: ask the probe. What it finds is settled; what it does not, runs."""
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
            yield from emit_event(ask, EventType.RECONCILED, held, "the probe found it")
            outcome = yield from settle(ask, operation, held, version, value)
            return outcome._replace(replayed=True)
        case Returned(NotFound()):
            # Asked and answered: that is what clears doubt. Asking takes time, so make sure that the claim still holds.
            return (yield from renew(ask, held._replace(doubt=0), operation))
        case Returned(_):
            error: BaseException = TypeError("a probe returns Found(value) or NOT_FOUND")
        case Raised(raised):
            error = raised
    write = record.leave_in_doubt(held, version=version, error=encode_failure(error))
    with suppress(StoreUnavailable):  # If it cannot be stored: the lease will lapse, and says the same.
        yield from finish_claim(ask, held, write, operation, patient=False)
    yield from emit_event(ask, EventType.IN_DOUBT, held, "the probe could not tell")
    if not isinstance(error, Exception):
        raise error
    raise advice.in_doubt(held, "the probe could not tell whether it happened") from error


# --- end ---


def settle(ask: OperationRequest, operation: Operation, held: Record, version: bytes, value: Any) -> Flow[Outcome[Any]]:
    """Store the answer and end the claim. What cannot be stored has happened all the same."""
    kept = _encode_result(ask, value)
    write = record.settle(
        held,
        version=version,
        replay=ask.terms.retain,
        forget=ask.terms.forget,
        codec=kept.codec,
        result=kept.data,
        relaxed=ask.terms.relaxed_settle,
    )
    stands = yield from finish_claim(ask, held, write, operation, value)
    if stands.codec is None:
        yield from emit_event(ask, EventType.NOT_REPLAYABLE, stands)
        return Outcome(value, False, stands.first_at, stands.attempt, stands.fence, False)
    if ask.listening:
        yield from emit_event(ask, EventType.SETTLED, stands)
    # Through the codec, so that the first answer and every replay are equal by construction.
    return Outcome(decode(kept, ask.restore), False, stands.first_at, stands.attempt, stands.fence)


def _encode_result(ask: OperationRequest, value: Any) -> Encoded:
    """What is stored of a value: nothing if it has no stored form, or is larger than agreed."""
    try:
        kept = encode(value)
    except NotEncodable:
        return _NOTHING
    return _NOTHING if kept.data is not None and len(kept.data) > ask.terms.result_bytes_max else kept


_NOTHING = Encoded(None, None)


def _unremembered(
    ask: OperationRequest, operation: Operation, held: Record, version: bytes, value: Any
) -> Flow[Outcome[Any]]:
    """The function returned something that is not to be remembered: its answer says that nothing happened."""
    write = record.release(held, version=version, forget=ask.terms.remember_release)
    stands = yield from finish_claim(ask, held, write, operation, value)
    yield from emit_event(ask, EVENT_TYPE_OF_STATE[stands.state], stands, "the answer is not one to remember")
    return Outcome(value, False, stands.first_at, stands.attempt, stands.fence, False)


def _failed(
    ask: OperationRequest, operation: Operation, held: Record, version: bytes, ended: Raised
) -> Flow[Outcome[Any]]:
    """The function raised. The record says what that means; the caller gets what was raised."""
    error = ended.error
    write = _after_failure(ask, operation, held, version, ended)
    try:
        stands = yield from finish_claim(ask, held, write, operation)
    except (OwnershipLost, StoreForgot) as lost:
        raise lost from error
    except StoreUnavailable as unstored:
        # The lease will lapse and say the same. What the function raised matters more.
        add_note(error, f"onceward: the record of {operation.digest} could not be updated: {unstored}")
        raise error from None
    yield from emit_event(ask, EVENT_TYPE_OF_STATE[stands.state], stands, type(error).__name__)
    if record.is_in_doubt(stands):
        add_note(error, advice.doubt_note(stands))
    mark_judged(error)
    if isinstance(error, OncewardError):
        advice.about(error, stands)
    raise error


def _after_failure(ask: OperationRequest, operation: Operation, held: Record, version: bytes, ended: Raised) -> Write:
    """What a failure means for the record: released (or back in doubt), remembered, or in doubt."""
    terms, failure = ask.terms, encode_failure(ended.error)
    harmless: tuple[type[BaseException], ...] = (NothingHappened, *terms.before)
    if operation.spared(ended.error, harmless, marked=ask.marked, classifier=terms.classifier):
        return record.release(held, version=version, forget=terms.remember_release, error=failure)
    if isinstance(ended.error, Exception) and _remembers(ask, ended) and not held.doubt:
        # A failure speaks for its own attempt: while an earlier one is in doubt, there is nothing final to remember.
        return record.settle(held, version=version, replay=terms.retain, forget=terms.forget, error=failure)
    if held.guarantee == Guarantee.REPEATABLE:
        return record.release(held, version=version, forget=terms.remember_release, error=failure)
    return record.leave_in_doubt(held, version=version, error=failure)


def _remembers(ask: OperationRequest, ended: Returned | Raised) -> bool:
    remember = ask.terms.remember
    if callable(remember):
        return bool(remember(ended))
    return remember == "all" or type(ended) is Returned


def peeked_outcome(seen: PeekResult, fingerprint: bytes, restore: Restorer | None) -> Outcome[Any] | None:
    """The first answer, if a quick look shows one for this very request; None: ask properly."""
    return outcome_of(seen, restore) if record.replays(seen, fingerprint) else None


# --- reconcile ---


def reconcile(ask: OperationRequest, answer: Found | NotFound, fence: int | None = None) -> Flow[Record]:
    """
    Decide an in-doubt record: it happened, with this result; or it did not.

    With the `fence` of the attempt that was looked into, an answer that comes late does not decide a later attempt.
    """
    chance = yield RANDOM_BYTES
    kept = _encode_decision(answer)
    for _ in range(CLAIM_SPINS_MAX):
        found: Record | None = yield Load("reconcile.load", ask.claimant.id)
        if found is None:
            raise IllegalMove("there is no such record: nothing was ever claimed under this key, or it was forgotten")
        if fence is not None and found.fence != fence:
            raise IllegalMove(
                f"{digest_of(found.id)} has been claimed again since (its fence is {found.fence}, not {fence}): what "
                "was found out about the earlier attempt does not decide this one; look again"
            )
        if record.is_settled(found) and isinstance(answer, Found):
            if (found.codec, found.result) == (kept.codec, kept.data):
                return found
            raise advice.about(AlreadySettled(advice.already_settled(found)), found)
        if record.is_released(found) and not isinstance(answer, Found):
            return found
        write = record.reconcile(
            found,
            happened=isinstance(answer, Found),
            token=chance[:16],
            version=chance[16:32],
            replay=ask.terms.retain if isinstance(answer, Found) else None,
            forget=ask.terms.forget if isinstance(answer, Found) else ask.terms.remember_release,
            codec=kept.codec,
            result=kept.data,
            died=record.is_live(found) and (yield from lives(found)) is False,
        )
        standing: PutResult = yield Put("reconcile", write, found.version)
        if has_landed(standing, write) and standing.record is not None:
            yield from emit_event(ask, EventType.RECONCILED, standing.record, standing.record.state)
            return standing.record
    raise StoreContended(retry_after_seconds=POLL_MAX)


def _encode_decision(answer: Found | NotFound) -> Encoded:
    """What a decision stores; refused unless it is one."""
    if isinstance(answer, NotFound):
        return _NOTHING
    if not isinstance(answer, Found):
        raise ConfigurationError("a decision is Found(result), it happened; or NOT_FOUND, it did not")
    try:
        return encode(answer.value)
    except NotEncodable as error:
        raise ResultInvalid(f"{error}. Nothing was changed") from None
