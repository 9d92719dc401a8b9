"""
What a piece of work has spent: one record for each cap, changed by compare-and-swap like any other.

    spent      the sum of all calls that are over
    open       what is reserved for calls that are not: the call's record, its fence, its price

A price is reserved in the same write that finds it to fit, so that callers in any number of processes never pass the
cap together. A reservation belongs to a call's record: who runs the same call again, after a crash, finds it, and
reserves nothing. It is given back only by the claim that made it (its fence says so), once that is released; a call in
doubt keeps it. What a process left open when it died is found out from the calls' records when no room is left.

Amounts are whole billionths. Unlike a retry budget, money fails closed: a record that cannot be read is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from onceward._core.errors import StoreContended, StoreCorrupt
from onceward._core.finish_flow import has_landed
from onceward._core.flow import RANDOM_BYTES, Flow, Load, Put, Sleep
from onceward._core.keys import digest_of
from onceward._core.record import Record, is_released, is_settled, shown_state
from onceward._core.shared_state import SharedRecord, shared_write, value_of, version_of

SPEND = "spend"
"""The kind of these records."""

OPEN_MAX = 500
"""Calls that may be under way or in doubt under one cap: the record stays below 64 kB, and is read in a moment."""

SPINS_MAX = 300
"""Writers that get in between, with pauses from the fourth on: some seconds, and a hundred writers at once."""

PAUSE_SECONDS = 0.02
"""The longest of these pauses."""


class PriceReservation(NamedTuple):
    """What is reserved for one call."""

    record: bytes
    """The id of the call's record."""
    fence: int
    """Of the claim that runs it now."""
    amount: int


class SpendState(NamedTuple):
    """What stands in a cap's record."""

    spent: int
    open: Mapping[bytes, PriceReservation]

    @property
    def reserved(self) -> int:
        """The sum of what is open."""
        return sum(one.amount for one in self.open.values())


EMPTY = SpendState(0, {})


class NoRoom(NamedTuple):
    """Why a price was not reserved: the cap would be passed; or too many are open."""

    state: SpendState
    too_many: bool


class Cap(NamedTuple):
    """Which record, how much may be spent under it, and how long it is kept after its last change (microseconds)."""

    shared: SharedRecord
    limit: int
    keep: int


def reserve(cap: Cap, want: PriceReservation) -> Flow[SpendState | NoRoom]:
    """Reserve a price, if it fits under the cap, in one step; what stands there then, or why not."""
    tidied = False
    while True:
        refused: list[NoRoom] = []

        def reserved(seen: SpendState, refused: list[NoRoom] = refused) -> SpendState | None:
            refused.clear()
            mine = seen.open.get(want.record)
            if mine is not None:  # An earlier claim of this call has reserved it, and came to no end.
                kept = max(mine.fence, want.fence)
                return None if kept == mine.fence else _with(seen, mine._replace(fence=kept))
            if seen.spent + seen.reserved + want.amount > cap.limit or len(seen.open) >= OPEN_MAX:
                refused.append(NoRoom(seen, seen.spent + seen.reserved + want.amount <= cap.limit))
                return None
            return _with(seen, want)

        state = yield from _change(cap, reserved, relaxed=False)
        if not refused:
            return state
        if tidied:
            return refused[0]
        yield from tidy(cap, fold=refused[0].too_many)
        tidied = True


def settle(cap: Cap, held: PriceReservation, actual: int) -> Flow[SpendState]:
    """The call is over, and cost this much. Twice is the same as once; a claim that was overtaken changes nothing."""

    def settled(seen: SpendState) -> SpendState | None:
        return _folded(seen, held, actual) if _is_of(seen, held) else None

    return (yield from _change(cap, settled))


def give_back(cap: Cap, held: PriceReservation) -> Flow[SpendState]:
    """The call had no effect, and costs nothing."""

    def given_back(seen: SpendState) -> SpendState | None:
        return _folded(seen, held, 0) if _is_of(seen, held) else None

    return (yield from _change(cap, given_back))


