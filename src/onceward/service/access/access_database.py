"""
Where tokens, tenants and balances are kept: beside the records that a store's URL names.

    sqlite:///agent.db          agent.access.db, and agent.access.pepper, in the same folder
    postgresql://.../shop       the same database; the pepper comes from ONCEWARD_PEPPER
    of another package          beside the database that its kind names (`StoreKind.tables`)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError
from onceward.runtime.environment import Environment
from onceward.service.access.peppers import Peppers, load_peppers
from onceward.service.access.stored_records import StoredRecords, StoreRecords, TableRecords
from onceward.stores import open_store, tables_url
from onceward.stores.tables import Schema, TablesDriver, open_tables

SCHEMA = Schema("access", "onceward.service.access", 2, "`onceward tenant create NAME` makes the first tenant")


class AccessDatabase(NamedTuple):
    """What a URL leads to, opened."""

    driver: TablesDriver
    records: StoredRecords
    """Of the store itself: to count and to erase."""
    peppers: Peppers
    url: str
    """Of the store."""

    def close(self) -> None:
        """Let go of files and connections."""
        self.driver.close()
        self.records.close()


def open_access_database(url: str, environment: Environment, *, create: bool) -> AccessDatabase:
    """Open the access database of a store; make it if `create` allows that."""
    beside = tables_url(url) or ""
    match urlsplit(beside).scheme.lower():
        case "sqlite":
            driver, peppers = _sqlite(beside, environment, create=create)
        case "postgresql" | "postgres":
            peppers = load_peppers(None, environment.random, create=create)
            driver = open_tables(beside, SCHEMA, environment, create=create)
        case _:
            raise ConfigurationError("this store cannot hold tokens and tenants. Use a SQLite or PostgreSQL store")
    try:
        return AccessDatabase(driver, _records(url, beside, driver, environment), peppers, url)
    except BaseException:
        driver.close()
        raise


def _sqlite(url: str, environment: Environment, *, create: bool) -> tuple[TablesDriver, Peppers]:
    from onceward.stores._sqlite_file import parse

    real = Path(os.path.realpath(parse(url)[0]))
    driver = open_tables(url, SCHEMA, environment, create=create)
    try:
        return driver, load_peppers(real.with_name(f"{real.stem}.access.pepper"), environment.random, create=create)
    except BaseException:
        driver.close()
        raise


def _records(url: str, beside: str, driver: TablesDriver, environment: Environment) -> StoredRecords:
    """The records: in tables of ours, in the file or database itself; otherwise the store knows where."""
    if beside != url:
        return StoreRecords(open_store(url, environment=environment))
    if urlsplit(url).scheme.lower() != "sqlite":
        return TableRecords(driver)
    from onceward.stores._sqlite_file import parse
    from onceward.stores.tables.sqlite_driver import SqliteDriver

    path, options = parse(url)
    return TableRecords(SqliteDriver(Path(os.path.realpath(path)), environment, options.busy_seconds))
