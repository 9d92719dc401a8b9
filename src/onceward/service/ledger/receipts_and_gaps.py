"""
Receipts of deltas and periods, and gaps among the numbers of a customer's deltas.
"""

from __future__ import annotations

from typing import NamedTuple

from onceward.protocol.errors import NothingToReceipt, VerificationPending
from onceward.service.ledger.checkpoints import find_checkpoint
from onceward.service.ledger.hash_chain import LedgerCheckpoint, LedgerEntry, receipt_id
from onceward.service.ledger.ledger_entries import find_by_reference, find_customer
from onceward.service.ledger.verification import QUEUED, VERIFIED
from onceward.stores.tables import Sql, SqlSteps

GAPS_MAX = 1_000

_GAPS = """SELECT seq + 1, after - 1 FROM (
        SELECT seq, lead(seq) OVER (ORDER BY seq) AS after FROM onceward_ledger_entries
        WHERE scope = :scope AND customer = :customer) AS numbers
    WHERE after > seq + 1 ORDER BY seq LIMIT :limit"""
_ENDS = """SELECT min(seq), max(seq) FROM onceward_ledger_entries WHERE scope = :scope AND customer = :customer"""


class LedgerReceipt(NamedTuple):
    """For a delta, or for a closed period."""

    id: str
    entry: LedgerEntry | None = None
    checkpoint: LedgerCheckpoint | None = None


class LedgerGaps(NamedTuple):
    """Numbers that a customer's entries should have and do not."""

    last_seq: int
    gaps: list[tuple[int, int]]


def receipt_of_reference(scope: str, customer: str, reference: str) -> SqlSteps[LedgerReceipt]:
    """The receipt of a verified delta."""
    entry = yield from find_by_reference(scope, reference)
    if entry is None or entry.customer != customer:
        raise NothingToReceipt("this customer has no delta with this referenceId")
    if entry.status == QUEUED:
        raise VerificationPending("this delta is not verified yet; retry in a second", retry_after_seconds=1.0)
    if entry.status != VERIFIED:
        raise NothingToReceipt("this delta failed its verification and never counted, so there is no receipt for it")
    return LedgerReceipt(receipt_id(entry.hash), entry=entry)


def receipt_of_period(scope: str, customer: str, period: str) -> SqlSteps[LedgerReceipt]:
    """The receipt of a closed period."""
    checkpoint = yield from find_checkpoint(scope, customer, period)
    if checkpoint is None:
        raise NothingToReceipt("this customer has no checkpoint of this period; close it first")
    return LedgerReceipt(receipt_id(checkpoint.hash), checkpoint=checkpoint)


def find_gaps(scope: str, customer: str) -> SqlSteps[LedgerGaps]:
    """What is missing between a customer's first number and its last. Nothing, unless rows were removed."""
    seen = yield from find_customer(scope, customer)
    values = {"scope": scope, "customer": customer}
    [(first, last)] = yield Sql(_ENDS, values)
    if first is None:
        return LedgerGaps(seen.seq, [(1, seen.seq)] if seen.seq else [])
    found = [(int(start), int(end)) for start, end in (yield Sql(_GAPS, {**values, "limit": GAPS_MAX}))]
    if first > 1:
        found.insert(0, (1, first - 1))
    if last < seen.seq:
        found.append((last + 1, seen.seq))
    return LedgerGaps(seen.seq, found)