def tidy(cap: Cap, *, fold: bool) -> Flow[SpendState]:
    """
    Find out what became of open calls from their own records: a released one gives its price back.

    With `fold`, those that are settled are added to what is spent, at the price that was reserved. Without it they
    stay: it makes no difference to the cap, and whoever made the call may be about to say what it really cost.
    """
    seen = spend_state_of((yield Load("spend.load", cap.shared.id)))
    ended: dict[PriceReservation, int] = {}
    for one in seen.open.values():
        found: Record | None = yield Load("spend.record", one.record)
        if found is not None and is_released(found) and shown_state(found) != "absent":
            ended[one] = 0
        elif fold and (found is None or is_settled(found)):  # One that is forgotten has happened, as far as we know.
            ended[one] = one.amount

    def tidied(seen: SpendState) -> SpendState | None:
        after = seen
        for one, amount in ended.items():
            if seen.open.get(one.record) == one:
                after = _folded(after, one, amount)
        return None if after is seen else after

    return (yield from _change(cap, tidied)) if ended else seen


def look(cap: Cap) -> Flow[SpendState]:
    """What is spent and reserved, with open calls that are known to be over counted as such. Changes nothing."""
    seen = spend_state_of((yield Load("spend.load", cap.shared.id)))
    for one in tuple(seen.open.values()):
        found: Record | None = yield Load("spend.record", one.record)
        if found is not None and (is_released(found) or is_settled(found)) and found.fence == one.fence:
            seen = _folded(seen, one, 0 if is_released(found) else one.amount)
    return seen


def spend_state_of(found: Record | None) -> SpendState:
    """What a cap's record says. Nothing is spent where there is none; one that cannot be read is an error."""
    if found is None or shown_state(found) == "absent":
        return EMPTY
    value, _ = value_of(found)
    try:
        opened = (PriceReservation(bytes.fromhex(id), int(fence), int(amount)) for id, fence, amount in value["open"])
        return SpendState(int(value["spent"]), {one.record: one for one in opened})
    except (TypeError, KeyError, ValueError) as error:
        raise StoreCorrupt(
            f"the record of what was spent ({digest_of(found.id)}) cannot be read, so nothing was started; look at it "
            f"with `onceward records show {digest_of(found.id)}`, and restore it from a backup"
        ) from error


def _change(cap: Cap, change: Callable[[SpendState], SpendState | None], *, relaxed: bool = True) -> Flow[SpendState]:
    """
    Change what stands there; None: it stays.

    Only a reservation has to survive a power cut. What is lost of the others leaves a price reserved, never forgotten.
    """
    found = yield Load("spend.load", cap.shared.id)
    for spin in range(SPINS_MAX):
        seen = spend_state_of(found)
        after = change(seen)
        if after is None:
            return seen
        chance: bytes = yield RANDOM_BYTES
        write = shared_write(cap.shared, _value(after), found, chance, forget=cap.keep, relaxed=relaxed)
        put = yield Put("spend", write, version_of(found))
        if has_landed(put, write):
            return after
        found = put.record
        if spin >= 3:
            yield Sleep(PAUSE_SECONDS * chance[47] / 255)
            found = yield Load("spend.load", cap.shared.id)
    raise StoreContended


def _with(seen: SpendState, one: PriceReservation) -> SpendState:
    return seen._replace(open={**seen.open, one.record: one})


def _folded(seen: SpendState, held: PriceReservation, actual: int) -> SpendState:
    left = {id: one for id, one in seen.open.items() if id != held.record}
    return SpendState(seen.spent + actual, left)


def _is_of(seen: SpendState, held: PriceReservation) -> bool:
    """Whether a reservation stands there and is this claim's. Otherwise a later claim of the call has taken it over."""
    mine = seen.open.get(held.record)
    return mine is not None and mine.fence == held.fence


def _value(state: SpendState) -> dict[str, Any]:
    opened = [[one.record.hex(), one.fence, str(one.amount)] for one in state.open.values()]
    return {"spent": str(state.spent), "open": opened}
