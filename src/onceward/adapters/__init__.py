"""
Joining the caller's own transaction: one small adapter per database library.

An adapter is a `CallerTransaction` (`_core/caller_transaction_async.py`): it performs on the caller's connection what
`_core/atomic_flow.py` decides, and nothing else. A store that has a way of its own to join says so
(`Capabilities.joins`), and is asked for
the adapter. For the stores that come with Onceward, `join` and `join_async` find one of these by the connection's type,
without importing any library that is not already in use.

Two more an adapter of ours may have: `nested` says, after `begin`, whether the caller was in a savepoint of its own
(for `settle_inside`); one that is a `Finishing` puts and commits in one round trip (otherwise they are two calls).
"""

from onceward._core.caller_transaction import CallerTransaction
from onceward._core.caller_transaction_async import AsyncCallerTransaction
from onceward._core.capabilities import AwaitedTransaction
from onceward.adapters._registry import ADAPTERS, NO_ENCODING, STATEMENT_IN_PROGRESS, TRANSACTION_ENDED
from onceward.adapters._transaction import finish, join, run_in_transaction
from onceward.adapters._transaction_async import finish_async, join_async, run_in_transaction_async
from onceward.adapters.insert import insert_once
from onceward.adapters.insert_async import insert_once_async
from onceward.adapters.insert_statement import Inserted, Update, insert_sql

__all__ = [
    "ADAPTERS",
    "NO_ENCODING",
    "STATEMENT_IN_PROGRESS",
    "TRANSACTION_ENDED",
    "AsyncCallerTransaction",
    "AwaitedTransaction",
    "CallerTransaction",
    "Inserted",
    "Update",
    "finish",
    "finish_async",
    "insert_once",
    "insert_once_async",
    "insert_sql",
    "join",
    "join_async",
    "run_in_transaction",
    "run_in_transaction_async",
]
