"""
How a delta is booked: rules as steps, run in the transaction that also has the record of its key.

A customer's row is held while an entry is added, so that numbers have no gaps and the chain has no forks. A reference
is unique in its scope for good: it outlives every key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from onceward._core.durations import SECOND
from onceward._core.errors import OncewardError, RequestInvalid, RetryTransaction
from onceward.protocol.errors import (
    CustomerUnknown,
    DeltaRefused,
    DeltaUnknown,
    PeriodClosed,
    PeriodNotOpen,
    ReferenceReused,
)
from onceward.service.ledger.hash_chain import ENTRY_COLUMNS, LedgerEntry, genesis, sealed_entry
from onceward.service.ledger.periods import period_after, period_at, period_start
from onceward.service.ledger.verification import QUEUED, VERIFIED, DeltaRule, accept_all
from onceward.stores.tables import Sql, SqlSteps, one_or_none

_CUSTOMER = """SELECT seq, head, closed, created_at, :now FROM onceward_ledger_customers
    WHERE scope = :scope AND customer = :customer {lock}"""
_SEEN = """SELECT seq, head, closed, created_at, :now FROM onceward_ledger_customers
    WHERE scope = :scope AND customer = :customer"""
_NEW_CUSTOMER = """INSERT INTO onceward_ledger_customers (scope, customer, seq, head, closed, created_at)
    VALUES (:scope, :customer, 0, :head, '', :at) ON CONFLICT (scope, customer) DO NOTHING RETURNING customer"""
_NOW = "SELECT :now"
_ADVANCE = """UPDATE onceward_ledger_customers SET seq = :seq, head = :hash
    WHERE scope = :scope AND customer = :customer"""
_BY_REFERENCE = f"""SELECT {ENTRY_COLUMNS} FROM onceward_ledger_entries
    WHERE scope = :scope AND reference = :reference"""  # noqa: S608 - names of ours
_BY_ID = f"SELECT {ENTRY_COLUMNS} FROM onceward_ledger_entries WHERE id = :id AND scope = :scope"  # noqa: S608
# Each reference is looked up in its index: SQLite reads the whole table for `(scope, reference) IN (...)`.
_BY_REFERENCES = f"""WITH wanted (scope, reference) AS ({{rows}})
    SELECT {", ".join(f"booked.{name}" for name in LedgerEntry._fields)}
    FROM wanted CROSS JOIN onceward_ledger_entries AS booked
    WHERE booked.scope = wanted.scope AND booked.reference = wanted.reference"""  # noqa: S608
_ADD = f"""INSERT INTO onceward_ledger_entries ({ENTRY_COLUMNS}) {{rows}}
    ON CONFLICT (scope, reference) WHERE reference IS NOT NULL DO NOTHING RETURNING id"""
_NUMBERS = frozenset({"seq", "amount", "booked_at", "verified_at"})
_TYPES = tuple("bigint" if name in _NUMBERS else "text" for name in LedgerEntry._fields)


REFUSED_ALONE = frozenset(
    {
        "reference_reused",
        "period_closed",
        "period_not_open",
        "customer_unknown",
        "delta_unknown",
        "delta_refused",
        "request_invalid",
    }
)
"""What is wrong with one delta of a batch and says nothing about the others."""


class CheckedDelta(NamedTuple):
    """A delta that was asked for, checked."""

    customer: str
    amount: int
    reason: str
    reference: str | None
    """With its environment."""
    metadata: str | None
    corrects: str | None
    period: str | None


class LedgerTerms(NamedTuple):
    """What an operator has chosen."""

    late: str = "refuse"
    """What becomes of a delta for a closed period: `refuse`, or `next` (the first period that is open)."""
    customers: str = "any"
    """`known`: only customers that were added before."""
    verify: str = "inline"
    rule: DeltaRule = accept_all
    full: OncewardError | None = None
    """Why nothing new is booked for this caller: its quota. What is booked already is still found."""


class CustomerRow(NamedTuple):
    """A customer's row, and the time."""

    seq: int
    head: str
    closed: str
    created_at: int
    now: int


class BookingResult(NamedTuple):
    """What a delta came to."""

    entry: LedgerEntry
    duplicate: bool = False


def add_customer(scope: str, customer: str) -> SqlSteps[bool]:
    """Make a customer known; False if it was."""
    [(now,)] = yield Sql(_NOW, {})
    values = {"scope": scope, "customer": customer, "head": genesis(scope, customer, now), "at": now}
    return bool((yield Sql(_NEW_CUSTOMER, values)))


