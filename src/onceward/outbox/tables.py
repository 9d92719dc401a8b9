"""
Where messages wait: in the caller's own database, beside the rows that they tell of.

A store's URL names that database, as it does for `gate.atomic`. The tables are made by `onceward relay init`, by a
relay, or by `gate.outbox(connection)` when it is first asked; never inside the caller's transaction.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward.environment import Environment
from onceward.stores import check_url
from onceward.tables.schema import Schema
from onceward.tables.steps import Driver

OUTBOX = Schema("outbox", "onceward.outbox", latest=1, absent="`onceward relay init` makes them")

_PATIENCE = 1.0
"""Seconds to wait for SQLite's write lock when making the tables: the caller's own transaction may have it."""


def open_outbox(url: str, environment: Environment, *, create: bool) -> Driver:
    """The messages of the database that a URL names; with `create`, the tables are made if they are not there."""
    check_url(url)
    match urlsplit(url).scheme.lower():
        case "sqlite":
            from onceward.stores._sqlite_file import parse as parse_sqlite
            from onceward.tables.sqlite import SqliteDriver

            path, options = parse_sqlite(url)
            return SqliteDriver.opened(path, OUTBOX, environment, options.busy_seconds, create=create)
        case "postgresql" | "postgres":
            from onceward.stores._postgres_url import parse as parse_postgres
            from onceward.tables.postgres import PostgresDriver

            return PostgresDriver.opened(parse_postgres(url), OUTBOX, create=create)
    raise ConfigurationError(
        "an outbox is in the database of the rows that its messages tell of: SQLite or PostgreSQL; this store is "
        "neither"
    )


_made: weakref.WeakSet[Any] = weakref.WeakSet()
"""Stores in whose database the tables were seen."""
_making = threading.Lock()


def are_made(store: Any) -> bool:
    """Whether the tables were seen in the database of a store."""
    return store in _made


def made_once(store: Any, environment: Environment) -> None:
    """The tables, looked for once for each store."""
    with _making:
        if store not in _made:
            make_tables(store, environment)
            _made.add(store)


def make_tables(store: Any, environment: Environment) -> None:
    """Make the tables in the database of a gate's store, on a connection of our own, unless they are there."""
    if (path := getattr(store, "path", None)) is not None:
        from onceward.tables.sqlite import SqliteDriver

        try:
            SqliteDriver.opened(path, OUTBOX, environment, _PATIENCE, create=True).close()
        except StoreUnavailable as error:
            raise ConfigurationError(
                f"{path} has no tables for messages yet, and they cannot be made while a transaction is writing there; "
                "make them once, before: `onceward relay init`, or call Gate.outbox(connection) before the transaction"
            ) from error
        return
    if (target := getattr(store, "target", None)) is not None:
        from onceward.tables.postgres import PostgresDriver

        PostgresDriver.opened(target, OUTBOX, create=True).close()
        return
    raise ConfigurationError(
        "this gate's store is neither a SQLite file nor a PostgreSQL database, so no message could share your "
        "transaction; open the gate on the same database: Gate('postgresql://...', ...)"
    )
