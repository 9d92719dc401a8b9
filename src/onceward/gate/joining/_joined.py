# Made from _joined_async.py by `make halves`: change that file, not this one.
"""
How the adapter for a caller's connection is found, and how it is finished.
"""

from __future__ import annotations

from typing import Any, TypeVar

from onceward import failpoints
from onceward._core.capabilities import OwnTables, capabilities_of
from onceward._core.connection import Finishing, Joined
from onceward._core.errors import IllegalMove
from onceward._core.flow import Finish
from onceward._core.record import Standing
from onceward.gate.joining._adapters import ENDED, adapter_of, home_of, walkable
from onceward.tables.steps import Steps

T = TypeVar("T")


def join(connection: Any, store: object) -> Joined:
    """The adapter for this connection under a `Gate`; refused unless it is open on the gate's own database."""
    joins = capabilities_of(store).joins
    if joins is not None and not isinstance(joins, OwnTables):
        return joins.join(connection)
    joined: Joined = adapter_of(connection).join(connection, home_of(joins, store))
    return joined


def walk(connection: Any, store: object, steps: Steps[T]) -> T:
    """
    Run steps of ours in the transaction of this connection, and end nothing.

    Refused in autocommit outside of a transaction, where each statement would commit alone, and unless it is open on
    the gate's own database.
    """
    answer: T = adapter_of(connection).walk(connection, walkable(store), steps)
    return answer


# What an adapter need not have.


def finish(joined: Joined, effect: Finish) -> Standing:
    """Put and commit; if it does not land, roll back."""
    if isinstance(joined, Finishing):
        return joined.finish(effect.write, effect.expect)
    standing = joined.put(effect.write, effect.expect)
    failpoints.hit("commit.before")
    if standing.landed:
        joined.commit()
        failpoints.hit("commit.after")
    elif not joined.rollback():
        raise IllegalMove(ENDED)
    return standing
