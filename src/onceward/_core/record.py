"""
The life of a key. Every rule about it is in this file, and nothing elsewhere compares states.

             claim                    settle
  absent ------------->  claimed  ------------->  settled ----> expired (a tombstone) ----> absent
                         ^  |  |
             claim again |  |  |  lease lapses, or the error cannot say what happened
                         |  v  v
             released <--+  in doubt ----reconcile----> settled | released
       (proved: no effect; the row stays, so that its fence never repeats)

Laws of this file:

1. It does no I/O, reads no clock and uses no randomness. Time comes in as *durations left*, measured on the
   store's own clock; randomness comes in as bytes.
2. Every write names the version it replaces and carries a new one. Settle, release and renew also need the
   token of the claim: a holder that was overtaken can change nothing. Only an effect in the
   same transaction may be claimed and settled by one write.
3. The fingerprint is stored at the claim and is carried through every later write.
4. Doubt is sticky: only a settle or a reconcile clears it. A rejection is about its own attempt only.
5. The fence only rises, across release, expiry and purge.
6. A claim is never purged: one that is gone was lost by the store, or erased. Its holder was not overtaken.
7. A claim passes on when its lease ends, or when its holder is *proved* dead. That proof arrives as a fact, too.
8. Illegal moves raise and change nothing.

The rows themselves are plain tuples, in `record_types.py`. A store swaps them by compare-and-swap and decides nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from onceward._core.errors import IllegalMove, SchemaMismatch
from onceward._core.holders import is_by_lease, restamp_holder, stamp_holder
from onceward._core.record_types import NOW as NOW
from onceward._core.record_types import Claimant as Claimant
from onceward._core.record_types import PeekResult as PeekResult
from onceward._core.record_types import PutResult as PutResult
from onceward._core.record_types import Record as Record
from onceward._core.record_types import Write as Write
from onceward._core.record_types import new_tuple as new_tuple
from onceward._core.record_types import record_from_claimant as record_from_claimant
from onceward._core.record_types import record_from_write as record_from_write


class State(StrEnum):
    """The stored state of a key. That a claim has lapsed is not stored: it follows from the lease."""

    CLAIMED = "claimed"
    SETTLED = "settled"
    RELEASED = "released"
    IN_DOUBT = "in_doubt"


class Guarantee(StrEnum):
    """What kind of effect an operation has, which says what to do after a crash or an unknown error."""

    ATOMIC = "atomic"
    """It writes in the same database transaction as the record: after a crash, nothing happened."""
    REPEATABLE = "repeatable"
    """It is harmless to run again: run it again."""
    KEYED = "keyed"
    """It calls a service that honours our key for a stated time: send the same key again."""
    PROBED = "probed"
    """It can be looked up: run the probe, then settle or run."""
    BLIND = "blind"
    """None of these: in doubt until someone decides. The default."""


# The decisions. They are values and not exceptions, because losing a race is nothing exceptional.


class Start(NamedTuple):
    """Run it: put the claim in the place of `over` (None: where there is no record)."""

    over: Record | None
    doubt: bool = False
    probe: bool = False
    """Run the probe first: an earlier attempt may have done it."""


class Replay(NamedTuple):
    """Return the stored result of this record."""

    record: Record


class Wait(NamedTuple):
    """Another caller is running it, for this long at most (microseconds) unless it renews its lease."""

    record: Record
    lease_left: int
    alive: bool | None = None
    """Whether its holder is alive: True; False (it is dead, but its lease still has to run out); None (not known)."""


class Refusal(StrEnum):
    """Why a caller is refused."""

    REUSED = "reused"
    IN_DOUBT = "in_doubt"
    EXPIRED = "expired"
    NOT_REPLAYABLE = "not_replayable"


class Refuse(NamedTuple):
    """Refuse the call, and why."""

    why: Refusal
    record: Record


Decision = Start | Replay | Wait | Refuse

FRESH = Start(None)

# Plain text: these go into every row, and `.value` of an Enum is a function call.
_CLAIMED = State.CLAIMED.value
_SETTLED = State.SETTLED.value
_RELEASED = State.RELEASED.value
_IN_DOUBT = State.IN_DOUBT.value
_STATES = frozenset(state.value for state in State)
_SCHEMES = frozenset((1, 2, 3))
"""Fingerprint schemes: canonical, raw, keyed hash (the first byte of a fingerprint)."""
_HARMLESS = frozenset((Guarantee.ATOMIC.value, Guarantee.REPEATABLE.value))


def decide(found: Record | None, claimant: Claimant, *, died: bool = False) -> Decision:
    """What to do for a call with this scope and key; `died`: the holder of the claim is proved dead."""
    if found is None:
        return FRESH
    _check_known(found)
    if found.forget_left is not None and found.forget_left <= 0:
        return Start(found)  # As good as absent: it has only not been purged yet.
    if found.fingerprint != claimant.fingerprint:
        return Refuse(Refusal.REUSED, found)
    if found.state == State.SETTLED:
        return _decide_settled(found)
    if found.state == State.RELEASED:
        return Start(found)
    if is_live(found) and not (died and _passes_on(found, claimant)):
        return Wait(found, found.lease_left or 0, False if died else None)
    return _decide_unknown(found, claimant)


def _passes_on(found: Record, claimant: Claimant) -> bool:
    """Whether a dead holder's claim may be taken before its lease ends: neither side asked to wait for the lease."""
    if claimant.by_lease or is_by_lease(found):
        return False
    # Right after a crash a probe may look too early: the request can still be on its way.
    probes = claimant.can_probe or found.guarantee == Guarantee.PROBED
    return not probes or (found.guarantee in _HARMLESS and not found.doubt)


