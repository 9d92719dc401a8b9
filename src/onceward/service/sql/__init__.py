"""
The SQL engine of `onceward serve`: tenants' SQLite databases, with keys and plans, in processes of their own; or, in
`postgres`, schemas of a PostgreSQL database.

Only `app.py` speaks HTTP; the engine can be used in any application. Keys are kept in the tenant's own file, so that a
record commits together with what its statement writes. May import `protocol`, `gate`, `access` and `web`, and no other
app. Start with `engine.py`; then `worker_supervisor.py` (this side of a worker process) and `worker.py` (the other).

    async with SqliteEngine("databases") as engine:
        await engine.create("acme", "shop")
        await engine.query("acme", "shop", "CREATE TABLE orders (id TEXT PRIMARY KEY)", identity=Step(...))
        await engine.query("acme", "shop", "INSERT INTO orders VALUES (?)", ["o-17"], identity=Keyed(...))
"""

from onceward.protocol.errors import DatabaseUnknown, EngineClosed, NameInvalid, SqlError, SqlKind
from onceward.protocol.sql_values import Value
from onceward.service.sql.costs import SqlCost, cost_of
from onceward.service.sql.database_files import DatabaseName
from onceward.service.sql.engine import SqlEngine, SqliteEngine
from onceward.service.sql.key_terms import KeyTerms
from onceward.service.sql.limits import DEFAULT_LIMITS, Limits
from onceward.service.sql.local_database import LocalDatabase
from onceward.service.sql.requests import (
    ColumnInfo,
    Identity,
    Keyed,
    Params,
    SqlBatchResult,
    SqlResult,
    SqlStatement,
    Step,
    TableInfo,
)

__all__ = [
    "DEFAULT_LIMITS",
    "ColumnInfo",
    "DatabaseName",
    "DatabaseUnknown",
    "EngineClosed",
    "Identity",
    "KeyTerms",
    "Keyed",
    "Limits",
    "LocalDatabase",
    "NameInvalid",
    "Params",
    "SqlBatchResult",
    "SqlCost",
    "SqlEngine",
    "SqlError",
    "SqlKind",
    "SqlResult",
    "SqlStatement",
    "SqliteEngine",
    "Step",
    "TableInfo",
    "Value",
    "cost_of",
]