def find_customer(scope: str, customer: str) -> SqlSteps[CustomerRow]:
    """A customer's row; `CustomerUnknown` if there is none."""
    row = one_or_none((yield Sql(_SEEN, {"scope": scope, "customer": customer})))
    if row is None:
        raise CustomerUnknown("this ledger has no such customer; emit a delta for it first")
    return CustomerRow(*row)


def lock_customer(scope: str, customer: str, terms: LedgerTerms) -> SqlSteps[CustomerRow]:
    """A customer's row, held until the transaction ends; made if it may be."""
    values = {"scope": scope, "customer": customer}
    row = one_or_none((yield Sql(_CUSTOMER, values)))
    if row is None and terms.customers == "known":
        raise CustomerUnknown(
            "this ledger takes deltas for known customers only, and this one is not known; nothing was booked. An "
            "operator adds it: onceward ledger customer"
        )
    if row is None:
        yield from add_customer(scope, customer)
        [row] = yield Sql(_CUSTOMER, values)
    return CustomerRow(*row)


def find_by_reference(scope: str, reference: str) -> SqlSteps[LedgerEntry | None]:
    """The entry of a reference."""
    row = one_or_none((yield Sql(_BY_REFERENCE, {"scope": scope, "reference": reference})))
    return None if row is None else LedgerEntry(*row)


def find_by_id(scope: str, id: str) -> SqlSteps[LedgerEntry]:
    """The entry of an id."""
    row = one_or_none((yield Sql(_BY_ID, {"scope": scope, "id": id})))
    if row is None:
        raise DeltaUnknown("this ledger has no such delta")
    return LedgerEntry(*row)


def book(scope: str, delta: CheckedDelta, terms: LedgerTerms) -> SqlSteps[BookingResult]:
    """Add an entry; or find the one that its reference has."""
    customer = yield from lock_customer(scope, delta.customer, terms)
    try:
        if delta.corrects is not None:
            yield from _check_corrected(scope, delta)
        entry = _entry(scope, delta, terms, customer)
    except OncewardError:
        # What is booked already stays booked, whatever has been closed or forbidden since.
        found = None if delta.reference is None else (yield from find_by_reference(scope, delta.reference))
        if found is None:
            raise
        return BookingResult(require_same(found, delta), duplicate=True)
    if not (yield Sql(_ADD, {}, [entry], _TYPES)):
        [row] = yield Sql(_BY_REFERENCE, {"scope": scope, "reference": delta.reference})
        return BookingResult(require_same(LedgerEntry(*row), delta), duplicate=True)
    yield from _advance(entry)
    return BookingResult(entry)


def book_batch(
    scope: str, deltas: Sequence[CheckedDelta], terms: LedgerTerms
) -> SqlSteps[list[BookingResult | OncewardError]]:
    """
    Add the entries of a batch, all in one statement; one by one, what each came to, or why it is refused.

    What is refused is refused before anything of it is written, so there is nothing to undo. A chain cannot be taken
    back in part: if somebody else books one of the references at the same moment, the whole of it starts over
    (`RetryTransaction`), and finds that reference.
    """
    held: dict[str, CustomerRow | OncewardError] = {}
    # Rows are held in one order, whatever the batch's: two batches wait for each other, and never both at once.
    for customer in sorted({one.customer for one in deltas}):
        try:
            held[customer] = yield from lock_customer(scope, customer, terms)
        except CustomerUnknown as unknown:
            held[customer] = unknown
    booked = yield from _find_by_references(scope, [one.reference for one in deltas if one.reference is not None])
    results: list[BookingResult | OncewardError] = []
    added: list[LedgerEntry] = []
    last: dict[str, LedgerEntry] = {}
    for delta in deltas:
        customer_row = held[delta.customer]
        try:
            made = yield from _next_of_batch(scope, delta, terms, customer_row, booked)
        except OncewardError as error:
            if error.code not in REFUSED_ALONE:
                raise
            results.append(error)
            continue
        results.append(made)
        if not made.duplicate:
            entry = made.entry
            added.append(entry)
            last[delta.customer] = entry
            # What was booked is in reach of the rest of the batch, as if it were in its row already.
            held[delta.customer] = CustomerRow(entry.seq, entry.hash, *customer_row[2:])  # type: ignore[index]
            if entry.reference is not None:
                booked[entry.reference] = entry
    if added and len((yield Sql(_ADD, {}, added, _TYPES))) != len(added):
        raise RetryTransaction(
            "another request booked one of these references at the same moment; nothing of the batch was booked. Send "
            "it again"
        )
    for entry in last.values():
        yield from _advance(entry)
    return results