def is_abandoned(refuse: Refuse) -> bool:
    """Whether it is refused because its holder died within its lease, which is not stored yet."""
    return refuse.why is Refusal.IN_DOUBT and is_live(refuse.record)


def retry_after_seconds_of(wait: Wait, lease: int) -> float:
    """
    Seconds after which a caller who does not wait should retry; `lease` is the full lease of such a claim.

    If the holder is alive, it is probably quick: one second. If it is dead: when its lease ends. If that is not known:
    as long as since its claim or last renewal, and at most until its lease ends. So the first retries come soon, and
    there are few of them if the holder is dead.
    """
    left = wait.lease_left / 1e6
    if wait.alive is False:
        return left
    return min(left, 1.0 if wait.alive else max(1.0, lease / 1e6 - left))


def replays(seen: PeekResult, fingerprint: bytes) -> bool:
    """Whether `decide` would say replay. A quick look decides nothing else: in every other case the claim is put."""
    state, known, replay_left, forget_left, codec, _, error, _, _, _ = seen
    return (
        state == _SETTLED
        and known == fingerprint
        and (replay_left is None or replay_left > 0)
        and (forget_left is None or forget_left > 0)
        and (codec is not None or error is not None)
    )


def _decide_settled(found: Record) -> Decision:
    if found.replay_left is not None and found.replay_left <= 0:
        return Refuse(Refusal.EXPIRED, found)
    if found.codec is None and found.error is None:
        return Refuse(Refusal.NOT_REPLAYABLE, found)
    return Replay(found)


def _decide_unknown(found: Record, claimant: Claimant) -> Decision:
    """A lapsed claim, or one that ended with an unknown outcome. The *stored* guarantee decides."""
    if found.state == State.CLAIMED and found.guarantee in _HARMLESS and not found.doubt:
        return Start(found)
    if claimant.can_probe:
        return Start(found, doubt=True, probe=True)
    both_keyed = found.guarantee == Guarantee.KEYED and claimant.guarantee == Guarantee.KEYED
    if both_keyed and still_honoured(found, claimant):
        return Start(found, doubt=True)
    return Refuse(Refusal.IN_DOUBT, found)


