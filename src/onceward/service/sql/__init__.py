"""
The SQL engine of `onceward serve`: tenants' SQLite databases, with keys and plans, in processes of their own.

No HTTP in here: the service, and whoever wants the engine in an application of their own, call it.

    async with Engine("databases") as engine:
        await engine.create("acme", "shop")
        await engine.query("acme", "shop", "CREATE TABLE orders (id TEXT PRIMARY KEY)", identity=Step(...))
        await engine.query("acme", "shop", "INSERT INTO orders VALUES (?)", ["o-17"], identity=Keyed(...))
"""

from onceward.protocol.errors import DatabaseUnknown, EngineClosed, NameInvalid, SqlError, SqlKind
from onceward.protocol.sql_values import Value
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
    "SqlEngine",
    "SqlError",
    "SqlKind",
    "SqlResult",
    "SqlStatement",
    "SqliteEngine",
    "Step",
    "TableInfo",
    "Value",
]
