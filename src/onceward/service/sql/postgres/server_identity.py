"""
The identity of a PostgreSQL database of tenants' SQL: a random number in a table of ours, the same for its standbys.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial

from onceward.runtime.environment import REAL, Environment
from onceward.service.sql.postgres.tenant_schemas import SCHEMA
from onceward.service.sql_home import POSTGRESQL, SqlHome, SqlHomeHold, hold_sql_home
from onceward.stores import open_store
from onceward.stores._postgres_url import parse
from onceward.stores.tables import Sql, SqlSteps, open_tables
from onceward.stores.tables.sql_steps import declare_failpoints

declare_failpoints({"sql_home.server": "a database of tenants' SQL has an identity"})

_ADD = """INSERT INTO onceward_sql_tenants (name, value) VALUES ('identity', :value)
    ON CONFLICT (name) DO NOTHING"""
_FIND = "SELECT value FROM onceward_sql_tenants WHERE name = 'identity'"


def server_home(url: str, environment: Environment = REAL) -> SqlHome:
    """The database that a URL names, as a home of tenants' databases. It is given an identity, if it has none."""
    with closing(open_store(url, environment=environment)) as store:
        store.load(bytes(32))  # Makes the records' own tables, beside which ours are made.
    driver = open_tables(url, SCHEMA, environment, create=True)
    try:
        value = int.from_bytes(environment.random(8)) >> 1
        id = driver.transact("sql_home.server", partial(_identify, value))
    finally:
        driver.close()
    return SqlHome(POSTGRESQL, f"{id:016x}", parse(url).name)


@asynccontextmanager
async def hold_server(url: str, server: str, environment: Environment = REAL) -> AsyncIterator[SqlHomeHold]:
    """
    Hold the database `server` as the home of the databases of the store at `url`, for the length of a block.

    It is one place, whoever asks: the server itself decides each key.
    """
    home = await asyncio.to_thread(server_home, server, environment)
    async with hold_sql_home(url, home, home.id, environment) as hold:
        yield hold


def _identify(value: int) -> SqlSteps[int]:
    yield Sql(_ADD, {"value": value})
    [(found,)] = yield Sql(_FIND, {})
    return int(found)
