# Made from _psycopg_writer_async.py by `make halves`: change that file, not this one.
"""
How `insert_once` runs its statements on the caller's psycopg connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import psycopg
from psycopg.pq import PipelineStatus
from psycopg.rows import tuple_row

_WriteFunctions: TypeAlias = tuple[Callable[[str, list[Any]], int], Callable[[str, list[Any]], list[Any]]]


def write_functions(connection: psycopg.Connection[Any]) -> _WriteFunctions:
    """How many rows a statement wrote, and the rows of one, as tuples."""

    def execute(cursor: psycopg.Cursor[Any], sql: str, values: list[Any]) -> None:
        if connection.pgconn.pipeline_status == PipelineStatus.OFF:
            cursor.execute(sql, values)
            return
        # In the caller's own pipeline a block of ours waits for the answers; otherwise nobody would know how many rows.
        with connection.pipeline():
            cursor.execute(sql, values)

    def run(sql: str, values: list[Any]) -> int:
        # A cursor of our own kind: the caller's may take other placeholders.
        with psycopg.Cursor(connection) as cursor:
            execute(cursor, sql, values)
            return cursor.rowcount

    def ask(sql: str, values: list[Any]) -> list[Any]:
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            execute(cursor, sql, values)
            return cursor.fetchall()

    return run, ask
