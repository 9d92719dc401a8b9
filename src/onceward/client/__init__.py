"""
The client of `onceward serve`, blocking and async. It also works on a local SQLite file, without a server.

    with Client("https://sql.example.com") as client:  # the token: from ONCEWARD_TOKEN
        db = client.db("acme", "shop")
        db.query("INSERT INTO events VALUES (?, ?)", ["e-1", "click"], idempotency_key="evt-e-1")

`Client` and `AsyncClient` can be imported from `onceward`, too. May import the library and `protocol`; of `service` it
imports only the local database, when a `sqlite:///` URL is opened. Start with `client_async.py`, then
`service_call.py` (requests) and `responses.py` (results and errors).
"""

from onceward.client.balance import Balance
from onceward.client.balance_async import AsyncBalance
from onceward.client.balance_emitter import BalanceEmitter
from onceward.client.balance_emitter_async import AsyncBalanceEmitter
from onceward.client.client import Client, Database, DatabasePlan
from onceward.client.client_async import AsyncClient, AsyncDatabase, AsyncDatabasePlan
from onceward.client.deltas import NewDelta, Reference
from onceward.client.ledger import BookedBatch, BookedItem, Checkpoint, Delta, Derived, Gaps, Receipt
from onceward.client.results import BatchResult, Result
from onceward.protocol.errors import (
    CustomerUnknown,
    DatabaseUnknown,
    DeltaRefused,
    DeltaUnknown,
    EngineClosed,
    NameInvalid,
    NothingToReceipt,
    PeriodClosed,
    ReferenceReused,
    ResourceNotFound,
    SqlError,
    SqlKind,
    VerificationPending,
)

__all__ = [
    "AsyncBalance",
    "AsyncBalanceEmitter",
    "AsyncClient",
    "AsyncDatabase",
    "AsyncDatabasePlan",
    "Balance",
    "BalanceEmitter",
    "BatchResult",
    "BookedBatch",
    "BookedItem",
    "Checkpoint",
    "Client",
    "CustomerUnknown",
    "Database",
    "DatabasePlan",
    "DatabaseUnknown",
    "Delta",
    "DeltaRefused",
    "DeltaUnknown",
    "Derived",
    "EngineClosed",
    "Gaps",
    "NameInvalid",
    "NewDelta",
    "NothingToReceipt",
    "PeriodClosed",
    "Receipt",
    "Reference",
    "ReferenceReused",
    "ResourceNotFound",
    "Result",
    "SqlError",
    "SqlKind",
    "VerificationPending",
]
