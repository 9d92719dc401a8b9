"""
The calls of the ledger and their results. No I/O: the blocking and the async client share it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlencode

from onceward._core.errors import ConfigurationError, OncewardError, RequestInvalid
from onceward._core.keys import environment_key
from onceward.client.deltas import NewDelta, check_named
from onceward.client.responses import error_from_code
from onceward.client.service_call import ServiceCall, ServiceRequest, digest_name, json_body, post
from onceward.protocol.headers import ADVICE, IDEMPOTENCY_KEY
from onceward.protocol.limits import BATCH_MAX
from onceward.protocol.paths import BALANCE

log = logging.getLogger("onceward")


@dataclass(frozen=True, slots=True)
class Delta:
    """A delta as it is booked."""

    id: str
    customer: str
    seq: int
    """Its number among the customer's deltas, from 1, without gaps."""
    delta: Decimal
    reason: str
    reference_id: str | None
    metadata: Mapping[str, Any] | None = field(repr=False)
    corrects: str | None
    period: str
    booked_at: datetime
    status: str
    """verified; queued: it does not count yet; failed: it never will."""
    failure: str | None
    hash: str
    previous: str
    duplicate: bool
    """Whether the reference had been booked before: nothing was booked now."""
    replayed: bool = False
    """Whether this is a replay of the first result under this key: nothing was booked now."""


@dataclass(frozen=True, slots=True)
class BookedItem:
    """What one delta of a batch came to: a delta, or the error that it was refused with."""

    booked: bool
    """False for a duplicate and for a refusal."""
    delta: Delta | None
    error: OncewardError | None


@dataclass(frozen=True, slots=True)
class BookedBatch:
    """What a batch came to, delta by delta, in the order of the call."""

    results: list[BookedItem]
    booked: int
    duplicates: int
    refused: int
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A closed period, or a mark in one that still runs."""

    id: str
    customer: str
    period: str
    closed: bool
    """False: a mark. The period takes deltas as before."""
    number: int | None
    """Among the customer's closed periods; None for a mark."""
    seq: int | None
    """The last delta that a mark covers; None for a closed period, which covers all of it."""
    balance: Decimal
    """At the end of the period; of a mark, so far."""
    deltas: int
    root: str
    previous: str
    hash: str
    closed_at: datetime | None
    refuses: str | None
    """Closed before its end: what is refused from now on, and until when."""
    duplicate: bool
    """Whether the period had been closed before: nothing was closed now."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A balance, derived from verified deltas."""

    customer: str
    balance: Decimal
    checkpoint: str | None
    """The id of the checkpoint that it started from; None: from the first delta."""
    deltas: int
    """Verified ones that were added to that."""
    queued: int
    """Not counted: they wait for their verification."""
    period: str | None
    advice: str | None = None
    """What the service advises about how often a balance is derived."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A receipt: the same one, whenever and however often it is asked for."""

    id: str
    customer: str
    delta: Delta | None
    checkpoint: Checkpoint | None


@dataclass(frozen=True, slots=True)
class Gaps:
    """What is missing among a customer's numbers: pairs of the first and the last of each gap."""

    customer: str
    last_seq: int
    gaps: list[tuple[int, int]]


# --- calls ---


def emit(environment: str, delta: NewDelta, key: str | None) -> ServiceCall[Delta]:
    """Book one delta. Without a key of its own, its reference is the key: the service puts the environment in front."""
    body = json_body(check_named(delta, key).document(environment), "the delta")
    return ServiceCall(
        _post_request("/delta", body, environment, key, delta.reference_id),
        lambda found, replayed, _: _delta(found, replayed=replayed),
    )


def emit_many(environment: str, deltas: Iterable[NewDelta], key: str | None) -> ServiceCall[BookedBatch]:
    """Book several deltas, in one transaction; one that is refused leaves the others booked."""
    documents = []
    for index, one in enumerate(deltas):
        if not isinstance(one, NewDelta):
            raise ConfigurationError(f"deltas[{index}] must be a NewDelta(...), not a {type(one).__name__}")
        try:
            documents.append(check_named(one, key).document(environment))
        except OncewardError as error:
            error.args = (f"deltas[{index}]: {error}",)
            raise
    return emit_documents(environment, documents, key)


def emit_documents(
    environment: str, documents: list[dict[str, Any]], key: str | None = None
) -> ServiceCall[BookedBatch]:
    """Book several deltas that are documents already."""
    if not 1 <= len(documents) <= BATCH_MAX:
        raise RequestInvalid(
            f"the batch has {len(documents):,} deltas; a batch takes 1 to {BATCH_MAX}. Send several batches, or use an "
            "emitter; nothing was sent"
        )
    body = json_body({"deltas": documents}, "the deltas")
    outgoing = _post_request("/delta/batch", body, environment, key, digest_name("batch", body.decode()))
    return ServiceCall(outgoing, lambda found, replayed, _: _batch(found, replayed))


