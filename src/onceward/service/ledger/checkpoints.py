"""
Closing a period, marking one that still runs, and deriving a balance from the last period that was closed.

A checkpoint is made once for a customer and a period, whatever key asks for it. It also closes the periods before it.
Closed periods take no more entries, so what a checkpoint says stays true, and a derivation starts from it.

A mark says what the entries of a running period come to so far, and closes nothing. It is derived and not stored: the
number of its last entry is in it, entries do not change, so anybody can derive it again and compare.
"""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

from onceward._core.errors import RequestInvalid
from onceward.protocol.amounts import BILLION
from onceward.protocol.errors import PeriodClosed, VerificationPending
from onceward.service.ledger.hash_chain import (
    CHECKPOINT_COLUMNS,
    LedgerCheckpoint,
    chain_seals,
    checkpoint_hash,
    checkpoint_id,
    genesis,
    mark_hash,
    mark_id,
)
from onceward.service.ledger.ledger_entries import (
    LedgerTerms,
    closed_period_text,
    find_customer,
    lock_customer,
)
from onceward.service.ledger.periods import period_at
from onceward.service.ledger.verification import QUEUED, VERIFIED
from onceward.stores.tables import Sql, SqlSteps, one_or_none

PAGE = 10_000
"""Seals that are held in memory at once."""
PENDING_SECONDS = 1.0

_COLUMNS = f"SELECT {CHECKPOINT_COLUMNS} FROM onceward_ledger_checkpoints WHERE scope = :scope AND customer = :customer"  # noqa: S608
_OF_PERIOD = f"{_COLUMNS} AND period = :period"
_LAST = f"{_COLUMNS} AND period <= :period ORDER BY period DESC LIMIT 1"
_VALUES = ", ".join(f":{name}" for name in LedgerCheckpoint._fields)
_ADD = f"INSERT INTO onceward_ledger_checkpoints ({CHECKPOINT_COLUMNS}) VALUES ({_VALUES})"  # noqa: S608
_CLOSE = "UPDATE onceward_ledger_customers SET closed = :period WHERE scope = :scope AND customer = :customer"
# Units and billionths apart: the sum of many billionths may be longer than a bigint, that of units is not.
_SUM = f"""SELECT status, count(*), sum(amount / {BILLION}), sum(amount - (amount / {BILLION}) * {BILLION})
    FROM onceward_ledger_entries
    WHERE scope = :scope AND customer = :customer AND period > :after AND period <= :period GROUP BY status"""  # noqa: S608
_SEALS = """SELECT seq, seal FROM onceward_ledger_entries
    WHERE scope = :scope AND customer = :customer AND seq > :seq AND period > :after AND period <= :period
    ORDER BY seq LIMIT :limit"""
_JUDGED = """SELECT seq, seal, status, amount FROM onceward_ledger_entries
    WHERE scope = :scope AND customer = :customer AND seq > :seq AND period > :after AND period <= :period
    ORDER BY seq LIMIT :limit"""
FOR_EVER = "9999-12"


class EntrySums(NamedTuple):
    """What the entries of some periods come to."""

    billionths: int
    verified: int
    queued: int


class DerivedBalance(NamedTuple):
    """A balance, and what it was derived from."""

    billionths: int
    checkpoint: LedgerCheckpoint | None
    verified: int
    queued: int


class CloseResult(NamedTuple):
    """What closing a period came to."""

    checkpoint: LedgerCheckpoint
    duplicate: bool = False
    refuses: str | None = None
    """What it refuses from now on, if it was closed before its end."""


class PeriodMark(NamedTuple):
    """What the entries of a period come to so far."""

    id: str
    customer: str
    period: str
    seq: int
    """The last entry that it covers."""
    balance: int
    deltas: int
    root: str
    previous: str
    hash: str


def checkpoint(scope: str, customer: str, period: str, close_now: bool | None) -> SqlSteps[CloseResult | PeriodMark]:
    """
    Close a period that is over, mark one that runs. `close_now` says which, whatever the calendar says: True closes
    also a period that still runs, False only marks.
    """
    seen = yield from find_customer(scope, customer)
    current = period_at(seen.now)
    if period > current:
        raise RequestInvalid(f"the period {period} has not begun; send one up to {current}")
    if close_now is False or (close_now is None and period == current and period > seen.closed):
        return (yield from mark(scope, customer, period))
    return (yield from close(scope, customer, period))