def still_honoured(found: Record, claimant: Claimant) -> bool:
    """
    Whether the downstream still knows the key when a call under this claim reaches it.

    The call may be sent at any time within the lease, so the whole lease has to fit into `keyed_for`.
    """
    return found.age + claimant.lease < claimant.keyed_for


def is_live(record: Record) -> bool:
    """Whether somebody is running it: claimed, and the lease has not run out."""
    return record.state == State.CLAIMED and record.lease_left is not None and record.lease_left > 0


def is_in_doubt(record: Record) -> bool:
    """Whether it is unknown if the effect took place: stored as in doubt, or a claim that lapsed."""
    if record.state == State.IN_DOUBT:
        return True
    lapsed = record.state == State.CLAIMED and (record.lease_left is None or record.lease_left <= 0)
    return lapsed and (record.guarantee not in _HARMLESS or bool(record.doubt))


def shown_state(record: Record) -> str:
    """The state as it is shown to people, which also knows `lapsed`, `expired` and `absent`."""
    if record.forget_left is not None and record.forget_left <= 0:
        return "absent"
    if is_in_doubt(record):
        return _IN_DOUBT
    if record.state == State.CLAIMED and (record.lease_left is None or record.lease_left <= 0):
        return "lapsed"
    if record.state == State.SETTLED and record.replay_left is not None and record.replay_left <= 0:
        return "expired"
    return record.state


def _check_known(record: Record) -> None:
    """Refuse a record that a newer version wrote: half understanding it is worse than an error."""
    if record.state not in _STATES:
        raise SchemaMismatch(
            f"a record was written by a newer version of Onceward: its state {record.state!r} is unknown. Upgrade"
        )
    if not record.fingerprint or record.fingerprint[0] not in _SCHEMES:
        raise SchemaMismatch(
            "a record was written by a newer version of Onceward: its fingerprint scheme is unknown. Upgrade"
        )


# The moves. Each returns the row to put in the place of the given one, or raises if its state does not allow that.
# `Write` and `Record` are built by `new_tuple`, because one of each is made for every call.


def claim(claimant: Claimant, start: Start, *, token: bytes, version: bytes) -> Write:
    """Absent, released, forgotten or lapsed -> claimed."""
    id, kind, scope, key, operation, family, guarantee, fingerprint, lease, _, _, holder, by_lease = claimant
    over, doubt = start.over, start.doubt
    fence, attempt, first_at = 1, 1, NOW
    if over is not None:
        fence = over.fence + 1
        if over.forget_left is None or over.forget_left > 0:
            attempt = over.attempt + 1
        if doubt:  # A keyed downstream counts its time from the first request that may have arrived.
            first_at = over.first_at
    if holder is not None:
        holder = stamp_holder(holder, token, by_lease)
    # fmt: off
    write: Write = new_tuple(Write, (
        id, kind, scope, key, operation, family, _CLAIMED, guarantee, 1 if doubt else 0, fingerprint, version, token,
        fence, attempt, first_at, None, lease, None, None, None, None, None, True, False, holder,
    ))
    # fmt: on
    return write


def settle(
    held: Record,
    *,
    version: bytes,
    replay: int | None,
    forget: int | None,
    codec: str | None = None,
    result: bytes | None = None,
    error: bytes | None = None,
    relaxed: bool = False,
) -> Write:
    """Claimed -> settled. Without codec and error: it happened, and its result is not stored."""
    if held.state != _CLAIMED:
        raise _not_held(held, "settle")
    # As `_next`, which would be one more call for each.
    (id, kind, scope, key, operation, family, _, guarantee, _, fingerprint, _, token, fence, attempt, first_at) = held[
        :15
    ]
    # fmt: off
    write: Write = new_tuple(Write, (
        id, kind, scope, key, operation, family, _SETTLED, guarantee, 0, fingerprint, version, token, fence, attempt,
        first_at, NOW, None, replay, forget, codec, result, error, False, relaxed, None,
    ))
    # fmt: on
    return write


