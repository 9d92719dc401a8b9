# blocking half: _psycopg_joined.py
"""
The caller's own psycopg connection: what `Statements` wants is sent on it.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from onceward import drive
from onceward._core.colour import AWAITS
from onceward._core.connection_async import AsyncFinishing
from onceward._core.errors import ConfigurationError
from onceward._core.record import Record, Standing, Write
from onceward.gate.joining._postgres_home import PostgresHome
from onceward.gate.joining._psycopg_statements import (
    Flow,
    Identify,
    Statements,
    check_usable,
    failed_at,
    has_ended,
    home_for,
)
from onceward.gate.joining._psycopg_talk import Send, Undo, talk
from onceward.stores import _postgres_rows as rows
from onceward.stores._postgres_errors import DRIVER_ERRORS
from onceward.tables.steps import Row, Sql, Steps

T = TypeVar("T")


def join_async(connection: Any, store: object) -> AsyncJoinedPsycopg:
    """See `onceward.gate.joining.join_async`."""
    return AsyncJoinedPsycopg(connection, _home_async(connection, store))


async def walk_async(connection: Any, store: object, steps: Steps[T]) -> T:
    """See `onceward.gate.joining.walk_async`. What has not begun yet begins by itself, and the caller commits."""
    home = _home_async(connection, store)
    check_usable(connection, "what is written")
    if AWAITS:
        await home.introduce()
    # A cursor of our own kind: the caller's may take other placeholders.
    with home.translated(psycopg.Error):
        async with psycopg.AsyncCursor[Row](connection, row_factory=tuple_row) as cursor:
            if not home.knows(connection):
                await cursor.execute(rows.IDENTITY)
                [theirs] = await cursor.fetchall()
                home.recognise(theirs)
                home.remember(connection)

            async def ask(sql: Sql) -> list[Row]:
                await cursor.execute(*home.spelled(sql))
                return await cursor.fetchall()

            return await drive.walk_async(steps, ask)


def _home_async(connection: Any, store: object) -> PostgresHome:
    """The database that this connection is to be open on; refused if it is of another colour or library."""
    if AWAITS:
        home = home_for(store, "AsyncGate")
        if not isinstance(connection, psycopg.AsyncConnection):
            raise ConfigurationError(
                f"atomic mode of an AsyncGate knows psycopg.AsyncConnection, not {type(connection).__name__}: waiting "
                "for a racer would stop the event loop; for a blocking connection use Gate"
            )
    else:
        home = home_for(store, "Gate")
        if not isinstance(connection, psycopg.Connection):
            raise ConfigurationError(
                f"atomic mode of a Gate knows psycopg.Connection, not {type(connection).__name__}; for an "
                "AsyncConnection use AsyncGate"
            )
    return home


class AsyncJoinedPsycopg(AsyncFinishing):
    """The caller's `psycopg.AsyncConnection`."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], home: PostgresHome) -> None:
        self._connection = connection
        self._home = home
        self._statements = Statements(connection, home)

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return has_ended(self._connection)

    async def begin(self) -> bool:
        """See `AsyncJoined.begin`."""
        return await self._run(self._statements.begin())

    async def put(self, write: Write, expect: bytes | None) -> Standing:
        """See `AsyncJoined.put`."""
        return await self._run(self._statements.put(write, expect))

    async def load(self, id: bytes) -> Record | None:
        """Look at a record inside the transaction."""
        return await self._run(self._statements.load(id))

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """See `AsyncJoined.extend`."""
        return await self._run(self._statements.extend(family, replay, forget))

    async def finish(self, write: Write, expect: bytes | None) -> Standing:
        """Put and commit in one round trip; if it does not land, roll back."""
        return await self._run(self._statements.finish(write, expect))

    async def commit(self) -> None:
        """See `AsyncJoined.commit`."""
        await self._run(self._statements.commit())

    async def rollback(self) -> bool:
        """See `AsyncJoined.rollback`."""
        return await self._run(self._statements.rollback())

    async def _run(self, flow: Flow[T]) -> T:
        return await drive.walk_async(flow, self._perform)

    async def _perform(self, effect: Send | Undo | Identify) -> Any:
        if isinstance(effect, Identify):
            if AWAITS:
                await self._home.introduce()
            return self._home.address
        connection = self._connection
        answers: list[Any] = []
        try:
            async with connection.lock:
                with closing(talk(connection, effect, answers)) as talking:
                    await connection.wait(talking)
        except DRIVER_ERRORS as error:
            raise failed_at(connection, effect, answers, error) from error
        return answers
