"""
Steps of ours in the transaction of the caller's psycopg connection, of either colour.
"""

from __future__ import annotations

import weakref
from typing import Any, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from onceward._core.errors import ConfigurationError, IllegalMove
from onceward.gate.joining import NO_ENCODING
from onceward.gate.joining._psycopg_talk import Connection, loses_words
from onceward.gate.joining.homes import FAILED, PostgresHome
from onceward.stores import _postgres_rows as rows
from onceward.tables.steps import Steps, walked

T = TypeVar("T")

_verified: weakref.WeakKeyDictionary[Connection, tuple[Any, ...]] = weakref.WeakKeyDictionary()
"""Connections that have been looked at and found good, and what they are connected to."""


def walk_on(connection: psycopg.Connection[Any], store: Any, steps: Steps[T]) -> T:
    """See `onceward.gate.joining.walk`. What has not begun yet begins by itself, and the caller commits."""
    _check(connection)
    home = PostgresHome(store)
    ours = home.address
    # A cursor of our own kind: the caller's may take other placeholders.
    with home.translated(psycopg.Error), psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        if _verified.get(connection) != ours:
            home.check(cursor)
            _verified[connection] = ours
        return walked(steps, lambda sql: home.ask(cursor, sql))


async def walk_on_async(connection: psycopg.AsyncConnection[Any], store: Any, steps: Steps[T]) -> T:
    """Same as `walk_on`, but awaits."""
    _check(connection)
    home = PostgresHome(store)
    await home.introduce()
    ours = home.address
    with home.translated(psycopg.Error):
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            if _verified.get(connection) != ours:
                await cursor.execute(rows.IDENTITY)
                [theirs] = await cursor.fetchall()
                home.recognise(theirs)
                _verified[connection] = ours
            try:
                sql = next(steps)
                while True:
                    await cursor.execute(*home.spelled(sql))
                    sql = steps.send(await cursor.fetchall())
            except StopIteration as stop:
                answer: T = stop.value
                return answer


def _check(connection: Connection) -> None:
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise ConfigurationError(
            "this connection is in pipeline mode, where errors arrive late; write this outside of connection.pipeline()"
        )
    if loses_words(connection):
        raise ConfigurationError(NO_ENCODING)
    status = TransactionStatus(connection.pgconn.transaction_status)
    if status == TransactionStatus.INERROR:
        raise IllegalMove(FAILED)
    if status == TransactionStatus.IDLE and connection.autocommit:
        raise ConfigurationError(
            "this connection is in autocommit, so what is written would commit alone; use connection.transaction(), or "
            "a connection that is not in autocommit"
        )
