"""
The messages of errors about an operation: what happened, what to do, and the exact command that resolves it.

Keys appear as short digests only. Commands accept the digest, so that it can be pasted from a log.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

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
    SealBroken,
    SealKeyMissing,
)
from onceward._core.holders import holder_of
from onceward._core.keys import bare_key, digest_of
from onceward._core.operation import to_datetime
from onceward._core.record import Claimant, Guarantee, Record, Refusal, Wait, is_claimed, is_settled

E = TypeVar("E", bound=OncewardError)


def about(error: E, found: Record) -> E:
    """The error, with the record's operation as attributes."""
    return error.about(
        key=bare_key(found.scope, found.key),
        digest=digest_of(found.id),
        fence=found.fence,
        operation=found.operation,
        first_at=to_datetime(found.first_at),
    )


def about_claimant(error: E, claimant: Claimant) -> E:
    """The error, with the requested operation as attributes, where its record was not read."""
    key = bare_key(claimant.scope, claimant.key)
    return error.about(key=key, digest=digest_of(claimant.id), operation=claimant.operation)


def refusal(why: Refusal, found: Record) -> OncewardError:
    """The error for an operation that `record.decide` refused."""
    return about(_refusal(why, found), found)


def _refusal(why: Refusal, found: Record) -> OncewardError:
    match why:
        case Refusal.REUSED:
            return KeyReused(
                f"{_name(found)} was already used for a different request, at {_first(found)}. "
                "Retry with the same request, or use a new key for a new one"
            )
        case Refusal.EXPIRED:
            return Expired(
                f"{_name(found)} ran at {_settled(found)}, and its stored result has expired. "
                "It will not run again under this key; if you mean to run it again, use a new key"
            )
        case Refusal.NOT_REPLAYABLE:
            return NotReplayable(
                f"{_name(found)} ran at {_settled(found)}, but its result could not be stored (too large, or not "
                "serialisable). It will not run again under this key; look up the result in the system it changed"
            )
        case Refusal.IN_DOUBT:
            return in_doubt(found)


def in_doubt(found: Record, because: str = "") -> InDoubt:
    """The error for an operation that may have happened, and must not run until someone decides."""
    return about(
        InDoubt(
            f"{_name(found)} may have happened: attempt {found.attempt} began at {_first(found)}, and "
            f"{because or _what_happened(found)}.\n{_ways_out(found)}"
        ),
        found,
    )


def doubt_note(found: Record) -> str:
    """The note on an exception that left a record in doubt."""
    if found.guarantee == Guarantee.KEYED:
        return (
            f"onceward: {_name(found)} may have happened. Retry with the same key: it is sent again with the same "
            "downstream key, so the other side recognises it"
        )
    if found.guarantee == Guarantee.PROBED:
        return f"onceward: {_name(found)} may have happened. Retry with the same key: the probe runs first"
    return f"onceward: {_name(found)} may have happened, and is now in doubt.\n{_ways_out(found)}"


class DecideCommands(NamedTuple):
    """What to type about a record in doubt, once it is known whether its effect happened."""

    happened: str
    did_not_happen: str


def decide_commands(found: Record) -> DecideCommands:
    """The commands that decide a record, without the store. The fence keeps them from deciding a later attempt."""
    start = f"onceward records reconcile {digest_of(found.id)} --fence {found.fence}"
    return DecideCommands(f"{start} --happened 'RESULT AS JSON'", f"{start} --did-not-happen")


def _ways_out(found: Record) -> str:
    call = _CALLS.get(found.kind)
    happened = f"\n                      or {call}, Found(result), fence={found.fence})" if call else ""
    did_not = f"\n                      or {call}, NOT_FOUND, fence={found.fence})" if call else ""
    commands = decide_commands(found)
    return (
        "  Check whether the effect took place. Then:\n"
        f"  if it happened:     {commands.happened}{happened}\n"
        f"  if it did not:      {commands.did_not_happen}{did_not}\n"
        "  (pass the store as --store URL, or in ONCEWARD_STORE)"
    )


_CALLS = {
    "key": "gate.reconcile(key",
    "step": "plan.reconcile(step",
    "sequence-entry": "sequence.reconcile(number",
}
"""The Python call that reconciles a record, by its kind."""


def _what_happened(found: Record) -> str:
    if is_claimed(found):
        return "its lease ran out before it ended (its process died, was stopped, or lost the store)"
    if found.error is None:
        process = holder_of(found)
        return "it ended without a known outcome" + (f" ({_one_line(str(process))})" if process is not None else "")
    try:
        failure = decode_failure(found.error)
    except (ResultInvalid, SealBroken, SealKeyMissing):
        return "it ended without a known outcome"
    return f"it raised {_one_line(failure.type)}: {_one_line(failure.message)}"


