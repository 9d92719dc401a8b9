# blocking half: _joined.py
"""
The caller's connection, as the flow of atomic mode needs it, and how it is found, looked at and finished.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from onceward import failpoints
from onceward._core.errors import IllegalMove
from onceward._core.flow import Finish, Peek
from onceward._core.record import Record, Standing, Write
from onceward._core.register import AsyncStore
from onceward.gate.joining._adapters import ENDED, adapter_of
from onceward.tables.steps import Steps

T = TypeVar("T")


class AsyncJoined(Protocol):
    """The caller's connection, as the flow of atomic mode needs it."""

    async def begin(self) -> bool:
        """
        Open a transaction (True) or, inside one, a savepoint (False).

        The first `begin` of a call is followed by put, extend or load, before the caller's function runs: so an adapter
        may send it along with that.
        """

    async def put(self, write: Write, expect: bytes | None) -> Standing:
        """Same as `AsyncStore.put`, inside the transaction."""

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Same as `AsyncStore.extend`, inside the transaction."""

    async def commit(self) -> None:
        """End the innermost thing that `begin` opened, keeping it; `IllegalMove` if somebody else had ended it."""

    async def rollback(self) -> bool:
        """End the innermost thing that `begin` opened, undoing it; False if somebody else had ended it already."""


def join_async(connection: Any, store: object) -> AsyncJoined:
    """The adapter for this connection under an `AsyncGate`; refused unless it is open on the gate's own database."""
    joined: AsyncJoined = adapter_of(connection).join_async(connection, store)
    return joined


async def walk_async(connection: Any, store: object, steps: Steps[T]) -> T:
    """
    Run steps of ours in the transaction of this connection, and end nothing.

    Refused in autocommit outside of a transaction, where each statement would commit alone, and unless it is open on
    the gate's own database.
    """
    answer: T = await adapter_of(connection).walk_async(connection, store, steps)
    return answer


# What an adapter need not have.


async def peek_async(joined: AsyncJoined, store: AsyncStore, effect: Peek) -> Record | None:
    """Look at a record inside the transaction, or outside it if the adapter cannot: a look guards nothing."""
    load = getattr(joined, "load", None) or store.load
    found: Record | None = await load(effect.id)
    return found


async def finish_async(joined: AsyncJoined, effect: Finish) -> Standing:
    """Put and commit; if it does not land, roll back."""
    own = getattr(joined, "finish", None)
    if own is not None:
        ended: Standing = await own(effect.write, effect.expect)
        return ended
    standing = await joined.put(effect.write, effect.expect)
    failpoints.hit("commit.before")
    if standing.landed:
        await joined.commit()
        failpoints.hit("commit.after")
    elif not await joined.rollback():
        raise IllegalMove(ENDED)
    return standing
