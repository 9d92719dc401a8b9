"""
Atomic mode on the caller's own psycopg connection, of either colour.

With no transaction open, one is opened and ended by us. Inside the caller's transaction a savepoint is used, and the
caller commits. A connection in autocommit with no transaction open is refused: the record would commit alone.

Statements that follow one another are sent together (libpq's pipeline mode), so that atomic mode adds no round trip:
begin and claim are one, settle and commit are one.

Under READ COMMITTED a racer waits at the constraint, as long as the store's lock timeout allows, and replays the
winner. Above that level, on a deadlock and on a lock timeout, the caller has to run its transaction again:
`RetryTransaction`.
"""

from __future__ import annotations

from onceward.adapters._psycopg_transaction import PsycopgTransaction, join, run_in_transaction
from onceward.adapters._psycopg_transaction_async import (
    AsyncPsycopgTransaction,
    join_async,
    run_in_transaction_async,
)

__all__ = [
    "AsyncPsycopgTransaction",
    "PsycopgTransaction",
    "join",
    "join_async",
    "run_in_transaction",
    "run_in_transaction_async",
]
