"""
What a service and an operator do with the home of databases: hold it, look it up, say that it is another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from onceward._core.errors import ConfigurationError
from onceward._core.holders import decode_process
from onceward.runtime.environment import REAL, Environment
from onceward.service.sql_home import home_table
from onceward.service.sql_home.folder_identity import folder_home, folder_place, has_store
from onceward.service.sql_home.home_table import SCHEMA, SqlHolder, SqlHome, SqlHomeElsewhere
from onceward.service.web.problems import log
from onceward.stores.tables import AsyncTablesRunner, TablesRunner, open_tables, read_tables, transact

RENEW_SECONDS: Final = home_table.HELD_SECONDS / 3
"""Between two signs of life."""


class SqlHomeHold:
    """A service's hold on its databases, for as long as it runs."""

    def __init__(
        self, tables: AsyncTablesRunner, home: SqlHome, holder: SqlHolder | None, environment: Environment
    ) -> None:
        self.home = home
        self.is_lost = False
        """Whether the databases are somebody else's now."""
        self._tables = tables
        self._holder = holder
        self._environment = environment
        self._when_lost: Callable[[], Awaitable[None]] | None = None

    def when_lost(self, stop: Callable[[], Awaitable[None]]) -> None:
        """What to do when the databases are somebody else's: to run no more SQL."""
        self._when_lost = stop

    async def claim(self) -> None:
        """Say that databases are here; `SqlHomeElsewhere`."""
        await self._tables.run(transact("sql_home.claim", partial(home_table.claim, self.home, self._holder)))

    async def keep(self) -> None:
        """Give signs of life, until the hold is lost. A store that cannot be reached is asked again."""
        while self._holder is not None and not self.is_lost:
            await self._environment.asleep(RENEW_SECONDS)
            await self.renew()

    async def renew(self) -> None:
        """Give one sign of life. It never raises."""
        if self._holder is None or self.is_lost:
            return
        try:
            await self._tables.run(transact("sql_home.renew", partial(home_table.renew, self.home, self._holder)))
        except SqlHomeElsewhere as error:
            self.is_lost = True
            log.error("this service no longer runs SQL: %s", error)
            if self._when_lost is not None:
                await self._when_lost()
        except Exception as error:  # Whatever it is, the next sign of life comes.
            log.warning(
                "the store could not be told that this service is alive; trying again in %g s: %s", RENEW_SECONDS, error
            )

    async def release(self) -> None:
        """Let go. It never raises: a hold lapses by itself."""
        if self._holder is None:
            return
        try:
            await self._tables.run(transact("sql_home.release", partial(home_table.release, self._holder)))
        except Exception as error:
            log.warning("the hold on the databases was not released, and will lapse by itself: %s", error)


@asynccontextmanager
async def hold_sql_home(
    url: str, home: SqlHome, place: str | None, environment: Environment = REAL
) -> AsyncIterator[SqlHomeHold]:
    """
    Hold the home of a store's databases for the length of a block; `SqlHomeElsewhere`, if it is another one.

    Services at one `place` hold it together; one elsewhere is refused meanwhile. None: there is nobody to be told,
    because the store is in the folder itself.
    """
    driver = await asyncio.to_thread(open_tables, url, SCHEMA, environment, create=True)
    tables = AsyncTablesRunner(TablesRunner(driver), "sql-home")
    try:
        holder = None if place is None else SqlHolder(environment.random(12).hex(), place, _who(home, environment))
        hold = SqlHomeHold(tables, home, holder, environment)
        await hold.claim()
        keeping = asyncio.create_task(hold.keep())
        try:
            yield hold
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})
            await hold.release()
    finally:
        await tables.close()


@asynccontextmanager
async def hold_folder(url: str, folder: str, environment: Environment = REAL) -> AsyncIterator[SqlHomeHold]:
    """Hold the databases of a service's folder for the length of a block. The folder gets its identity first."""
    root = Path(folder)
    home = await asyncio.to_thread(folder_home, root, environment)
    place = None if has_store(root, url) else folder_place(root, environment)
    async with hold_sql_home(url, home, place, environment) as hold:
        yield hold


def find_sql_home(url: str, environment: Environment = REAL) -> SqlHome | None:
    """Where a store's tenants have their databases; None: no service has said so."""
    try:
        driver = open_tables(url, SCHEMA, environment, create=False)
    except ConfigurationError:
        return None  # There are no such tables.
    try:
        return TablesRunner(driver).run(read_tables(home_table.find))
    finally:
        driver.close()


def adopt_sql_home(url: str, home: SqlHome, replacing: str | None, environment: Environment = REAL) -> SqlHome | None:
    """Have a store's databases at another home from now on; the one that was replaced, if any was."""
    driver = open_tables(url, SCHEMA, environment, create=True)
    try:
        return TablesRunner(driver).run(transact("sql_home.adopt", partial(home_table.adopt, home, replacing)))
    finally:
        driver.close()


def _who(home: SqlHome, environment: Environment) -> str:
    process = decode_process(environment.process())
    return f"{home.label}, {process or 'an unknown process'}"
