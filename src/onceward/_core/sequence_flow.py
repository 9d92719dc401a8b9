"""
Numbered operations: 1, 2, 3, each once, in order.

A sequence is a *mark* (one record that holds the next number) and one entry per number. The mark is moved after the
entry has settled; if the process dies in between, the next call finds the entry settled and moves the mark itself.
So the mark may lag behind, and is never ahead.
"""

from __future__ import annotations

from typing import Any

from onceward._core import advice, record
from onceward._core.codec import Encoded, decode, encode
from onceward._core.errors import OutOfOrder, SequenceForgotten, StoreContended
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.finish_flow import CLAIM_SPINS_MAX, outcome_of
from onceward._core.flow import RANDOM_BYTES, Flow, Load, Put
from onceward._core.keys import record_id
from onceward._core.operation import Outcome
from onceward._core.operation_flow import OperationRequest, operate
from onceward._core.record import Claimant, Guarantee, Record, State

MARK = "sequence"
ENTRY = "sequence-entry"

NUMBER_MAX = 2**53
"""Beyond it a JSON number would not be exact; at a million a second it lasts 285 years."""


def operate_in_sequence(request: OperationRequest, name: str, number: int) -> Flow[Outcome[Any]]:
    """Run number `number` of a sequence if it is the next; replay it if it has been; else `OutOfOrder`."""
    scope = request.claimant.scope
    expected = yield from _expected(request, scope, name)
    if number > expected:
        raise OutOfOrder(expected, number)
    if number < expected:
        found = None
        if number >= 1:
            found = yield Load("entry.load", entry_id(scope, name, number))
        if found is None or not record.is_settled(found) or _gone(found):
            raise SequenceForgotten(
                f"number {number} ran before ({expected} is next), and its result is no longer stored. It will not "
                "run again"
                if number >= 1
                else f"there is no number {number}: a sequence begins with 1"
            )
        _refuse_other(found, request)
        return outcome_of(found, request.restore)
    outcome = yield from operate(request)
    entry: Record | None = yield Load("entry.load", request.claimant.id)
    if _is_done(entry):
        yield from _advance(request, scope, name, number + 1)
    return outcome


def entry_id(scope: str, name: str, number: int) -> bytes:
    """The id of one entry."""
    return record_id(ENTRY, scope, name, str(number))


def _expected(request: OperationRequest, scope: str, name: str) -> Flow[int]:
    """The next number: what the mark says, moved past entries that settled without moving it."""
    mark = yield Load("mark.load", record_id(MARK, scope, name))
    expected = marked = _next_of(mark)
    while True:
        entry = yield Load("entry.load", entry_id(scope, name, expected))
        if not _is_done(entry):
            break
        expected += 1
    if expected > marked:
        yield from _advance(request, scope, name, expected)
    return expected


def _advance(request: OperationRequest, scope: str, name: str, upcoming: int) -> Flow[None]:
    """Move the mark to `upcoming`, never back."""
    chance = yield RANDOM_BYTES
    identity = record_id(MARK, scope, name)
    claimant = Claimant(
        id=identity,
        kind=MARK,
        scope=scope,
        key=name,
        operation=request.claimant.operation,
        family=None,
        guarantee=Guarantee.REPEATABLE.value,
        fingerprint=fingerprint_canonical(name),
        lease=request.claimant.lease,
        keyed_for=request.claimant.keyed_for,
        can_probe=False,
    )
    kept = encode(upcoming)
    mark = yield Load("mark.load", identity)
    for _ in range(CLAIM_SPINS_MAX):
        if _next_of(mark) >= upcoming:
            return
        claim = record.claim(claimant, record.Start(mark), token=chance[:16], version=chance[16:32])
        write = claim._replace(
            state=State.SETTLED.value,
            first_at=record.NOW if mark is None else mark.first_at,
            settled_at=record.NOW,
            lease=None,
            codec=kept.codec,
            result=kept.data,
        )
        put = yield Put("mark", write, None if mark is None else mark.version)
        if put.landed:
            return
        mark = put.record
    raise StoreContended


def _next_of(mark: Record | None) -> int:
    if mark is None:
        return 1
    value = decode(Encoded(mark.codec, mark.result))
    if not isinstance(value, int):
        raise SequenceForgotten("the counter of this sequence cannot be read: look at its record")
    return value


def _is_done(entry: Record | None) -> bool:
    """Whether an entry ran to its end. A failure, remembered or not, does not advance a sequence."""
    return entry is not None and record.is_settled(entry) and entry.error is None


def _gone(found: Record) -> bool:
    return found.codec is None or (found.replay_left is not None and found.replay_left <= 0)


def _refuse_other(found: Record, request: OperationRequest) -> None:
    decision = record.decide(found, request.claimant)
    if isinstance(decision, record.Refuse):
        raise advice.refusal(decision.why, decision.record)
