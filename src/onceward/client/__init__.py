"""
A client for `onceward serve`, in both colours; and the same against a local SQLite file, without a server.

    with Client("https://sql.example.com") as client:  # the token: from ONCEWARD_TOKEN
        db = client.db("acme", "shop")
        db.query("INSERT INTO events VALUES (?, ?)", ["e-1", "click"], idempotency_key="evt-e-1")

`Client` and `AsyncClient` can be imported from `onceward`, too.
"""

from onceward.client.answers import NotFound
from onceward.client.awaiting import AsyncClient, AsyncDatabase, AsyncPlanned
from onceward.client.balances import Balance
from onceward.client.balances_async import AsyncBalance
from onceward.client.blocking import Client, Database, Planned
from onceward.client.deltas import NewDelta, Reference
from onceward.client.emitting import BalanceEmitter
from onceward.client.emitting_async import AsyncBalanceEmitter
from onceward.client.ledger import BookedBatch, BookedItem, Checkpoint, Delta, Derived, Gaps, Receipt
from onceward.client.results import BatchResult, Result
from onceward.service.ledger.errors import (
    CustomerUnknown,
    DeltaRefused,
    DeltaUnknown,
    NothingToReceipt,
    PeriodClosed,
    ReferenceReused,
    VerificationPending,
)
from onceward.service.sql.errors import DatabaseUnknown, EngineClosed, NameInvalid, SqlError, SqlKind

__all__ = [
    "AsyncBalance",
    "AsyncBalanceEmitter",
    "AsyncClient",
    "AsyncDatabase",
    "AsyncPlanned",
    "Balance",
    "BalanceEmitter",
    "BatchResult",
    "BookedBatch",
    "BookedItem",
    "Checkpoint",
    "Client",
    "CustomerUnknown",
    "Database",
    "DatabaseUnknown",
    "Delta",
    "DeltaRefused",
    "DeltaUnknown",
    "Derived",
    "EngineClosed",
    "Gaps",
    "NameInvalid",
    "NewDelta",
    "NotFound",
    "NothingToReceipt",
    "PeriodClosed",
    "Planned",
    "Receipt",
    "Reference",
    "ReferenceReused",
    "Result",
    "SqlError",
    "SqlKind",
    "VerificationPending",
]
