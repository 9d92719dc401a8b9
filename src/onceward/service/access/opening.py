"""
Where tokens, tenants and balances are kept: beside the records that a store's URL names.

    sqlite:///agent.db          agent.access.db, and agent.access.pepper, in the same folder
    postgresql://.../shop       the same database; the pepper comes from ONCEWARD_PEPPER
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError
from onceward.environment import Environment
from onceward.service.access.peppers import Peppers, peppers_of
from onceward.stores import check_url
from onceward.tables import Driver, Schema, open_tables

SCHEMA = Schema("access", "onceward.service.access", 1, "`onceward tenant create NAME` makes the first tenant")


class Place(NamedTuple):
    """What a URL leads to, opened."""

    driver: Driver
    records: Driver
    """Of the store itself: to count and to erase."""
    peppers: Peppers
    url: str
    """Of the store."""

    def close(self) -> None:
        """Let go of files and connections."""
        self.driver.close()
        if self.records is not self.driver:
            self.records.close()


def open_place(url: str, environment: Environment, *, create: bool) -> Place:
    """Open the place that belongs to a store, and make it if it may be made."""
    check_url(url)
    match urlsplit(url).scheme.lower():
        case "sqlite":
            return _sqlite(url, environment, create=create)
        case "postgresql" | "postgres":
            return _postgres(url, environment, create=create)
    raise ConfigurationError(
        "tokens and tenants are kept beside the records of a SQLite or PostgreSQL store; this store is neither"
    )


def _sqlite(url: str, environment: Environment, *, create: bool) -> Place:
    from onceward.stores._sqlite_file import parse
    from onceward.tables.sqlite import SqliteDriver

    path, options = parse(url)
    real = Path(os.path.realpath(path))
    driver = open_tables(url, SCHEMA, environment, create=create)
    try:
        peppers = peppers_of(real.with_name(f"{real.stem}.access.pepper"), environment.random, create=create)
    except BaseException:
        driver.close()
        raise
    return Place(driver, SqliteDriver(real, environment, options.busy_seconds), peppers, url)


def _postgres(url: str, environment: Environment, *, create: bool) -> Place:
    peppers = peppers_of(None, environment.random, create=create)
    driver = open_tables(url, SCHEMA, environment, create=create)
    return Place(driver, driver, peppers, url)
