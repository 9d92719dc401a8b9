# blocking half: _psycopg_writer.py
"""
How `insert_once_async` runs its statements on the caller's psycopg connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import psycopg
from psycopg.pq import PipelineStatus
from psycopg.rows import tuple_row

_WriteFunctions: TypeAlias = tuple[
    Callable[[str, list[Any]], Awaitable[int]], Callable[[str, list[Any]], Awaitable[list[Any]]]
]


def write_functions_async(connection: psycopg.AsyncConnection[Any]) -> _WriteFunctions:
    """How many rows a statement wrote, and the rows of one, as tuples."""

    async def execute(cursor: psycopg.AsyncCursor[Any], sql: str, values: list[Any]) -> None:
        if connection.pgconn.pipeline_status == PipelineStatus.OFF:
            await cursor.execute(sql, values)
            return
        # In the caller's own pipeline a block of ours waits for the answers; otherwise nobody would know how many rows.
        async with connection.pipeline():
            await cursor.execute(sql, values)

    async def run(sql: str, values: list[Any]) -> int:
        # A cursor of our own kind: the caller's may take other placeholders.
        async with psycopg.AsyncCursor(connection) as cursor:
            await execute(cursor, sql, values)
            return cursor.rowcount

    async def ask(sql: str, values: list[Any]) -> list[Any]:
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await execute(cursor, sql, values)
            return await cursor.fetchall()

    return run, ask
