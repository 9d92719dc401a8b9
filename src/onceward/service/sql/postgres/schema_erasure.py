"""
Erases the databases of one tenant on PostgreSQL: schemas, roles and records, whether or not a service runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import NamedTuple

from onceward._core.errors import ConfigurationError
from onceward._core.keys import ENVIRONMENTS
from onceward.runtime.environment import REAL, Environment
from onceward.service.access.stored_records import TableRecords
from onceward.service.access.tenant_erasure import ErasureProgress, erase_records
from onceward.service.sql.database_files import namespace_of
from onceward.service.sql.moving.postgres_connection import MOVES
from onceward.service.sql.postgres.tenant_schemas import SCHEMA, dropping
from onceward.stores.tables import Schema, Sql, SqlSteps, open_tables
from onceward.stores.tables.sql_steps import declare_failpoints

AT = "sql.erase"
_LIST = "SELECT database FROM {table} WHERE namespace = :namespace ORDER BY database"
_FORGET = "DELETE FROM {table} WHERE namespace = :namespace AND database = :database RETURNING {columns}"


class _Kept(NamedTuple):
    """A table that names schemas of tenants."""

    schema: Schema
    table: str
    columns: str
    """Of a row: its schema, and whether it is this table's to drop."""


_KEPT = (
    _Kept(SCHEMA, "onceward_databases", "schema_name, true"),
    # What a killed import left is the tenant's data as well. One that was published is a database above.
    _Kept(MOVES, "onceward_moves", "schema_name, stage <> 'published'"),
)

declare_failpoints({AT: "a database of an erased tenant is dropped"})


def erase_schemas(url: str, tenant: str, environment: Environment = REAL) -> Iterator[str]:
    """
    Drop a tenant's databases of both environments, telling the name of each that is gone; then the records of its keys.

    Nothing, where no service keeps databases. Each goes in a transaction of its own: a kill leaves something that the
    same command brings to its end.
    """
    for kept in _KEPT:
        yield from _erased(url, tenant, kept, environment)


def _erased(url: str, tenant: str, kept: _Kept, environment: Environment) -> Iterator[str]:
    try:
        driver = open_tables(url, kept.schema, environment, create=False)
    except ConfigurationError:
        return
    with closing(driver):
        for one in ENVIRONMENTS:
            namespace = namespace_of(one, tenant)
            for database in driver.look(partial(_listed, kept, namespace)):
                if driver.transact(AT, partial(_drop, kept, namespace, database)):
                    yield database
        for _ in erase_records(TableRecords(driver), tenant, ErasureProgress(0, 0)):
            pass


def _listed(kept: _Kept, namespace: str) -> SqlSteps[list[str]]:
    return [name for (name,) in (yield Sql(_LIST.format(table=kept.table), {"namespace": namespace}))]


def _drop(kept: _Kept, namespace: str, database: str) -> SqlSteps[bool]:
    forget = _FORGET.format(table=kept.table, columns=kept.columns)
    found = yield Sql(forget, {"namespace": namespace, "database": database})
    dropped = [role for role, is_its_own in found if is_its_own]
    for role in dropped:
        for statement in dropping(role):
            yield Sql(statement, {})
    return bool(dropped)