def in_flight(wait: Wait) -> str:
    """The message of `InFlight`: another caller is running it."""
    found, process = wait.record, holder_of(wait.record)
    left = format_micros(max(wait.lease_left, 0) // 1_000_000 * 1_000_000)
    who = "another caller" if process is None else f"another caller, {_one_line(str(process))}"
    if wait.alive is False:
        return (
            f"{_name(found)} was being run by {who}, which has died. Retry with the same key in {left}, after its lease"
        )
    return f"{_name(found)} is being run by {who}. Retry with the same key (its lease ends in {left})"


def overtaken(held: Record, winner: Record | None) -> str:
    """The message of `OwnershipLost`: this run ended too late."""
    result = (
        "The other caller's result is in .outcome"
        if is_settled(winner)
        else "Retry with the same key to get the result"
    )
    return f"{_name(held)} took longer than its lease, and another caller took over. {result}; this run stored nothing"


def forgotten(held: Record, found: Record | None, *, erased: bool = False) -> str:
    """The message of `StoreForgot`: the store lost a claim, and the result could not be stored again."""
    happened = f"{_name(held)} ran (attempt {held.attempt}), but the store lost its claim"
    if found is not None and is_claimed(found):
        return f"{happened}, and another caller has started it since: it may happen twice. {_CHECK}"
    if found is not None and not is_settled(found):
        return f"{happened}. Another caller may have run it meanwhile, so it is in doubt.\n{_ways_out(found)}"
    if found is not None:
        return f"{happened}, and another caller has run it since: it may have happened twice. {_CHECK}"
    lost = ", or it was erased" if erased else ", and its lease is over"
    return f"{happened}{lost}; the result was not stored. {_CHECK} before you send it again"


_CHECK = "Check whether the effect took place"


def forgotten_before(held: Record) -> str:
    """The store lost a claim before the function was called."""
    return f"the store lost the claim of {_name(held)}, so nothing was run. Retry with the same key"


def forgotten_inside(held: Record) -> str:
    """The store lost a claim that the function was about to settle in its own transaction."""
    return (
        f"the store lost the claim of {_name(held)}, so nothing was settled. Do not catch this error: your transaction "
        "is then rolled back. After that, retry with the same key"
    )


def lost(held: Record, winner: Record | None, outcome: Any) -> OwnershipLost:
    """The error for a run that ended after another caller took over."""
    return about(OwnershipLost(overtaken(held, winner), outcome=outcome), held)


def budget_exhausted(found: Record) -> str:
    """The message of `BudgetExhausted`: this would be a retry, and the budget has no token for it."""
    return (
        f"{_name(found)} was not retried, because the retry budget is used up. Retry later with the same key; nothing "
        "was claimed or called now"
    )


def already_settled(found: Record) -> str:
    """The message of `AlreadySettled`."""
    return f"{_name(found)} was settled at {_settled(found)} with a different result; the first result stands"


def unrecorded(held: Record, error: OncewardError) -> str:
    """The message of `Unrecorded`: it ran, and the store did not take the result."""
    return (
        f"{_name(held)} ran, but its result could not be stored. Do not run it again: the result is in .value. "
        f"The store said: {error}. When the store is back, store the result:\n"
        f"  onceward records reconcile {digest_of(held.id)} --happened 'RESULT AS JSON'"
    )


NEVER_SETTLED = (
    "the function returned without settling in its transaction, so nobody knows whether its rows were committed. Call "
    "operation.settle_inside(connection, value) in that transaction, and not in a savepoint that is rolled back"
)
"""The failure that is stored for an operation with settle="inside" that never settled."""


def no_transaction(held: Record) -> str:
    """The message for `settle_inside` on a connection without a transaction."""
    return (
        f"{_name(held)} cannot be settled on a connection with no transaction open: the record would not commit with "
        "your rows. Settle in the transaction that writes them, after the rows and before the commit"
    )


def not_settled(held: Record) -> str:
    """The message of `NotSettled`: the transaction was rolled back."""
    return (
        f"{_name(held)} was settled in a transaction that was rolled back or never committed, so nothing happened. "
        "Commit before the function returns (or raise), then retry with the same key"
    )


def still_open(held: Record) -> str:
    """The message of `NotSettled`: the transaction may still be open."""
    return (
        f"{_name(held)} was settled in a transaction that still seems to be open. Commit it before the "
        "function returns. Retry with the same key: if it was committed you get its result, otherwise it runs again"
    )


def unseen(held: Record) -> str:
    """The message when the store cannot say whether the function's transaction was committed."""
    return (
        f"onceward: {_name(held)} ran, but the store cannot be asked whether its transaction was committed. Retry with "
        "the same key: if it was, you get its result; otherwise it runs again once its lease is over"
    )


def settled_note(found: Record) -> str:
    """The note on what a function raised after its settle was committed."""
    return (
        f"onceward: {_name(found)} is settled, because its transaction was committed before this error. A retry with "
        "the same key gets the stored result"
    )


def _name(found: Record) -> str:
    return f"{_one_line(found.operation) or 'operation'} {digest_of(found.id)} in {found.scope}"


def _one_line(text: str) -> str:
    """Stored text for an error or a log. What is not printable is escaped, so that it cannot fake lines or colours."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def _first(found: Record) -> str:
    return to_datetime(found.first_at).isoformat(timespec="seconds")


def _settled(found: Record) -> str:
    return to_datetime(found.settled_at or found.first_at).isoformat(timespec="seconds")
