"""
The outbox's tables: in the caller's own database, beside the rows that its messages are about.

A store's URL names that database, as it does for `gate.atomic`. The tables are made by `onceward relay init`, by a
relay, or by the first `gate.outbox(connection)`; never inside the caller's transaction.
"""

from __future__ import annotations

import threading
import weakref
from urllib.parse import urlsplit

from onceward._core.capabilities import capabilities_of
from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward.runtime.environment import Environment
from onceward.stores import tables_url
from onceward.stores.tables.schema import Schema
from onceward.stores.tables.sql_steps import TablesDriver

OUTBOX = Schema("outbox", "onceward.messaging.outbox", latest=1, absent="`onceward relay init` makes them")

_PATIENCE = 1.0
"""Seconds to wait for SQLite's write lock when making the tables: the caller's own transaction may have it."""


def open_outbox(url: str, environment: Environment, *, create: bool) -> TablesDriver:
    """The messages of the database that a URL names; with `create`, the tables are made if they are not there."""
    return _opened(tables_url(url) or "", environment, None, create=create)


def _opened(place: str, environment: Environment, patience: float | None, *, create: bool) -> TablesDriver:
    match urlsplit(place).scheme.lower():
        case "sqlite":
            from onceward.stores._sqlite_file import parse as parse_sqlite
            from onceward.stores.tables.sqlite_driver import SqliteDriver

            path, options = parse_sqlite(place)
            seconds = options.busy_seconds if patience is None else patience
            return SqliteDriver.opened(path, OUTBOX, environment, seconds, create=create)
        case "postgresql" | "postgres":
            from onceward.stores._postgres_url import parse as parse_postgres
            from onceward.stores.tables.postgres_driver import PostgresDriver

            return PostgresDriver.opened(parse_postgres(place), OUTBOX, environment, create=create)
    raise ConfigurationError(
        "an outbox needs SQLite or PostgreSQL, and this store is neither. Use the database of the rows that its "
        "messages are about"
    )


_stores_with_tables: weakref.WeakSet[object] = weakref.WeakSet()
"""Stores in whose database the tables were seen."""
_making = threading.Lock()


def tables_exist(store: object) -> bool:
    """Whether the tables were seen in the database of a store."""
    return store in _stores_with_tables


def make_tables_once(store: object, environment: Environment) -> None:
    """The tables, looked for once for each store."""
    with _making:
        if store not in _stores_with_tables:
            make_tables(store, environment)
            _stores_with_tables.add(store)


def make_tables(store: object, environment: Environment) -> None:
    """Make the tables in the database of a gate's store, on a connection of our own, unless they are there."""
    place = capabilities_of(store).tables
    if place is None:
        raise ConfigurationError(
            "this gate's store is neither a SQLite file nor a PostgreSQL database, so no message could share your "
            "transaction; open the gate on the same database: Gate('postgresql://...', ...)"
        )
    try:
        _opened(place, environment, _PATIENCE, create=True).close()
    except StoreUnavailable as error:
        if urlsplit(place).scheme.lower() != "sqlite":
            raise
        raise ConfigurationError(
            "the store's file has no tables for messages yet, and they cannot be made during a write "
            "transaction; make them first, once: `onceward relay init`, or call Gate.outbox(connection) before the "
            "transaction"
        ) from error
