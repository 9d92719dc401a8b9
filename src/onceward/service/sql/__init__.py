"""
The SQL engine of `onceward serve`: tenants' SQLite databases, with keys and plans, in processes of their own.

No HTTP in here: the service, and whoever wants the engine in an application of their own, call it.

    async with Engine("databases") as engine:
        await engine.create("acme", "shop")
        await engine.query("acme", "shop", "CREATE TABLE orders (id TEXT PRIMARY KEY)", identity=Step(...))
        await engine.query("acme", "shop", "INSERT INTO orders VALUES (?)", ["o-17"], identity=Keyed(...))
"""

from onceward.service.sql.engine import Engine, SqlEngine
from onceward.service.sql.errors import DatabaseUnknown, EngineClosed, NameInvalid, SqlError, SqlKind
from onceward.service.sql.files import DatabaseName
from onceward.service.sql.limits import DEFAULT_LIMITS, Limits
from onceward.service.sql.local import LocalDatabase
from onceward.service.sql.requests import Answer, BatchAnswer, Column, Identity, Keyed, Params, Statement, Step, Table
from onceward.service.sql.terms import KeyTerms
from onceward.service.sql.values import Value

__all__ = [
    "DEFAULT_LIMITS",
    "Answer",
    "BatchAnswer",
    "Column",
    "DatabaseName",
    "DatabaseUnknown",
    "Engine",
    "EngineClosed",
    "Identity",
    "KeyTerms",
    "Keyed",
    "Limits",
    "LocalDatabase",
    "NameInvalid",
    "Params",
    "SqlEngine",
    "SqlError",
    "SqlKind",
    "Statement",
    "Step",
    "Table",
    "Value",
]
