"""
Joining the caller's own transaction: one small adapter per database library.

An adapter performs five things on the caller's connection (begin, put, extend, commit, rollback) and nothing else; what
they are for is decided in `_core/joined.py`. `join` and `join_async` find the adapter by the connection's type, without
importing any library that is not already in use.

For `settle_inside` an adapter may say, after `begin`, whether the caller was in a savepoint of its own (`nested`).

`is_over()` says, from any thread, whether the caller's own transaction has ended: what belongs after it is not waited
for any longer then.

Two more an adapter may have, for speed: `load(id)` looks inside the transaction (otherwise the gate's store is asked),
and `finish(write, expect)` puts and commits in one round trip (otherwise they are two calls).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, TypeVar

from onceward import failpoints
from onceward._core.errors import ConfigurationError, IllegalMove
from onceward._core.flow import Finish, Peek
from onceward._core.record import Record, Standing, Write
from onceward._core.register import AsyncStore, Store
from onceward.tables.steps import Steps

T = TypeVar("T")

ADAPTERS = {
    "sqlite3": "onceward.gate.joining.sqlite3",
    "_sqlite3": "onceward.gate.joining.sqlite3",
    "psycopg": "onceward.gate.joining.psycopg",
    "sqlalchemy": "onceward.gate.joining.sqlalchemy",
    "django": "onceward.gate.joining.django",
}
"""
Library -> module of its adapter, which has `join(connection, store)` and `walk(connection, store, steps)`, and both of
them with `_async`.

A connection is of a library if its type, or a base of it, is defined there.
"""


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


class AsyncJoined(Protocol):
    """Same as `Joined`, but awaits."""

    async def begin(self) -> bool:
        """Same as `Joined.begin`, but awaits."""

    async def put(self, write: Write, expect: bytes | None) -> Standing:
        """Same as `Joined.put`, but awaits."""

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Same as `Joined.extend`, but awaits."""

    async def commit(self) -> None:
        """Same as `Joined.commit`, but awaits."""

    async def rollback(self) -> bool:
        """Same as `Joined.rollback`, but awaits."""


class Looking(Joined, Protocol):
    """A connection in whose transaction one can look."""

    def load(self, id: bytes) -> Record | None:
        """Same as `Store.load`, inside the transaction."""

    def is_over(self) -> bool:
        """Whether the transaction has ended, seen from any thread."""


class Awaited:
    """A blocking connection under an awaiting gate: it is the caller's own, so it runs where the caller is."""

    def __init__(self, joined: Looking) -> None:
        self._joined = joined

    async def begin(self) -> bool:
        """See `Joined.begin`."""
        return self._joined.begin()

    async def put(self, write: Write, expect: bytes | None) -> Standing:
        """See `Joined.put`."""
        return self._joined.put(write, expect)

    async def load(self, id: bytes) -> Record | None:
        """See `Looking.load`."""
        return self._joined.load(id)

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """See `Joined.extend`."""
        return self._joined.extend(family, replay, forget)

    async def commit(self) -> None:
        """See `Joined.commit`."""
        self._joined.commit()

    async def rollback(self) -> bool:
        """See `Joined.rollback`."""
        return self._joined.rollback()

    def is_over(self) -> bool:
        """See `Looking.is_over`."""
        return self._joined.is_over()


def join(connection: Any, store: object) -> Joined:
    """The adapter for this connection under a blocking gate; refused unless it is open on the gate's own database."""
    joined: Joined = _adapter(connection).join(connection, store)
    return joined


def join_async(connection: Any, store: object) -> AsyncJoined:
    """Same as `join`, under an awaiting gate."""
    joined: AsyncJoined = _adapter(connection).join_async(connection, store)
    return joined


def walk(connection: Any, store: object, steps: Steps[T]) -> T:
    """
    Run steps of ours in the transaction of this connection, and end nothing.

    Refused in autocommit outside of a transaction, where each statement would commit alone, and unless it is open on
    the gate's own database.
    """
    answer: T = _adapter(connection).walk(connection, store, steps)
    return answer


async def walk_async(connection: Any, store: object, steps: Steps[T]) -> T:
    """Same as `walk`, under an awaiting gate."""
    answer: T = await _adapter(connection).walk_async(connection, store, steps)
    return answer


def _adapter(connection: Any) -> Any:
    """The module that knows this kind of connection."""
    for base in type(connection).__mro__:
        module = ADAPTERS.get(base.__module__.partition(".")[0])
        if module is not None:
            return import_module(module)
    known = sorted(library for library in ADAPTERS if not library.startswith("_"))
    raise ConfigurationError(
        f"atomic mode does not know connections of {type(connection).__module__.partition('.')[0]}."
        f"{type(connection).__name__}; it knows those of {', '.join(known)}"
    )


# What an adapter need not have.

ENDED = (
    "your function ended the transaction that it was given (a commit, a rollback, a closed connection, an error that "
    "rolled it back; or another thread or task did so on the same connection), so record and rows can no longer commit "
    "together; leave the ending to the gate"
)
NO_ENCODING = (
    "this connection has no encoding (client_encoding is SQL_ASCII), so words cannot be told from bytes; give it one: "
    "SET client_encoding = 'UTF8'"
)
IN_PROGRESS = (
    "a statement of yours has not been read to its end, so SQLite cannot end the transaction; fetch all rows of your "
    "INSERT, UPDATE or DELETE ... RETURNING, or close its cursor"
)


def peek(joined: Joined, store: Store, effect: Peek) -> Record | None:
    """Look at a record inside the transaction, or outside it if the adapter cannot: a look guards nothing."""
    load = getattr(joined, "load", None) or store.load
    found: Record | None = load(effect.id)
    return found


async def peek_async(joined: AsyncJoined, store: AsyncStore, effect: Peek) -> Record | None:
    """Same as `peek`, but awaits."""
    load = getattr(joined, "load", None) or store.load
    found: Record | None = await load(effect.id)
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


async def finish_async(joined: AsyncJoined, effect: Finish) -> Standing:
    """Same as `finish`, but awaits."""
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