def _next_of_batch(
    scope: str,
    delta: CheckedDelta,
    terms: LedgerTerms,
    customer: CustomerRow | OncewardError,
    booked: Mapping[str, LedgerEntry],
) -> SqlSteps[BookingResult]:
    found = None if delta.reference is None else booked.get(delta.reference)
    try:
        if isinstance(customer, OncewardError):
            raise customer
        if delta.corrects is not None:
            yield from _check_corrected(scope, delta)
        entry = _entry(scope, delta, terms, customer)
    except OncewardError:
        if found is None or isinstance(customer, OncewardError):
            raise
    else:
        if found is None:
            return BookingResult(entry)
    return BookingResult(require_same(found, delta), duplicate=True)


def _find_by_references(scope: str, references: Sequence[str]) -> SqlSteps[dict[str, LedgerEntry]]:
    """What these references have."""
    if not references:
        return {}
    rows = yield Sql(_BY_REFERENCES, {}, [(scope, one) for one in references], ("text", "text"))
    return {entry.reference: entry for row in rows if (entry := LedgerEntry(*row)).reference is not None}


def _advance(entry: LedgerEntry) -> SqlSteps[None]:
    """Note a customer's last entry."""
    yield Sql(_ADVANCE, {"scope": entry.scope, "customer": entry.customer, "seq": entry.seq, "hash": entry.hash})


def _entry(scope: str, delta: CheckedDelta, terms: LedgerTerms, customer: CustomerRow) -> LedgerEntry:
    """The entry that follows a customer's last one; refused if there may be none."""
    if terms.full is not None:
        raise terms.full
    verified = terms.verify == "inline"
    seq, head, _, _, now = customer
    period = _open_period(delta, customer, terms)
    name, amount, reason, reference, metadata, corrects, _ = delta
    entry = sealed_entry(
        (scope, name, seq + 1, amount, reason, reference, metadata, corrects, period, now, head),
        VERIFIED if verified else QUEUED,
        now if verified else None,
    )
    failure = terms.rule(entry) if verified else None
    if failure is not None:
        raise DeltaRefused(f"the ledger's rule refuses this delta: {failure}. Nothing was booked")
    return entry


def require_same(entry: LedgerEntry, delta: CheckedDelta) -> LedgerEntry:
    """The entry that a reference has, if it equals this delta; `ReferenceReused` says in what they differ."""
    pairs: dict[str, tuple[Any, Any]] = {
        "customerId": (entry.customer, delta.customer),
        "delta": (entry.amount, delta.amount),
        "reason": (entry.reason, delta.reason),
        "metadata": (entry.metadata, delta.metadata),
        "corrects": (entry.corrects, delta.corrects),
    }
    # A period that was not named is the one of that day: a retry past midnight is the same delta.
    if delta.period is not None and delta.period > entry.period:
        pairs["period"] = (entry.period, delta.period)
    other = [name for name, (booked, sent) in pairs.items() if booked != sent]
    if other:
        raise ReferenceReused(
            f"this referenceId was booked before with another {' and '.join(other)}; nothing was booked. A different "
            "delta needs a reference of its own; a mistake is corrected by a new delta that names it (corrects)"
        )
    return entry


def _check_corrected(scope: str, delta: CheckedDelta) -> SqlSteps[None]:
    row = one_or_none((yield Sql(_BY_ID, {"scope": scope, "id": delta.corrects})))
    if row is None or LedgerEntry(*row).customer != delta.customer:
        raise DeltaUnknown("corrects is not the id of a delta of this customer; nothing was booked")


def _open_period(delta: CheckedDelta, customer: CustomerRow, terms: LedgerTerms) -> str:
    """The period that an entry goes into."""
    current = period_at(customer.now)
    period = delta.period or current
    if period > current:
        raise RequestInvalid(f"the period {period} has not begun; leave period out, or send one up to {current}")
    if period > customer.closed:
        return period
    opens = period_after(customer.closed)
    if terms.late == "next":
        return max(opens, current)
    if opens > current:
        raise PeriodNotOpen(
            f"the period {closed_period_text(customer.closed)}; nothing was booked. Send it again, unchanged, "
            f"when {opens} "
            "has begun",
            retry_after_seconds=(period_start(opens) - customer.now) / SECOND,
        )
    raise PeriodClosed(
        f'the period {period} is closed by a checkpoint; nothing was booked. Send it with "period": "{current}", or '
        "without period"
    )


def closed_period_text(period: str) -> str:
    """What closing a period before its end means for deltas, in words."""
    opens = period_after(period)
    return f"{period} was closed before its end, and takes no deltas until {opens} begins ({opens}-01T00:00:00Z)"
