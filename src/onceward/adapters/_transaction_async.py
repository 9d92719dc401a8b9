# blocking half: _transaction.py
"""
Joins the caller's transaction: finds the adapter, runs steps of ours in it, puts and commits.
"""

from __future__ import annotations

from typing import Any, TypeVar

from onceward._core.caller_transaction_async import AsyncCallerTransaction, AsyncFinishing
from onceward._core.capabilities import OwnTables, TransactionJoiner, capabilities_of
from onceward._core.errors import IllegalMove
from onceward._core.record import PutResult, Write
from onceward.adapters._registry import TRANSACTION_ENDED, find_adapter, store_with_tables, unwrapped_store
from onceward.runtime import failpoints
from onceward.stores.tables.sql_steps import SqlSteps

T = TypeVar("T")


def join_async(connection: Any, store: object) -> AsyncCallerTransaction:
    """The adapter for this connection under an `AsyncGate`; refused unless it is open on the gate's own database."""
    return join_by_async(capabilities_of(store).joins, connection, store)


def join_by_async(
    joins: TransactionJoiner | OwnTables | None, connection: Any, store: object
) -> AsyncCallerTransaction:
    """The same, for a gate that knows already how its store joins a connection."""
    if joins is not None and not isinstance(joins, OwnTables):
        return joins.join_async(connection)
    joined: AsyncCallerTransaction = find_adapter(connection).join_async(connection, unwrapped_store(joins, store))
    return joined if joins is None or joins.around_async is None else joins.around_async(joined)


async def run_in_transaction_async(connection: Any, store: object, steps: SqlSteps[T]) -> T:
    """
    Run steps of ours in the transaction of this connection, and end nothing.

    Refused in autocommit outside of a transaction, where each statement would commit alone, and unless it is open on
    the gate's own database.
    """
    answer: T = await find_adapter(connection).run_in_transaction_async(connection, store_with_tables(store), steps)
    return answer


# What an adapter need not have.


async def finish_async(joined: AsyncCallerTransaction, write: Write, expect: bytes | None) -> PutResult:
    """Put and commit; if it does not land, roll back."""
    if isinstance(joined, AsyncFinishing):
        return await joined.finish(write, expect)
    result = await joined.put(write, expect)
    failpoints.hit("commit.before")
    if result.landed:
        await joined.commit()
        failpoints.hit("commit.after")
    elif not await joined.rollback():
        raise IllegalMove(TRANSACTION_ENDED)
    return result
