"""
A ledger as people look at it: customers, what was closed, and the latest deltas. Read in pages, by key.
"""

from __future__ import annotations

from typing import NamedTuple

from onceward.service.ledger.hash_chain import CHECKPOINT_COLUMNS, ENTRY_COLUMNS, LedgerCheckpoint, LedgerEntry
from onceward.stores.tables import Sql, SqlSteps

_CUSTOMERS = """SELECT scope, customer, seq, closed, created_at FROM onceward_ledger_customers
    WHERE {} ORDER BY scope, customer LIMIT :limit"""
_LATEST = f"""SELECT {ENTRY_COLUMNS} FROM onceward_ledger_entries
    WHERE scope = :scope AND customer = :customer ORDER BY seq DESC LIMIT :limit"""  # noqa: S608 - names of ours
_CLOSED = f"""SELECT {CHECKPOINT_COLUMNS} FROM onceward_ledger_checkpoints
    WHERE scope = :scope AND customer = :customer ORDER BY number DESC LIMIT :limit"""  # noqa: S608 - names of ours


class CustomerView(NamedTuple):
    """A customer of a ledger."""

    scope: str
    customer: str
    deltas: int
    """How many were booked."""
    closed: str
    """The last period that was closed; empty: none."""
    created_at: int


def customers(scope: str | None, after: tuple[str, str], limit: int) -> SqlSteps[list[CustomerView]]:
    """One page of customers, of one scope or of all, after this scope and customer."""
    where = "(scope, customer) > (:after_scope, :after)" if scope is None else "scope = :scope AND customer > :after"
    values = {"after": after[1], "limit": limit}
    values |= {"after_scope": after[0]} if scope is None else {"scope": scope}
    return [CustomerView._make(row) for row in (yield Sql(_CUSTOMERS.format(where), values))]


def latest_entries(scope: str, customer: str, limit: int) -> SqlSteps[list[LedgerEntry]]:
    """The latest deltas of a customer, the latest first."""
    return [LedgerEntry(*row) for row in (yield Sql(_LATEST, {"scope": scope, "customer": customer, "limit": limit}))]


def latest_checkpoints(scope: str, customer: str, limit: int) -> SqlSteps[list[LedgerCheckpoint]]:
    """The latest closed periods of a customer, the latest first."""
    values = {"scope": scope, "customer": customer, "limit": limit}
    return [LedgerCheckpoint(*row) for row in (yield Sql(_CLOSED, values))]
