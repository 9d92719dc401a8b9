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
from onceward.service.access.steps import Driver
from onceward.stores import check_url


class Place(NamedTuple):
    """What a URL leads to, opened."""

    driver: Driver
    records: Driver
    """Of the store itself: to count and to erase."""
    peppers: Peppers

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
    from onceward.service.access.sqlite import SqliteDriver
    from onceward.stores._sqlite_file import parse

    path, options = parse(url)
    real = Path(os.path.realpath(path))
    driver = SqliteDriver.opened(
        real.with_name(f"{real.stem}.access{real.suffix}"), environment, options.busy_seconds, create=create
    )
    peppers = peppers_of(real.with_name(f"{real.stem}.access.pepper"), environment.random, create=create)
    return Place(driver, SqliteDriver(real, environment, options.busy_seconds), peppers)


def _postgres(url: str, environment: Environment, *, create: bool) -> Place:
    from onceward.service.access.postgres import PostgresDriver
    from onceward.stores._postgres_url import parse

    peppers = peppers_of(None, environment.random, create=create)
    driver = PostgresDriver.opened(parse(url), create=create)
    return Place(driver, driver, peppers)
