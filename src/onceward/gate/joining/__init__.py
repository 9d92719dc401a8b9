"""
Joining the caller's own transaction: one small adapter per database library.

An adapter is a `Joined` (`_core/capabilities.py`): it performs on the caller's connection what `_core/joined.py`
decides, and nothing else. A store that has a way of its own to join says so (`Capabilities.joins`), and is asked for
the adapter. For the stores that come with Onceward, `join` and `join_async` find one of these by the connection's type,
without importing any library that is not already in use.

Two more an adapter of ours may have: `nested` says, after `begin`, whether the caller was in a savepoint of its own
(for `settle_inside`); `finish(write, expect)` puts and commits in one round trip (otherwise they are two calls).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

from onceward import failpoints
from onceward._core.capabilities import AsyncJoined, Awaited, Joined, OwnTables, capabilities_of
from onceward._core.errors import ConfigurationError, IllegalMove
from onceward._core.flow import Finish
from onceward._core.record import Standing
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

__all__ = [
    "ADAPTERS",
    "ENDED",
    "IN_PROGRESS",
    "NO_ENCODING",
    "AsyncJoined",
    "Awaited",
    "Joined",
    "finish",
    "finish_async",
    "join",
    "join_async",
    "walk",
    "walk_async",
]


def join(connection: Any, store: object) -> Joined:
    """The adapter for this connection under a blocking gate; refused unless it is open on the gate's own database."""
    joins = capabilities_of(store).joins
    if joins is not None and not isinstance(joins, OwnTables):
        return joins.join(connection)
    joined: Joined = _adapter(connection).join(connection, _home(joins, store))
    return joined


def join_async(connection: Any, store: object) -> AsyncJoined:
    """Same as `join`, under an awaiting gate."""
    joins = capabilities_of(store).joins
    if joins is not None and not isinstance(joins, OwnTables):
        return joins.join_async(connection)
    joined: AsyncJoined = _adapter(connection).join_async(connection, _home(joins, store))
    return joined


def walk(connection: Any, store: object, steps: Steps[T]) -> T:
    """
    Run steps of ours in the transaction of this connection, and end nothing.

    Refused in autocommit outside of a transaction, where each statement would commit alone, and unless it is open on
    the gate's own database.
    """
    answer: T = _adapter(connection).walk(connection, _walkable(store), steps)
    return answer


async def walk_async(connection: Any, store: object, steps: Steps[T]) -> T:
    """Same as `walk`, under an awaiting gate."""
    answer: T = await _adapter(connection).walk_async(connection, _walkable(store), steps)
    return answer


def _home(joins: OwnTables | None, store: object) -> object:
    """The store whose tables the records are in: it may be wrapped by another, which has passed this on."""
    return store if joins is None else joins.store


def _walkable(store: object) -> object:
    joins = capabilities_of(store).joins
    if joins is not None and not isinstance(joins, OwnTables):
        raise ConfigurationError(
            f"{type(store).__name__} joins connections in a way of its own, which is for records only: what else is "
            "written in your transaction (an outbox) needs a gate on sqlite:/// or postgresql://"
        )
    return _home(joins, store)


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
