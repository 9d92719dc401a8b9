"""
Finds the adapter for a connection, by its type: no library is imported that is not in use already.

Messages that several adapters share are here, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from onceward._core.capabilities import OwnTables, capabilities_of
from onceward._core.errors import ConfigurationError

ADAPTERS = {
    "sqlite3": "onceward.adapters.sqlite3",
    "_sqlite3": "onceward.adapters.sqlite3",
    "psycopg": "onceward.adapters.psycopg",
    "sqlalchemy": "onceward.adapters.sqlalchemy",
    "django": "onceward.adapters.django",
}
"""
Library -> module of its adapter, which has `join(connection, store)` and `run_in_transaction(connection, store,
steps)`, and both of them with `_async`.

A connection is of a library if its type, or a base of it, is defined there.
"""

TRANSACTION_ENDED = (
    "your function ended the transaction that it was given (a commit, a rollback, a closed connection, an error that "
    "rolled it back; or another thread or task did so on the same connection), so record and rows can no longer commit "
    "together; let the gate end it"
)
NO_ENCODING = (
    "this connection has no encoding (client_encoding is SQL_ASCII), so text cannot be told from bytes. Give it one: "
    "SET client_encoding = 'UTF8'"
)
STATEMENT_IN_PROGRESS = (
    "one of your statements has not been read to its end, so SQLite cannot end the transaction; fetch all rows of your "
    "INSERT, UPDATE or DELETE ... RETURNING, or close its cursor"
)


def find_adapter(connection: Any) -> Any:
    """The module that knows this kind of connection."""
    found = _found.get(type(connection))
    if found is None:
        found = _found[type(connection)] = _find(connection)
    return found


_found: WeakKeyDictionary[type, Any] = WeakKeyDictionary()
"""What was found for a type of connections."""


def _find(connection: Any) -> Any:
    for base in type(connection).__mro__:
        module = ADAPTERS.get(base.__module__.partition(".")[0])
        if module is not None:
            return import_module(module)
    known = sorted(library for library in ADAPTERS if not library.startswith("_"))
    raise ConfigurationError(
        f"atomic mode does not support connections of {type(connection).__module__.partition('.')[0]}."
        f"{type(connection).__name__}; it supports those of {', '.join(known)}"
    )


def unwrapped_store(joins: OwnTables | None, store: object) -> object:
    """The store whose tables the records are in: it may be wrapped by another, which has passed this on."""
    return store if joins is None else joins.store


def store_with_tables(store: object) -> object:
    """The store in whose database steps of ours may be run beside the records; refused if it has a way of its own."""
    joins = capabilities_of(store).joins
    if joins is not None and not isinstance(joins, OwnTables):
        raise ConfigurationError(
            f"{type(store).__name__} joins connections in a way of its own, which is for records only: what else is "
            "written in your transaction (an outbox) needs a gate on sqlite:/// or postgresql://"
        )
    return unwrapped_store(joins, store)