def settle_unclaimed(
    claimant: Claimant,
    start: Start,
    *,
    token: bytes,
    version: bytes,
    replay: int | None,
    forget: int | None,
    codec: str | None = None,
    result: bytes | None = None,
    error: bytes | None = None,
) -> Write:
    """Absent, released, forgotten or lapsed -> settled, in one write: for an effect in the same transaction."""
    if claimant.guarantee != Guarantee.ATOMIC or start.doubt or start.probe:
        raise IllegalMove("only an effect in the same transaction may run before its key is claimed")
    return claim(claimant, start, token=token, version=version)._replace(
        state=State.SETTLED.value,
        settled_at=NOW,
        lease=None,
        replay=replay,
        forget=forget,
        codec=codec,
        result=result,
        error=error,
        holder=None,
    )


def without_result(write: Write) -> Write:
    """The same write without its result, which could not be stored: it happened, and cannot be replayed."""
    return write._replace(codec=None, result=None)


def doubt_unclaimed(claimant: Claimant, start: Start, *, token: bytes, version: bytes) -> Write:
    """Absent, released, forgotten or lapsed -> in doubt: the function committed its effect apart from the record."""
    return claim(claimant, start, token=token, version=version)._replace(
        state=State.IN_DOUBT.value, doubt=1, lease=None
    )


def release(held: Record, *, version: bytes, forget: int, error: bytes | None = None) -> Write:
    """Claimed -> released, or back into doubt if an earlier attempt left any: doubt is sticky."""
    if held.state != _CLAIMED:
        raise _not_held(held, "release")
    if held.doubt:
        return _next(held, _IN_DOUBT, version, doubt=1, error=error)
    return _next(held, _RELEASED, version, forget=forget, error=error)


def leave_in_doubt(held: Record, *, version: bytes, error: bytes | None = None) -> Write:
    """Claimed -> in doubt: it is not known what this attempt did."""
    if held.state != _CLAIMED:
        raise _not_held(held, "leave in doubt")
    return _next(held, _IN_DOUBT, version, doubt=1, error=error)


def abandon(found: Record, *, token: bytes, version: bytes) -> Write:
    """Claimed -> in doubt, by somebody else, because its holder is dead. A new token, so that its late writes fail."""
    if found.state != _CLAIMED:
        raise _not_held(found, "leave in doubt")
    holder = None if found.holder is None else restamp_holder(found.holder, token)
    return _next(found, _IN_DOUBT, version, token=token, doubt=1)._replace(holder=holder)


def renew(held: Record, *, version: bytes, lease: int) -> Write:
    """Claimed -> claimed, for longer."""
    if held.state != _CLAIMED:
        raise _not_held(held, "renew")
    return _next(held, _CLAIMED, version, doubt=held.doubt)._replace(lease=lease)


def put_back(held: Record, write: Write, *, within_lease: bool) -> Write:
    """
    Absent, though held: what to put where the store lost the claim that `write` was to end.

    Within the lease nobody else can have run it: `write` is put as it is. Later somebody may have, and the store may
    have lost that as well. Then it is in doubt, unless `write` lets it run again anyway.
    """
    if within_lease or (held.guarantee in _HARMLESS and write.state == _RELEASED):
        return write
    return _next(held, _IN_DOUBT, write.version, doubt=1, error=write.error)


