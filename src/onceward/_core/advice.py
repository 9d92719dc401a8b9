"""
What refusals say: what happened, what to check, and the exact command and call that resolve it.

Keys appear as short digests only; a command takes the digest, so that it can be pasted from a log.
"""

from __future__ import annotations

from typing import Any, TypeVar

from onceward._core.codec import decode_failure
from onceward._core.durations import format_micros
from onceward._core.errors import (
    Expired,
    InDoubt,
    KeyReused,
    NotReplayable,
    OncewardError,
    OwnershipLost,
    ResultInvalid,
)
from onceward._core.holders import holder_of
from onceward._core.keys import bare_key, digest_of
from onceward._core.operation import to_datetime
from onceward._core.record import Claimant, Guarantee, Record, Refusal, Wait, is_claimed, is_settled

E = TypeVar("E", bound=OncewardError)


def about(error: E, found: Record) -> E:
    """The error, and as data which operation it is about."""
    return error.about(
        key=bare_key(found.scope, found.key),
        digest=digest_of(found.id),
        fence=found.fence,
        operation=found.operation,
        first_at=to_datetime(found.first_at),
    )


def about_claimant(error: E, claimant: Claimant) -> E:
    """The error, and as data for which operation somebody asked: its record was not seen."""
    key = bare_key(claimant.scope, claimant.key)
    return error.about(key=key, digest=digest_of(claimant.id), operation=claimant.operation)


def refusal(why: Refusal, found: Record) -> OncewardError:
    """The error for a refusal."""
    return about(_refusal(why, found), found)


def _refusal(why: Refusal, found: Record) -> OncewardError:
    match why:
        case Refusal.REUSED:
            return KeyReused(
                f"{_name(found)} was first used for a different request (at {_first(found)}). "
                "A retry must send the same request; a different request needs a new key"
            )
        case Refusal.EXPIRED:
            return Expired(
                f"{_name(found)} ran at {_settled(found)}; its answer was kept for its retention and is gone. "
                "It will not run again under this key; if it should, use a new key"
            )
        case Refusal.NOT_REPLAYABLE:
            return NotReplayable(
                f"{_name(found)} ran at {_settled(found)}, and its answer could not be kept (too large, or not "
                "serialisable). It will not run again under this key; look up its effect where it took place"
            )
        case Refusal.IN_DOUBT:
            return in_doubt(found)


def in_doubt(found: Record, because: str = "") -> InDoubt:
    """The error for a record that nobody may run until someone decides."""
    return about(
        InDoubt(
            f"{_name(found)} may have happened: attempt {found.attempt} began at {_first(found)} and "
            f"{because or _what_happened(found)}.\n{_ways_out(found)}"
        ),
        found,
    )


def doubt_note(found: Record) -> str:
    """The note on an exception that left a record in doubt."""
    if found.guarantee == Guarantee.KEYED:
        return (
            f"onceward: {_name(found)} may have happened. Retry with the same key: it is sent again under the same "
            "downstream key, and the other side recognises it"
        )
    if found.guarantee == Guarantee.PROBED:
        return f"onceward: {_name(found)} may have happened. Retry with the same key: the probe is asked first"
    return f"onceward: {_name(found)} is now in doubt: it may have happened.\n{_ways_out(found)}"


def _ways_out(found: Record) -> str:
    digest, call = digest_of(found.id), _CALLS.get(found.kind)
    happened = f"\n                      or {call}, Found(result), fence={found.fence})" if call else ""
    did_not = f"\n                      or {call}, NOT_FOUND, fence={found.fence})" if call else ""
    command = f"onceward records reconcile {digest} --fence {found.fence}"
    return (
        "  check, where the effect takes place, whether it did. Then\n"
        f"  if it happened:     {command} --happened 'RESULT AS JSON'{happened}\n"
        f"  if it did not:      {command} --did-not-happen{did_not}\n"
        "  (the command finds this store by --store URL or ONCEWARD_STORE)"
    )


_CALLS = {
    "key": "gate.reconcile(key",
    "step": "plan.reconcile(step",
    "sequence-entry": "sequence.reconcile(number",
}
"""What decides a record from Python, by its kind."""


def _what_happened(found: Record) -> str:
    if is_claimed(found):
        return "its holder's lease ran out (the process died, was stopped, or lost the store)"
    if found.error is None:
        process = holder_of(found)
        return "could not say what happened" + (f" ({_one_line(str(process))})" if process is not None else "")
    try:
        failure = decode_failure(found.error)
    except ResultInvalid:
        return "could not say what happened"
    return f"raised {_one_line(failure.type)}: {_one_line(failure.message)}"


