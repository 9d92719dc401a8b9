"""
`open_sql`: the SQL of one service, whatever is behind it: the engine, and what reads beside it.

    sql = ""                    SQLite files in the service's folder; workers run the statements
    sql = "postgresql://..."    schemas of that database; several services may share it
    without_sql                 none, and nothing that would read them
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onceward._core.sealing import Sealer
from onceward.service.access.access_tables import OtherUsage, RanLookup, others_know
from onceward.service.planted_tables import check_tables
from onceward.service.settings import DATABASES, Settings, store_url_of
from onceward.service.sql.database_files import NO_DATABASES
from onceward.service.sql.database_records import DatabaseRecords
from onceward.service.sql.database_usage import measure_usage
from onceward.service.sql.dialects import POSTGRES, SQLITE, SqlDialect
from onceward.service.sql.engine import SqlEngine, SqliteEngine
from onceward.service.sql.limits import Limits
from onceward.service.sql.ran_operations import find_ran
from onceward.service.sql.worker_sandbox import SandboxOptions, SandboxReport
from onceward.service.sql_home import SqlHomeHold, hold_folder

if TYPE_CHECKING:
    from onceward.service.seal import TenantSeal


async def _is_here() -> None:
    """Files are there, or the first request says otherwise."""


class ServiceSql(NamedTuple):
    """The SQL of one service."""

    engine: SqlEngine | None
    """None: the service is without SQL."""
    records: Any
    """The records of keyed SQL, for operators (`RecordsInDatabases`)."""
    usage: OtherUsage
    """What tenants hold in their databases."""
    ran: RanLookup
    """Which operations ran, for charges whose holder died."""
    confined: SandboxReport | None
    """What holds tenants' SQL in; None: there is none."""
    check: Callable[[], Awaitable[None]] = _is_here
    """Whether the databases can be reached; an error otherwise."""


def dialect_of(settings: Settings) -> SqlDialect:
    """What depends on the database behind a service's SQL."""
    return POSTGRES if settings.sql else SQLITE


@asynccontextmanager
async def open_sql(
    settings: Settings, limits: Limits, seal: TenantSeal | None, sealer: Sealer | None
) -> AsyncIterator[ServiceSql]:
    """The SQL of a service with these settings, for the length of a block. What is under way is finished first."""
    if settings.without_sql:
        yield ServiceSql(None, DatabaseRecords(NO_DATABASES), partial(measure_usage, NO_DATABASES), others_know, None)
        return
    opened = None if sealer is None else sealer.opened
    opening = _on_postgres if settings.sql else _in_files
    # First of all: with two homes of databases for one store, a key would run in both.
    async with _hold_home(settings) as home, opening(settings, limits, seal, opened) as sql:
        if sql.engine is not None:
            home.when_lost(sql.engine.close)
        yield sql


def _hold_home(settings: Settings) -> AbstractAsyncContextManager[SqlHomeHold]:
    """Where the databases are, known to the store."""
    url = store_url_of(settings)
    if not settings.sql:
        return hold_folder(url, settings.folder)
    from onceward.service.sql.postgres.server_identity import hold_server

    return hold_server(url, settings.sql)


@asynccontextmanager
async def _in_files(
    settings: Settings, limits: Limits, seal: TenantSeal | None, opened: Any
) -> AsyncIterator[ServiceSql]:
    databases = Path(settings.folder) / DATABASES
    engine = SqliteEngine(
        databases,
        limits=limits,
        writers=settings.writers,
        readers=settings.readers,
        retain=settings.retain,
        after_expiry="run",
        sandbox=SandboxOptions(settings.worker_sandbox, settings.worker_user),
        seal=seal,
        sealed_only=settings.sealed_only,
    )
    async with engine:
        confined = await engine.start()
        records = DatabaseRecords(databases, opened=opened)
        yield ServiceSql(engine, records, partial(measure_usage, databases), partial(find_ran, databases), confined)


@asynccontextmanager
async def _on_postgres(
    settings: Settings, limits: Limits, seal: TenantSeal | None, opened: Any
) -> AsyncIterator[ServiceSql]:
    # Here: most services keep their databases in files, and have neither the driver nor the parser.
    from onceward.service.sql.postgres import PostgresEngine
    from onceward.service.sql.postgres.schema_records import SchemaRecords

    await asyncio.to_thread(check_tables, settings.sql)
    engine = PostgresEngine(
        settings.sql,
        limits=limits,
        retain=settings.retain,
        after_expiry="run",
        in_flight_seconds=settings.in_flight_seconds if settings.in_flight == "wait" else 0.0,
        seal=seal,
        sealed_only=settings.sealed_only,
    )
    async with engine:
        confined = await engine.start()
        records = await asyncio.to_thread(SchemaRecords, settings.sql, opened=opened)
        try:
            elsewhere = not await asyncio.to_thread(records.are_in, store_url_of(settings))
            yield ServiceSql(
                engine, records, partial(records.usage, records=elsewhere), records.ran, confined, engine.check
            )
        finally:
            await asyncio.to_thread(records.close)
