"""
Tables of our own besides the records, on SQLite and on PostgreSQL: statements written once, and one driver for each.

    schema = Schema("ledger", "onceward.service.ledger", latest=1, absent="...")
    driver = open_tables("sqlite:///agent.db", schema, REAL, create=True)       # agent.ledger.db, beside the records
    driver.transact("ledger.emit", steps)                                       # steps: a generator of `Sql`
"""

from onceward.stores.tables.location import open_tables
from onceward.stores.tables.runner import AsyncTablesRunner, TablesRunner
from onceward.stores.tables.schema import Schema
from onceward.stores.tables.sql_steps import (
    Flow,
    ReadTables,
    Row,
    RunSql,
    SharedTransactionDriver,
    Sql,
    SqlSteps,
    TablesDriver,
    Transact,
    one_or_none,
    read_tables,
    transact,
)

__all__ = [
    "AsyncTablesRunner",
    "Flow",
    "ReadTables",
    "Row",
    "RunSql",
    "Schema",
    "SharedTransactionDriver",
    "Sql",
    "SqlSteps",
    "TablesDriver",
    "TablesRunner",
    "Transact",
    "one_or_none",
    "open_tables",
    "read_tables",
    "transact",
]
