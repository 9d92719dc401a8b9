# blocking half: _joined.py
"""
How the adapter for a caller's connection is found, and how it is finished.
"""

from __future__ import annotations

from typing import Any, TypeVar

from onceward import failpoints
from onceward._core.capabilities import OwnTables, capabilities_of
from onceward._core.connection_async import AsyncFinishing, AsyncJoined
from onceward._core.errors import IllegalMove
from onceward._core.flow import Finish
from onceward._core.record import Standing
from onceward.gate.joining._adapters import ENDED, adapter_of, home_of, walkable
from onceward.tables.steps import Steps

T = TypeVar("T")


def join_async(connection: Any, store: object) -> AsyncJoined:
    """The adapter for this connection under an `AsyncGate`; refused unless it is open on the gate's own database."""
    joins = capabilities_of(store).joins
    if joins is not None and not isinstance(joins, OwnTables):
        return joins.join_async(connection)
    joined: AsyncJoined = adapter_of(connection).join_async(connection, home_of(joins, store))
    return joined


async def walk_async(connection: Any, store: object, steps: Steps[T]) -> T:
    """
    Run steps of ours in the transaction of this connection, and end nothing.

    Refused in autocommit outside of a transaction, where each statement would commit alone, and unless it is open on
    the gate's own database.
    """
    answer: T = await adapter_of(connection).walk_async(connection, walkable(store), steps)
    return answer


# What an adapter need not have.


async def finish_async(joined: AsyncJoined, effect: Finish) -> Standing:
    """Put and commit; if it does not land, roll back."""
    if isinstance(joined, AsyncFinishing):
        return await joined.finish(effect.write, effect.expect)
    standing = await joined.put(effect.write, effect.expect)
    failpoints.hit("commit.before")
    if standing.landed:
        await joined.commit()
        failpoints.hit("commit.after")
    elif not await joined.rollback():
        raise IllegalMove(ENDED)
    return standing
