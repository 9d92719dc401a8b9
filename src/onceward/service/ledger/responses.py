"""
From rows of the ledger to its responses.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from onceward._core.operation import to_datetime
from onceward.protocol.amounts import format_amount
from onceward.service.ledger import wire
from onceward.service.ledger.checkpoints import CloseResult, DerivedBalance, PeriodMark
from onceward.service.ledger.hash_chain import LedgerCheckpoint, LedgerEntry
from onceward.service.ledger.ledger_entries import BookingResult
from onceward.service.ledger.receipts_and_gaps import LedgerGaps, LedgerReceipt


def delta(entry: LedgerEntry, *, duplicate: bool = False) -> wire.DeltaResponse:
    """A delta. Its reference is shown without its environment, as it is sent."""
    return wire.DeltaResponse(
        id=entry.id,
        customer_id=entry.customer,
        seq=entry.seq,
        delta=format_amount(entry.amount),
        reason=entry.reason,
        reference_id=None if entry.reference is None else entry.reference.partition(":")[2],
        metadata=None if entry.metadata is None else json.loads(entry.metadata),
        corrects=entry.corrects,
        period=entry.period,
        booked_at=when(entry.booked_at),
        status=entry.status,
        failure=entry.failure,
        hash=entry.hash,
        previous=entry.previous,
        duplicate=duplicate,
    )


def booked(made: BookingResult) -> wire.DeltaResponse:
    """What a delta came to."""
    return delta(made.entry, duplicate=made.duplicate)


def batch(items: list[wire.DeltaBatchItem]) -> wire.DeltaBatchResponse:
    """What a batch came to."""
    deltas = [item.delta for item in items if item.delta is not None]
    return wire.DeltaBatchResponse(
        results=items,
        booked=sum([item.booked for item in items]),
        duplicates=sum([one.duplicate for one in deltas]),
        refused=sum([item.code is not None for item in items]),
    )


def checkpoint(
    made: LedgerCheckpoint, *, duplicate: bool = False, refuses: str | None = None
) -> wire.CheckpointResponse:
    """A closed period."""
    return wire.CheckpointResponse(
        id=made.id,
        customer_id=made.customer,
        period=made.period,
        closed=True,
        number=made.number,
        seq=None,
        balance=format_amount(int(made.balance)),
        deltas=made.deltas,
        root=made.root,
        previous=made.previous,
        hash=made.hash,
        closed_at=when(made.closed_at),
        refuses=refuses,
        duplicate=duplicate,
    )


def checkpointed(made: CloseResult | PeriodMark) -> wire.CheckpointResponse:
    """What closing or marking came to."""
    if isinstance(made, CloseResult):
        return checkpoint(made.checkpoint, duplicate=made.duplicate, refuses=made.refuses)
    return wire.CheckpointResponse(
        id=made.id,
        customer_id=made.customer,
        period=made.period,
        closed=False,
        number=None,
        seq=made.seq,
        balance=format_amount(made.balance),
        deltas=made.deltas,
        root=made.root,
        previous=made.previous,
        hash=made.hash,
        closed_at=None,
    )


def balance(customer: str, derived: DerivedBalance, period: str | None) -> wire.BalanceResponse:
    """A derived balance."""
    start = derived.checkpoint
    return wire.BalanceResponse(
        customer_id=customer,
        balance=format_amount(derived.billionths),
        checkpoint=None
        if start is None
        else wire.StartingCheckpoint(start.id, start.period, format_amount(int(start.balance))),
        deltas=derived.verified,
        queued=derived.queued,
        period=period,
    )


def receipt(customer: str, found: LedgerReceipt) -> wire.ReceiptResponse:
    """A receipt."""
    return wire.ReceiptResponse(
        id=found.id,
        customer_id=customer,
        delta=None if found.entry is None else delta(found.entry),
        checkpoint=None if found.checkpoint is None else checkpoint(found.checkpoint),
    )


def gaps(customer: str, found: LedgerGaps) -> wire.GapsResponse:
    """What is missing."""
    return wire.GapsResponse(customer, found.last_seq, [wire.GapRange(*gap) for gap in found.gaps])


@lru_cache(maxsize=64)  # The entries of a batch are of one instant.
def when(micros: int) -> str:
    """An instant."""
    return to_datetime(micros).isoformat()


def document(text: str) -> Any:
    """A stored response, as a document."""
    return json.loads(text)