def in_flight(wait: Wait) -> str:
    """Another holder has it."""
    found, process = wait.record, holder_of(wait.record)
    left = format_micros(max(wait.lease_left, 0) // 1_000_000 * 1_000_000)
    who = "another caller" if process is None else f"another caller, {_one_line(str(process))}"
    if wait.alive is False:
        return f"{_name(found)} was being run by {who}, which has died (its lease: {left}). Ask again when it has ended"
    return f"{_name(found)} is being run by {who} (its lease: {left}). Ask again with the same key"


def overtaken(held: Record, winner: Record | None) -> str:
    """The late finisher's news."""
    answer = (
        "the winner's answer is in .outcome"
        if is_settled(winner)
        else ("ask again with the same key to learn the answer")
    )
    return (
        f"{_name(held)}: this holder's lease ran out and another caller took over, so nothing of this run was "
        f"stored; {answer}"
    )


def forgotten(held: Record, found: Record | None, *, erased: bool = False) -> str:
    """The store lost a claim, and its ending could not be put back."""
    happened = f"{_name(held)} ran (attempt {held.attempt}), and meanwhile the store lost its claim"
    if found is not None and is_claimed(found):
        return f"{happened}; another caller has begun it since, so that it may happen twice. Look where it takes place"
    if found is not None and not is_settled(found):
        return f"{happened}, too long ago to know that nobody else had it: it is in doubt.\n{_ways_out(found)}"
    if found is not None:
        return f"{happened}; another caller has run it since: it may have happened twice. Look where it takes place"
    lost = ", or it was erased: nothing was stored" if erased else " too long ago to put anything back"
    return f"{happened}{lost}. Look where its effect takes place before it is sent again"


def forgotten_before(held: Record) -> str:
    """The store lost a claim before anything ran under it."""
    return f"the store lost the claim of {_name(held)} before anything was run; send the same key again"


def forgotten_inside(held: Record) -> str:
    """The store lost a claim while its function was about to settle it in its own transaction."""
    return (
        f"the store lost the claim of {_name(held)}, so nothing was settled: let this error through, and your rows are "
        "undone. Then nothing has happened, and the same key may be used again"
    )


def lost(held: Record, winner: Record | None, outcome: Any) -> OwnershipLost:
    """The error for it."""
    return about(OwnershipLost(overtaken(held, winner), outcome=outcome), held)


def budget_exhausted(found: Record) -> str:
    """A run after a failed one, and no token for it."""
    return (
        f"{_name(found)} has been tried before, and there have been too many retries for this much traffic: it was not "
        "claimed, and nothing was called. Later, the same key may be tried again"
    )


def already_settled(found: Record) -> str:
    """Settled before, otherwise."""
    return f"{_name(found)} was settled at {_settled(found)} with a different result; the first result stands"


def unrecorded(held: Record, error: OncewardError) -> str:
    """It ran, and the store stayed away."""
    return (
        f"{_name(held)} ran, and its result could not be recorded within its lease ({error}). "
        "The result is in .value; do not run it again. When the store is back, record it:\n"
        f"  onceward records reconcile {digest_of(held.id)} --happened 'RESULT AS JSON'"
    )


NEVER_SETTLED = (
    "the function returned without settling inside its transaction (operation.settle_inside(connection, value), in the "
    "transaction itself and not in a savepoint that was undone), so nobody knows whether its rows were committed"
)
"""Of an operation with settle="inside"."""


def no_transaction(held: Record) -> str:
    """Settled where there is no transaction."""
    return (
        f"{_name(held)} was to be settled on a connection with no transaction open, so its record would not commit "
        "with your rows. Settle in the transaction that writes them, after them and before its commit"
    )


def not_settled(held: Record) -> str:
    """Settled inside, and undone."""
    return (
        f"{_name(held)} was settled inside a transaction, and that was rolled back or never committed: nothing "
        "happened, and the same key may be used again. Commit the transaction before the function returns, or raise"
    )


def still_open(held: Record) -> str:
    """Settled inside, and nobody knows yet."""
    return (
        f"{_name(held)} was settled inside a transaction that seems to be open still: commit it before the function "
        "returns. Ask again with the same key: if it is committed the answer is there, otherwise it runs again"
    )


def unseen(held: Record) -> str:
    """Settled inside or not: the store cannot say."""
    return (
        f"onceward: {_name(held)} ran, and the store cannot be asked whether its transaction was committed. Ask again "
        "with the same key: if it was, the answer is there; otherwise it runs again when its lease has run out"
    )


def settled_note(found: Record) -> str:
    """The note on what a function raised after its settle was committed."""
    return (
        f"onceward: {_name(found)} is settled: the transaction in which it was settled is committed. A retry with the "
        "same key is given that answer"
    )


def _name(found: Record) -> str:
    return f"{_one_line(found.operation) or 'operation'} {digest_of(found.id)} in {found.scope}"


def _one_line(text: str) -> str:
    """Stored text for an error or a log: what is not printable is escaped, so that it cannot forge lines or colours."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def _first(found: Record) -> str:
    return to_datetime(found.first_at).isoformat(timespec="seconds")


def _settled(found: Record) -> str:
    return to_datetime(found.settled_at or found.first_at).isoformat(timespec="seconds")
