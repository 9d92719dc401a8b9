"""
Rows as what goes over the wire.
"""

from __future__ import annotations

import json
from typing import Any

from onceward._core.operation import instant
from onceward.service.ledger import wire
from onceward.service.ledger.amounts import spelled
from onceward.service.ledger.booking import Booked
from onceward.service.ledger.checkpoints import Closed, Derived, Mark
from onceward.service.ledger.looking import Gaps, Receipt
from onceward.service.ledger.sealing import Checkpoint, Entry


def delta(entry: Entry, *, duplicate: bool = False) -> wire.DeltaShown:
    """A delta. Its reference is shown without its environment, as it is sent."""
    return wire.DeltaShown(
        id=entry.id,
        customer_id=entry.customer,
        seq=entry.seq,
        delta=spelled(entry.amount),
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


def booked(made: Booked) -> wire.DeltaShown:
    """What a delta came to."""
    return delta(made.entry, duplicate=made.duplicate)


def batch(items: list[wire.ItemShown]) -> wire.BatchShown:
    """What a batch came to."""
    return wire.BatchShown(
        results=items,
        booked=sum(item.booked for item in items),
        duplicates=sum(item.delta is not None and item.delta.duplicate for item in items),
        refused=sum(item.code is not None for item in items),
    )


def checkpoint(made: Checkpoint, *, duplicate: bool = False, refuses: str | None = None) -> wire.CheckpointShown:
    """A closed period."""
    return wire.CheckpointShown(
        id=made.id,
        customer_id=made.customer,
        period=made.period,
        closed=True,
        number=made.number,
        seq=None,
        balance=spelled(int(made.balance)),
        deltas=made.deltas,
        root=made.root,
        previous=made.previous,
        hash=made.hash,
        closed_at=when(made.closed_at),
        refuses=refuses,
        duplicate=duplicate,
    )


def checkpointed(made: Closed | Mark) -> wire.CheckpointShown:
    """What closing or marking came to."""
    if isinstance(made, Closed):
        return checkpoint(made.checkpoint, duplicate=made.duplicate, refuses=made.refuses)
    return wire.CheckpointShown(
        id=made.id,
        customer_id=made.customer,
        period=made.period,
        closed=False,
        number=None,
        seq=made.seq,
        balance=spelled(made.balance),
        deltas=made.deltas,
        root=made.root,
        previous=made.previous,
        hash=made.hash,
        closed_at=None,
    )


def balance(customer: str, derived: Derived, period: str | None) -> wire.BalanceShown:
    """A derived balance."""
    start = derived.checkpoint
    return wire.BalanceShown(
        customer_id=customer,
        balance=spelled(derived.billionths),
        checkpoint=None if start is None else wire.StartedFrom(start.id, start.period, spelled(int(start.balance))),
        deltas=derived.verified,
        queued=derived.queued,
        period=period,
    )


def receipt(customer: str, found: Receipt) -> wire.ReceiptShown:
    """A receipt."""
    return wire.ReceiptShown(
        id=found.id,
        customer_id=customer,
        delta=None if found.entry is None else delta(found.entry),
        checkpoint=None if found.checkpoint is None else checkpoint(found.checkpoint),
    )


def gaps(customer: str, found: Gaps) -> wire.GapsShown:
    """What is missing."""
    return wire.GapsShown(customer, found.last_seq, [wire.GapShown(*gap) for gap in found.gaps])


def when(micros: int) -> str:
    """An instant."""
    return instant(micros).isoformat()


def document(text: str) -> Any:
    """A stored answer, as a document."""
    return json.loads(text)
