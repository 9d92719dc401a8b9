"""
What is in a database: its tables and views with their columns, and about how many rows. Ours are left out.
"""

from __future__ import annotations

import sqlite3

from onceward.service.sql.authorizer import is_own_name
from onceward.service.sql.requests import ColumnInfo, TableInfo

COUNT_MAX = 10_000
"""Rows that are counted; past that, an estimate has to do."""
TABLES_MAX = 1_000

_TABLES = (
    "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
    "ORDER BY name LIMIT ?"
)


def read_tables(connection: sqlite3.Connection) -> list[TableInfo]:
    """The tenant's tables and views, by name."""
    found = connection.execute(_TABLES, (TABLES_MAX,)).fetchall()
    return [_table(connection, name, kind) for name, kind in found if not is_own_name(name)]


def _table(connection: sqlite3.Connection, name: str, kind: str) -> TableInfo:
    quoted = '"' + name.replace('"', '""') + '"'
    try:
        columns = [
            ColumnInfo(column, type, not notnull, pk > 0)
            for _, column, type, notnull, _, pk, hidden in connection.execute(f"PRAGMA table_xinfo({quoted})")
            if hidden != 1
        ]
    except sqlite3.OperationalError:
        columns = []  # A view on a table that is gone.
    if kind == "view":
        return TableInfo(name, kind, columns, None, False)
    counted = connection.execute(f"SELECT count(*) FROM (SELECT 1 FROM {quoted} LIMIT {COUNT_MAX + 1})").fetchone()[0]  # noqa: S608
    if counted <= COUNT_MAX:
        return TableInfo(name, kind, columns, counted, True)
    try:
        highest = connection.execute(f"SELECT max(rowid) FROM {quoted}").fetchone()[0]  # noqa: S608
    except sqlite3.Error:
        highest = None  # WITHOUT ROWID.
    return TableInfo(name, kind, columns, max(counted, highest) if isinstance(highest, int) else counted, False)
