"""
Tables of ours that hold no records (tokens, ledger, journal, outbox, ...), on SQLite and on PostgreSQL.

Rules are steps: generators that yield `Sql` and get rows, written once for both databases. A driver runs them in a
transaction, and brings the tables of a `Schema` up to date.

    schema = Schema("ledger", "onceward.service.ledger", latest=1, absent="...")
    driver = open_tables("sqlite:///agent.db", schema, REAL, create=True)       # agent.ledger.db, beside the records
    driver.transact("ledger.emit", steps)                                       # steps: a generator of `Sql`

May import: `_core`, `runtime`, and the parts of `stores` that open files and connections.

Start with `sql_steps.py` (what steps may say), then `sqlite_driver.py`.
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