def mark(scope: str, customer: str, period: str) -> SqlSteps[PeriodMark]:
    """
    What the entries of a period come to so far. One that waits for its verification ends the mark before it: what is
    behind it may still come to something else.
    """
    before = yield from _last(scope, customer, period)
    previous = "" if before is None else before.hash
    after = "" if before is None else before.period
    values = {"scope": scope, "customer": customer, "after": after, "period": period, "limit": PAGE}
    root, seq, deltas, waits = "", 0, 0, False
    balance = 0 if before is None else int(before.balance)
    while not waits:
        page = yield Sql(_JUDGED, {**values, "seq": seq})
        judged = list(takewhile(lambda row: row[2] != QUEUED, page))
        root = chain_seals(root, [seal for _, seal, _, _ in judged])
        balance += sum(amount for _, _, status, amount in judged if status == VERIFIED)
        deltas += sum(status == VERIFIED for _, _, status, _ in judged)
        seq = judged[-1][0] if judged else seq
        waits = len(judged) < PAGE
    hash = mark_hash(scope, customer, period, seq, str(balance), root, previous)
    return PeriodMark(
        id=mark_id(hash),
        customer=customer,
        period=period,
        seq=seq,
        balance=balance,
        deltas=deltas,
        root=root,
        previous=previous,
        hash=hash,
    )


def close(scope: str, customer: str, period: str) -> SqlSteps[CloseResult]:
    """Close a period; or find the checkpoint that closed it."""
    # A customer that nobody has emitted for has nothing to close: `known` refuses to make it.
    held = yield from lock_customer(scope, customer, LedgerTerms(customers="known"))
    values = {"scope": scope, "customer": customer}
    found = one_or_none((yield Sql(_OF_PERIOD, {**values, "period": period})))
    refuses = closed_period_text(period) if period == period_at(held.now) else None
    if found is not None:
        return CloseResult(LedgerCheckpoint(*found), duplicate=True, refuses=refuses)
    if period <= held.closed:
        raise PeriodClosed(f"the period {period} was closed together with a later one, up to {held.closed}")
    sums = yield from _summed(scope, customer, held.closed, period)
    if sums.queued:
        raise VerificationPending(
            f"{sums.queued} deltas of this period have not been verified yet; the period stays open",
            retry_after_seconds=PENDING_SECONDS,
        )
    before = yield from _last(scope, customer, period)
    root = yield from _rooted(scope, customer, held.closed, period)
    made = LedgerCheckpoint(
        id="",
        scope=scope,
        customer=customer,
        number=1 if before is None else before.number + 1,
        period=period,
        balance=str(sums.billionths + (0 if before is None else int(before.balance))),
        deltas=sums.verified,
        root=root,
        closed_at=held.now,
        previous=genesis(scope, customer, held.created_at) if before is None else before.hash,
        hash="",
    )
    hash = checkpoint_hash(made)
    made = made._replace(id=checkpoint_id(hash), hash=hash)
    yield Sql(_ADD, made._asdict())
    yield Sql(_CLOSE, {**values, "period": period})
    return CloseResult(made, refuses=refuses)


def derive(scope: str, customer: str, period: str | None) -> SqlSteps[DerivedBalance]:
    """A balance: the last checkpoint's, and the verified entries since."""
    yield from find_customer(scope, customer)
    until = period or FOR_EVER
    before = yield from _last(scope, customer, until)
    sums = yield from _summed(scope, customer, "" if before is None else before.period, until)
    balance = sums.billionths + (0 if before is None else int(before.balance))
    return DerivedBalance(balance, before, sums.verified, sums.queued)


def find_checkpoint(scope: str, customer: str, period: str) -> SqlSteps[LedgerCheckpoint | None]:
    """The checkpoint of a period."""
    row = one_or_none((yield Sql(_OF_PERIOD, {"scope": scope, "customer": customer, "period": period})))
    return None if row is None else LedgerCheckpoint(*row)


def _last(scope: str, customer: str, period: str) -> SqlSteps[LedgerCheckpoint | None]:
    row = one_or_none((yield Sql(_LAST, {"scope": scope, "customer": customer, "period": period})))
    return None if row is None else LedgerCheckpoint(*row)


def _summed(scope: str, customer: str, after: str, period: str) -> SqlSteps[EntrySums]:
    rows = yield Sql(_SUM, {"scope": scope, "customer": customer, "after": after, "period": period})
    found = {status: (int(count), int(units) * BILLION + int(rest)) for status, count, units, rest in rows}
    verified, billionths = found.get("verified", (0, 0))
    return EntrySums(billionths, verified, found.get("queued", (0, 0))[0])


def _rooted(scope: str, customer: str, after: str, period: str) -> SqlSteps[str]:
    """The root over the seals of some periods, in the order of their numbers."""
    root, seq = "", 0
    values = {"scope": scope, "customer": customer, "after": after, "period": period, "limit": PAGE}
    while True:
        page = yield Sql(_SEALS, {**values, "seq": seq})
        root = chain_seals(root, [seal for _, seal in page])
        if len(page) < PAGE:
            return root
        seq = page[-1][0]