def reconcile(
    found: Record,
    *,
    happened: bool,
    token: bytes,
    version: bytes,
    replay: int | None = None,
    forget: int | None = None,
    codec: str | None = None,
    result: bytes | None = None,
    died: bool = False,
) -> Write:
    """In doubt (or lapsed) -> settled if it happened, released if not. A new token: a late holder is overtaken."""
    if is_live(found) and (not died or is_by_lease(found)):
        left = (found.lease_left or 0) / 1e6
        raise IllegalMove(
            f"this operation is still running, for {left:.1f} s unless it renews its lease. Reconcile it when "
            "its lease has run out",
            retry_after_seconds=left,
        )
    if found.state not in (State.CLAIMED, State.IN_DOUBT):
        raise IllegalMove(f"this operation is {shown_state(found)}, not in doubt, so there is nothing to reconcile")
    state = _SETTLED if happened else _RELEASED
    return _next(found, state, version, token=token, replay=replay, forget=forget, codec=codec, result=result)


def rewrite_values(
    found: Record, *, version: bytes, codec: str | None, result: bytes | None, error: bytes | None
) -> Write | None:
    """
    The same record with its values in another form (sealed anew); None if it is not to be touched: somebody holds it,
    or it has no values, or its time is over. Its times are what was left of them when it was read.
    """
    over = any(left is not None and left <= 0 for left in (found.replay_left, found.forget_left))
    if found.state == State.CLAIMED or over or (found.result is None and found.error is None):
        return None
    write = _next(
        found,
        found.state,
        version,
        doubt=found.doubt,
        replay=found.replay_left,
        forget=found.forget_left,
        codec=codec,
        result=result,
        error=error,
    )
    return write._replace(settled_at=found.settled_at)


def _not_held(held: Record, move: str) -> IllegalMove:
    return IllegalMove(f"cannot {move} this operation: it is {shown_state(held)}, not claimed")


def _next(
    found: Record,
    state: str,
    version: bytes,
    *,
    token: bytes | None = None,
    doubt: int = 0,
    replay: int | None = None,
    forget: int | None = None,
    codec: str | None = None,
    result: bytes | None = None,
    error: bytes | None = None,
    relaxed: bool = False,
) -> Write:
    """The row that follows `found`. Identity, fingerprint, fence and attempt stay; so does the token, unless given."""
    (id, kind, scope, key, operation, family, _, guarantee, _, fingerprint, _, own, fence, attempt, first_at) = found[
        :15
    ]
    # Who ran it matters only while it runs, and while its outcome is unknown.
    holder = found.holder if state in (_CLAIMED, _IN_DOUBT) else None
    # fmt: off
    write: Write = new_tuple(Write, (
        id, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version,
        own if token is None else token, fence, attempt, first_at, NOW if state == _SETTLED else found.settled_at, None,
        replay, forget, codec, result, error, False, relaxed, holder,
    ))
    # fmt: on
    return write


def belongs_to_another(found: Record | None, token: bytes) -> bool:
    """Whether the stored record belongs to somebody other than the holder of `token`."""
    return found is None or found.token != token


def came_after_claim(found: Record, held: Record) -> bool:
    """
    Whether another caller's record came after this claim: it claimed the key over it, or somebody reconciled it.

    If not, the other caller found no record, because the store had lost the claim.
    """
    return found.attempt > held.attempt or found.fence == held.fence


def still_holds(found: Record | None, token: bytes) -> bool:
    """Whether the stored record is the claim with this `token`, and has not ended."""
    return found is not None and found.token == token and found.state == State.CLAIMED


def is_claimed(found: Record) -> bool:
    """Whether the stored record is a claim, live or lapsed."""
    return found.state == State.CLAIMED


def is_settled(found: Record | None) -> bool:
    """Whether it is stored that it happened."""
    return found is not None and found.state == State.SETTLED


def is_released(found: Record) -> bool:
    """Whether it is proved that nothing happened."""
    return found.state == State.RELEASED


def same_ending(found: Record, write: Write) -> bool:
    """Whether `found` was settled with the same result as `write`: then there is nothing left to do."""
    return found.state == State.SETTLED and (found.codec, found.result, found.error) == (
        write.codec,
        write.result,
        write.error,
    )
