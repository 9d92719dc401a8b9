"""
Deleting what some scopes have in the tables of a subject: in small transactions, so that nobody else waits for long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from onceward.stores.tables.sql_steps import Flow, Row, Sql, SqlSteps, read_tables, transact

BATCH = 500

_SCOPES = "SELECT DISTINCT scope FROM {table}"
_DELETE = """DELETE FROM {table} WHERE ({key}) IN (
    SELECT {key} FROM {table} WHERE scope = :scope LIMIT :limit) RETURNING 1"""


def erase_scopes(at: str, tables: Mapping[str, str], owns: Callable[[str], bool]) -> Flow[int]:
    """
    Delete every row whose scope is owned; how many.

    `tables` are names and the columns of their keys; one that refers to another comes before it. `at` names failpoints.
    """
    total = 0
    for table, key in tables.items():
        for (scope,) in (yield from read_tables(partial(_scopes, table))):
            if owns(scope):
                while deleted := (yield from transact(at, partial(_delete, table, key, scope))):
                    total += deleted
    return total


def _scopes(table: str) -> SqlSteps[list[Row]]:
    return (yield Sql(_SCOPES.format(table=table), {}))


def _delete(table: str, key: str, scope: str) -> SqlSteps[int]:
    return len((yield Sql(_DELETE.format(table=table, key=key), {"scope": scope, "limit": BATCH})))