def checkpoint(
    environment: str, customer: str, period: str, close: bool | None, key: str | None
) -> ServiceCall[Checkpoint]:
    """Close a period, once whatever the key; or mark one that still runs."""
    options = {} if close is None else {"close": close}
    body = json_body({"customerId": customer, "period": period, **options}, "the checkpoint")
    outgoing = _post_request("/checkpoint", body, environment, key, digest_name("checkpoint", customer, period))
    return ServiceCall(outgoing, lambda found, *_: _checkpoint(found))


def derive(customer: str, period: str | None) -> ServiceCall[Derived]:
    """A balance."""
    return ServiceCall(
        _get_request("derive", customer, {"period": period}), lambda found, _, headers: _derived(found, headers)
    )


def receipt(customer: str, reference_id: str | None, period: str | None) -> ServiceCall[Receipt]:
    """Get the receipt of a delta or of a closed period."""
    if (reference_id is None) == (period is None):
        raise ConfigurationError("a receipt is for a delta or for a period: pass either reference_id or period")
    query = {"referenceId": reference_id, "period": period}
    return ServiceCall(_get_request("receipt", customer, query), lambda found, *_: _receipt(found))


def delta(id: str) -> ServiceCall[Delta]:
    """One delta."""
    return ServiceCall(_get_request("delta", id, {}), lambda found, *_: _delta(found))


def gaps(customer: str) -> ServiceCall[Gaps]:
    """What is missing."""
    return ServiceCall(
        _get_request("gaps", customer, {}),
        lambda found, *_: Gaps(
            found["customerId"], found["lastSeq"], [(one["first"], one["last"]) for one in found["gaps"]]
        ),
    )


def _post_request(path: str, body: bytes, environment: str, key: str | None, name: str | None) -> ServiceRequest:
    # Without a key these name themselves, for good: by references, or by the period. With one, the key's record counts.
    headers = {} if key is None else {IDEMPOTENCY_KEY: environment_key(environment, key)}
    return post(f"{BALANCE}{path}", body, headers)._replace(named_inside=True, name=name)


def _get_request(verb: str, what: str, query: Mapping[str, str | None]) -> ServiceRequest:
    if not isinstance(what, str) or not what:
        raise ConfigurationError(f"{verb} needs an id: text that is not empty")
    encoded = urlencode({name: value for name, value in query.items() if value is not None})
    return ServiceRequest("GET", f"{BALANCE}/{verb}/{quote(what, safe='')}{'?' if encoded else ''}{encoded}", {}, None)


# --- results ---


def _delta(found: Mapping[str, Any], *, replayed: bool = False) -> Delta:
    return Delta(
        id=found["id"],
        customer=found["customerId"],
        seq=found["seq"],
        delta=Decimal(found["delta"]),
        reason=found["reason"],
        reference_id=found["referenceId"],
        metadata=found["metadata"],
        corrects=found["corrects"],
        period=found["period"],
        booked_at=datetime.fromisoformat(found["bookedAt"]),
        status=found["status"],
        failure=found["failure"],
        hash=found["hash"],
        previous=found["previous"],
        duplicate=found["duplicate"],
        replayed=replayed,
    )


def _batch(found: Mapping[str, Any], replayed: bool) -> BookedBatch:
    results = [
        BookedItem(
            booked=one["booked"],
            delta=None if one["delta"] is None else _delta(one["delta"], replayed=replayed),
            error=None if one["code"] is None else error_from_code(one["code"], one["detail"] or one["code"]),
        )
        for one in found["results"]
    ]
    return BookedBatch(results, found["booked"], found["duplicates"], found["refused"], replayed)


def _checkpoint(found: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        id=found["id"],
        customer=found["customerId"],
        period=found["period"],
        closed=found["closed"],
        number=found["number"],
        seq=found["seq"],
        balance=Decimal(found["balance"]),
        deltas=found["deltas"],
        root=found["root"],
        previous=found["previous"],
        hash=found["hash"],
        closed_at=None if found["closedAt"] is None else datetime.fromisoformat(found["closedAt"]),
        refuses=found["refuses"],
        duplicate=found["duplicate"],
    )


def _derived(found: Mapping[str, Any], headers: Mapping[str, str]) -> Derived:
    advice = headers.get(ADVICE)
    if advice is not None:
        log.warning("onceward: the ledger advises: %s", advice)
    start = found["checkpoint"]
    return Derived(
        customer=found["customerId"],
        balance=Decimal(found["balance"]),
        checkpoint=None if start is None else start["id"],
        deltas=found["deltas"],
        queued=found["queued"],
        period=found["period"],
        advice=advice,
    )


def _receipt(found: Mapping[str, Any]) -> Receipt:
    booked, closed = found["delta"], found["checkpoint"]
    return Receipt(
        found["id"],
        found["customerId"],
        None if booked is None else _delta(booked),
        None if closed is None else _checkpoint(closed),
    )
