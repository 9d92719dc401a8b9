"""
Erases what a tenant has besides its records and tokens: databases, notes, deltas, events, and texts of decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError
from onceward.audit import DecisionLog, Operator
from onceward.cli.tenant_databases import erase_databases, erase_schemas_of
from onceward.runtime.environment import REAL
from onceward.service.access.scopes import tenant_of
from onceward.stores import tables_url
from onceward.stores.tables import Schema, TablesRunner, open_tables
from onceward.stores.tables.scope_eraser import erase_scopes

DATABASES = "databases"
ROWS = "rows"
KEYS = "keys"


def erase_tenant_data(
    url: str, folder: Path | None, sql: Sequence[str], tenant: str, counted: Counter[str], operator: Operator
) -> Iterator[str]:
    """Erase all of it, and yield the name of each part. If the process is killed, a second run erases the rest."""
    if keys := _erase_keys(url, tenant):
        counted[KEYS] += keys
        yield KEYS
    for name in chain(erase_databases(folder, tenant), erase_schemas_of(sql, tenant)):
        counted[DATABASES] += 1
        yield name
    for schema, at, tables in _schemas():
        rows = _erase_rows(url, schema, at, tables, tenant)
        if rows:
            counted[ROWS] += rows
            yield schema.name
    yield from _erase_records_of_deltas(url, tenant, counted)
    if erase_decisions(url, tenant, operator):
        yield "audit"


def erase_decisions(url: str, tenant: str, operator: Operator) -> int:
    """What the decision log says about the tenant. Its entries stay, and their chain holds."""
    with DecisionLog.open(url) as log:
        return log.erase_tenant(tenant, operator)


def _erase_keys(url: str, tenant: str) -> int:
    """The keys that its values are sealed under: without them, no copy of a row can be read."""
    from onceward.service.seal import erase_tenant_keys

    return erase_tenant_keys(url, tenant)


def _schemas() -> Iterator[tuple[Schema, str, dict[str, str]]]:
    """Schemas, each with its failpoint and tables. Imported here, so that `--help` does not wait for them."""
    from onceward.journal import note_writer
    from onceward.messaging.inbox import event_table
    from onceward.service.ledger import ledger_database

    yield note_writer.SCHEMA, "journal.prune", note_writer.TABLES
    yield ledger_database.SCHEMA, "ledger.erase", ledger_database.TABLES
    yield event_table.SCHEMA, "inbox.erase", event_table.TABLES


def _erase_rows(url: str, schema: Schema, at: str, tables: dict[str, str], tenant: str) -> int:
    try:
        driver = open_tables(url, schema, REAL, create=False)
    except ConfigurationError:
        return 0  # There are no such tables.
    try:
        count = TablesRunner(driver).run(erase_scopes(at, tables, lambda scope: tenant_of(scope) == tenant))
        driver.wipe()
        return count
    finally:
        driver.close()


def _erase_records_of_deltas(url: str, tenant: str, counted: Counter[str]) -> Iterator[str]:
    """On SQLite the records of the ledger's keys are in its own file; elsewhere they are among all the others."""
    beside = tables_url(url) or ""
    if urlsplit(beside).scheme.lower() != "sqlite":
        return
    from onceward.service.access.stored_records import TableRecords
    from onceward.service.access.tenant_erasure import ErasureProgress, erase_records
    from onceward.stores._sqlite_file import parse
    from onceward.stores.tables.location import file_beside
    from onceward.stores.tables.sqlite_driver import SqliteDriver

    path = file_beside(parse(beside)[0], "ledger")
    if not path.exists():
        return
    driver = SqliteDriver(path, REAL)
    try:
        before = 0
        for done in erase_records(TableRecords(driver), tenant, ErasureProgress(0, 0)):
            if done.records > before:
                counted[ROWS] += done.records - before
                before = done.records
                yield "ledger"
        driver.wipe()
    finally:
        driver.close()
