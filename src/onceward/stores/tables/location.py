"""
Where the tables of one subject (tokens, ledger, ...) are: beside the records that a store's URL names.

    sqlite:///agent.db          agent.<subject>.db, in the same folder
    postgresql://.../shop       the same database
    of another package          beside the database that its kind names (`StoreKind.tables`)
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError
from onceward.runtime.environment import Environment
from onceward.stores import tables_url
from onceward.stores.tables.schema import Schema
from onceward.stores.tables.sql_steps import SharedTransactionDriver


def open_tables(url: str, schema: Schema, environment: Environment, *, create: bool) -> SharedTransactionDriver:
    """Open the tables of a subject; with `create`, make them if they are not there."""
    place = tables_url(url) or ""
    match urlsplit(place).scheme.lower():
        case "sqlite":
            from onceward.stores._sqlite_file import parse as parse_sqlite
            from onceward.stores.tables.sqlite_driver import SqliteDriver

            path, options = parse_sqlite(place)
            return SqliteDriver.opened(
                file_beside(path, schema.name), schema, environment, options.busy_seconds, create=create
            )
        case "postgresql" | "postgres":
            from onceward.stores._postgres_url import parse as parse_postgres
            from onceward.stores.tables.postgres_driver import PostgresDriver

            return PostgresDriver.opened(parse_postgres(place), schema, environment, create=create)
    raise ConfigurationError(
        f"the tables of {schema.name} are kept beside the records of a SQLite or PostgreSQL store; this store is "
        "neither"
    )


def file_beside(path: Path, name: str) -> Path:
    """The file of a subject beside a file of records."""
    real = Path(os.path.realpath(path))
    return real.with_name(f"{real.stem}.{name}{real.suffix}")
