"""
What is in a database: its tables and views with their columns, and about how many rows. Ours are left out.
"""

from __future__ import annotations

import sqlite3

from onceward.service.sql.authorizing import is_ours
from onceward.service.sql.requests import Column, Table

COUNT_MAX = 10_000
"""Rows that are counted; past that, an estimate has to do."""
TABLES_MAX = 1_000

_TABLES = (
    "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
    "ORDER BY name LIMIT ?"
)
_COLUMNS = 'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?) WHERE hidden <> 1'


def tables_of(connection: sqlite3.Connection) -> list[Table]:
    """The tenant's tables and views, by name."""
    found = connection.execute(_TABLES, (TABLES_MAX,)).fetchall()
    return [_table(connection, name, kind) for name, kind in found if not is_ours(name)]


def _table(connection: sqlite3.Connection, name: str, kind: str) -> Table:
    try:
        columns = [
            Column(column, type, not notnull, pk > 0)
            for column, type, notnull, pk, _ in connection.execute(_COLUMNS, (name,))
        ]
    except sqlite3.Error:
        columns = []  # A view on a table that is gone.
    if kind == "view":
        return Table(name, kind, columns, None, False)
    quoted = '"' + name.replace('"', '""') + '"'
    counted = connection.execute(f"SELECT count(*) FROM (SELECT 1 FROM {quoted} LIMIT {COUNT_MAX + 1})").fetchone()[0]  # noqa: S608
    if counted <= COUNT_MAX:
        return Table(name, kind, columns, counted, True)
    try:
        highest = connection.execute(f"SELECT max(rowid) FROM {quoted}").fetchone()[0]  # noqa: S608
    except sqlite3.Error:
        highest = None  # WITHOUT ROWID.
    return Table(name, kind, columns, max(counted, highest or 0), False)
