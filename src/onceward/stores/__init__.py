"""
Stores: where records are, opened from a URL. They move records by compare-and-swap, and judge nothing.

    memory://                     this process only: for tests and for trying things out
    sqlite:///relative/path.db    a file (sqlite:////absolute/path.db with four slashes)
    postgresql://user@host/name   a PostgreSQL database (needs onceward[postgres])
    redis://host:6379/0           a Redis server (rediss:// over TLS)

Other packages bring more, as entry points of the group `onceward.stores`, each of which names a `StoreKind`.

`memory`, `sqlite`, `postgres` and `redis` have the two classes of a store each; `_sqlite_*`, `_postgres_*`, `_redis_*`
are their parts: url or file, errors, rows, connections, upkeep. `_group_commit.py` is the queue in front of the stores;
`tables/` is for tables of ours that hold no records.

May import: `_core` and `runtime`; a driver only in the modules of the store that needs it, which are imported when a
URL of that store is opened.

Start with `_core/store_async.py` (what a store owes), then `memory.py`, then `sqlite.py`.
"""

from __future__ import annotations

from onceward._core.caller_transaction import CallerTransaction
from onceward._core.caller_transaction_async import AsyncCallerTransaction
from onceward._core.capabilities import (
    AwaitedTransaction,
    Capabilities,
    OwnTables,
    TransactionJoiner,
    capabilities_of,
)
from onceward._core.errors import ConfigurationError
from onceward._core.record import PeekResult, PutResult, Record, Write
from onceward._core.store_protocols import AsyncStore, PurgeResult, Selection, Store
from onceward.runtime.environment import REAL, Environment
from onceward.stores._store_kinds import StoreKind, kind_of, opened, scheme_of
from onceward.stores._upkeep import SchemaMigration, StoreCheck, Upkeep

__all__ = [
    "AsyncCallerTransaction",
    "AsyncStore",
    "AwaitedTransaction",
    "CallerTransaction",
    "Capabilities",
    "OwnTables",
    "PeekResult",
    "PurgeResult",
    "PutResult",
    "Record",
    "SchemaMigration",
    "Selection",
    "Store",
    "StoreCheck",
    "StoreKind",
    "TransactionJoiner",
    "Upkeep",
    "Write",
    "capabilities_of",
    "open_async_store",
    "open_store",
]


def open_store(url: str, *, environment: Environment = REAL) -> Store:
    """Open the store that a URL names, for blocking callers."""
    opens = kind_of(url).open
    if opens is None:
        raise ConfigurationError(f"{scheme_of(url)}:// works with AsyncGate only, and a blocking store was asked for")
    return opened(url, opens, environment)


def open_async_store(url: str, *, environment: Environment = REAL) -> AsyncStore:
    """Open the store that a URL names, for awaiting callers."""
    opens = kind_of(url).open_async
    if opens is None:
        raise ConfigurationError(f"{scheme_of(url)}:// works with Gate only, and an awaiting store was asked for")
    return opened(url, opens, environment)


def check_url(url: str) -> None:
    """Refuse a URL that names no store that could be opened here: an unknown kind, or a driver that is missing."""
    kind_of(url)


def tables_url(url: str) -> str | None:
    """
    The URL of the SQLite file or PostgreSQL database where what is no record is kept for a store; None if nowhere.

    The store's own URL, for SQLite and PostgreSQL; for another package's store, what its kind says.
    """
    tables = kind_of(url).tables
    if tables is None:
        return None
    found = tables(url)
    if scheme_of(found) not in TABLES:
        raise ConfigurationError(
            f"{scheme_of(url)}:// puts its other tables on {scheme_of(found)}://; they can only be on sqlite:// or "
            "postgresql://"
        )
    return found


TABLES = frozenset(("sqlite", "postgresql", "postgres"))
"""Schemes of the databases that can have tables of ours besides the records."""
