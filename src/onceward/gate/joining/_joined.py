# Made from _joined_async.py by `make halves`: change that file, not this one.
"""
The caller's connection, as the flow of atomic mode needs it, and how it is found, looked at and finished.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from onceward import failpoints
from onceward._core.errors import IllegalMove
from onceward._core.flow import Finish, Peek
from onceward._core.record import Record, Standing, Write
from onceward._core.register import Store
from onceward.gate.joining._adapters import ENDED, adapter_of
from onceward.tables.steps import Steps

T = TypeVar("T")


class Joined(Protocol):
    """The caller's connection, as the flow of atomic mode needs it."""

    def begin(self) -> bool:
        """
        Open a transaction (True) or, inside one, a savepoint (False).

        The first `begin` of a call is followed by put, extend or load, before the caller's function runs: so an adapter
        may send it along with that.
        """

    def put(self, write: Write, expect: bytes | None) -> Standing:
        """Same as `Store.put`, inside the transaction."""

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Same as `Store.extend`, inside the transaction."""

    def commit(self) -> None:
        """End the innermost thing that `begin` opened, keeping it; `IllegalMove` if somebody else had ended it."""

    def rollback(self) -> bool:
        """End the innermost thing that `begin` opened, undoing it; False if somebody else had ended it already."""


def join(connection: Any, store: object) -> Joined:
    """The adapter for this connection under a `Gate`; refused unless it is open on the gate's own database."""
    joined: Joined = adapter_of(connection).join(connection, store)
    return joined


def walk(connection: Any, store: object, steps: Steps[T]) -> T:
    """
    Run steps of ours in the transaction of this connection, and end nothing.

    Refused in autocommit outside of a transaction, where each statement would commit alone, and unless it is open on
    the gate's own database.
    """
    answer: T = adapter_of(connection).walk(connection, store, steps)
    return answer


# What an adapter need not have.


def peek(joined: Joined, store: Store, effect: Peek) -> Record | None:
    """Look at a record inside the transaction, or outside it if the adapter cannot: a look guards nothing."""
    load = getattr(joined, "load", None) or store.load
    found: Record | None = load(effect.id)
    return found


def finish(joined: Joined, effect: Finish) -> Standing:
    """Put and commit; if it does not land, roll back."""
    own = getattr(joined, "finish", None)
    if own is not None:
        ended: Standing = own(effect.write, effect.expect)
        return ended
    standing = joined.put(effect.write, effect.expect)
    failpoints.hit("commit.before")
    if standing.landed:
        joined.commit()
        failpoints.hit("commit.after")
    elif not joined.rollback():
        raise IllegalMove(ENDED)
    return standing
