"""
Requests and responses of the ledger as msgspec structs. Amounts come as numbers or texts, and go out as texts.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from onceward._core.keys import KEY_CHARACTERS_MAX
from onceward.protocol.limits import BATCH_MAX, CUSTOMER_CHARACTERS_MAX, CUSTOMER_PATTERN, REASON_CHARACTERS_MAX

Amount = Annotated[
    Any,
    Meta(
        description="not zero, from -1,000,000,000 to 1,000,000,000, at most nine decimal places; never rounded",
        extra_json_schema={"type": ["number", "string"], "examples": [-1, "12.50"]},
    ),
]
Customer = Annotated[str, Meta(min_length=1, max_length=CUSTOMER_CHARACTERS_MAX, pattern=CUSTOMER_PATTERN)]
Reason = Annotated[str, Meta(min_length=1, max_length=REASON_CHARACTERS_MAX)]
Reference = Annotated[str, Meta(min_length=1, max_length=KEY_CHARACTERS_MAX)]
Period = Annotated[str, Meta(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])\Z", description="a month in UTC: 2026-11")]


class DeltaRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """One change of a customer's balance."""

    customer_id: Customer
    delta: Amount
    reason: Reason
    reference_id: Reference | None = None
    """Your own name for it: booked once, whatever the key. Without a key, it is the key."""
    metadata: dict[str, Any] | None = None
    """Kept beside it, at most 4096 bytes."""
    corrects: str | None = None
    """The id of the delta that this one corrects. That one stays as it is."""
    period: Period | None = None
    """The month it belongs to; without it, the current one."""


class DeltaBatchRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Up to 100 deltas: one transaction, one key."""

    deltas: Annotated[list[DeltaRequest], Meta(min_length=1, max_length=BATCH_MAX)]


class CheckpointRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Close a customer's period, or mark one that still runs."""

    customer_id: Customer
    period: Period
    close: bool | None = None
    """Left out: a period that is over is closed, one that still runs is marked. true: close it also before its end; it
    then refuses deltas until the next one begins. false: mark it, whatever the calendar says."""


class DeltaResponse(msgspec.Struct, rename="camel"):
    """A delta as it is booked."""

    id: str
    customer_id: str
    seq: int
    """Its number among the customer's deltas, from 1, without gaps."""
    delta: str
    reason: str
    reference_id: str | None
    metadata: dict[str, Any] | None
    corrects: str | None
    period: str
    booked_at: str
    status: str
    """verified; queued: it does not count yet; failed: it never will."""
    failure: str | None
    hash: str
    previous: str
    duplicate: bool = False
    """Whether the reference had been booked before: nothing was booked now."""


class DeltaBatchItem(msgspec.Struct, rename="camel"):
    """What one delta of a batch came to: a delta, or why there is none."""

    index: int
    booked: bool
    """False for a duplicate and for a refusal."""
    delta: DeltaResponse | None = None
    code: str | None = None
    detail: str | None = None


class DeltaBatchResponse(msgspec.Struct, rename="camel"):
    """What a batch came to, delta by delta."""

    results: list[DeltaBatchItem]
    booked: int
    duplicates: int
    refused: int


class CheckpointResponse(msgspec.Struct, rename="camel"):
    """A closed period, or a mark in one that still runs."""

    id: str
    customer_id: str
    period: str
    closed: bool
    """false: a mark. The period takes deltas as before."""
    number: int | None
    """Among the customer's closed periods; null for a mark."""
    seq: int | None
    """The last delta that a mark covers; null for a closed period, which covers all of it."""
    balance: str
    """At the end of the period: all verified deltas up to then. Of a mark: so far."""
    deltas: int
    """Verified ones since the checkpoint before."""
    root: str
    """Over the seals of all deltas since the checkpoint before."""
    previous: str
    hash: str
    closed_at: str | None
    refuses: str | None = None
    """Closed before its end: what is refused from now on, and until when."""
    duplicate: bool = False
    """Whether the period had been closed before: nothing was closed now."""


class StartingCheckpoint(msgspec.Struct, rename="camel"):
    """Where a derivation started."""

    id: str
    period: str
    balance: str


class BalanceResponse(msgspec.Struct, rename="camel"):
    """A balance, derived from verified deltas."""

    customer_id: str
    balance: str
    checkpoint: StartingCheckpoint | None
    """Null: from the first delta."""
    deltas: int
    """Verified ones that were added to that."""
    queued: int
    """Not counted: they wait for their verification."""
    period: str | None
    """Up to the end of it, if one was asked for."""


class ReceiptResponse(msgspec.Struct, rename="camel"):
    """A receipt: the same one, whenever and however often it is asked for."""

    id: str
    customer_id: str
    delta: DeltaResponse | None = None
    checkpoint: CheckpointResponse | None = None


class GapRange(msgspec.Struct, rename="camel"):
    """Numbers that are missing."""

    first: int
    last: int


class GapsResponse(msgspec.Struct, rename="camel"):
    """What is missing among a customer's numbers."""

    customer_id: str
    last_seq: int
    gaps: list[GapRange]
