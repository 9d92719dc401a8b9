"""
Tables of our own besides the records, on SQLite and on PostgreSQL: statements written once, and one driver for each.

    schema = Schema("ledger", "onceward.service.ledger", latest=1, absent="...")
    driver = open_tables("sqlite:///agent.db", schema, REAL, create=True)       # agent.ledger.db, beside the records
    driver.transact("ledger.emit", steps)                                       # steps: a generator of `Sql`
"""

from onceward.tables.opening import open_tables
from onceward.tables.schema import Schema
from onceward.tables.shells import Awaiting, Blocking
from onceward.tables.steps import (
    Ask,
    Driver,
    Flow,
    Look,
    Row,
    Shared,
    Sql,
    Steps,
    Transact,
    looked,
    one,
    transacted,
)

__all__ = [
    "Ask",
    "Awaiting",
    "Blocking",
    "Driver",
    "Flow",
    "Look",
    "Row",
    "Schema",
    "Shared",
    "Sql",
    "Steps",
    "Transact",
    "looked",
    "one",
    "open_tables",
    "transacted",
]
