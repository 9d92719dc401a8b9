"""
Erases the databases of one tenant on PostgreSQL: schemas, roles and records, whether or not a service runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

from onceward._core.errors import ConfigurationError
from onceward._core.keys import ENVIRONMENTS
from onceward.runtime.environment import REAL, Environment
from onceward.service.access.stored_records import TableRecords
from onceward.service.access.tenant_erasure import ErasureProgress, erase_records
from onceward.service.sql.database_files import namespace_of
from onceward.service.sql.postgres.tenant_schemas import SCHEMA, dropping
from onceward.stores.tables import Sql, SqlSteps, open_tables
from onceward.stores.tables.sql_steps import declare_failpoints

AT = "sql.erase"
_LIST = "SELECT database FROM onceward_databases WHERE namespace = :namespace ORDER BY database"
_FORGET = "DELETE FROM onceward_databases WHERE namespace = :namespace AND database = :database RETURNING schema_name"

declare_failpoints({AT: "a database of an erased tenant is dropped"})


def erase_schemas(url: str, tenant: str, environment: Environment = REAL) -> Iterator[str]:
    """
    Drop a tenant's databases of both environments, telling the name of each that is gone; then the records of its keys.

    Nothing, where no service keeps databases. Each goes in a transaction of its own: a kill leaves something that the
    same command brings to its end.
    """
    try:
        driver = open_tables(url, SCHEMA, environment, create=False)
    except ConfigurationError:
        return
    with closing(driver):
        for one in ENVIRONMENTS:
            namespace = namespace_of(one, tenant)
            for database in driver.look(partial(_listed, namespace)):
                if driver.transact(AT, partial(_drop, namespace, database)):
                    yield database
        for _ in erase_records(TableRecords(driver), tenant, ErasureProgress(0, 0)):
            pass


def _listed(namespace: str) -> SqlSteps[list[str]]:
    return [name for (name,) in (yield Sql(_LIST, {"namespace": namespace}))]


def _drop(namespace: str, database: str) -> SqlSteps[bool]:
    found = yield Sql(_FORGET, {"namespace": namespace, "database": database})
    for (schema,) in found:
        for statement in dropping(schema):
            yield Sql(statement, {})
    return bool(found)
