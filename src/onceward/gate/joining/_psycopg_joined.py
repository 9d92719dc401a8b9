# Made from _psycopg_joined_async.py by `make halves`: change that file, not this one.
"""
The caller's own psycopg connection: what `Statements` wants is sent on it.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from onceward import drive
from onceward._core.connection import Finishing
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


def join(connection: Any, store: object) -> JoinedPsycopg:
    """See `onceward.gate.joining.join`."""
    return JoinedPsycopg(connection, _home(connection, store))


def walk(connection: Any, store: object, steps: Steps[T]) -> T:
    """See `onceward.gate.joining.walk`. What has not begun yet begins by itself, and the caller commits."""
    home = _home(connection, store)
    check_usable(connection, "what is written")
    # A cursor of our own kind: the caller's may take other placeholders.
    with home.translated(psycopg.Error), psycopg.Cursor[Row](connection, row_factory=tuple_row) as cursor:
        if not home.knows(connection):
            cursor.execute(rows.IDENTITY)
            [theirs] = cursor.fetchall()
            home.recognise(theirs)
            home.remember(connection)

        def ask(sql: Sql) -> list[Row]:
            cursor.execute(*home.spelled(sql))
            return cursor.fetchall()

        return drive.walk(steps, ask)


def _home(connection: Any, store: object) -> PostgresHome:
    """The database that this connection is to be open on; refused if it is of another colour or library."""
    home = home_for(store, "Gate")
    if not isinstance(connection, psycopg.Connection):
        raise ConfigurationError(
            f"atomic mode of a Gate knows psycopg.Connection, not {type(connection).__name__}; for an "
            "AsyncConnection use AsyncGate"
        )
    return home


class JoinedPsycopg(Finishing):
    """The caller's `psycopg.Connection`."""

    def __init__(self, connection: psycopg.Connection[Any], home: PostgresHome) -> None:
        self._connection = connection
        self._home = home
        self._statements = Statements(connection, home)

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return has_ended(self._connection)

    def begin(self) -> bool:
        """See `Joined.begin`."""
        return self._run(self._statements.begin())

    def put(self, write: Write, expect: bytes | None) -> Standing:
        """See `Joined.put`."""
        return self._run(self._statements.put(write, expect))

    def load(self, id: bytes) -> Record | None:
        """Look at a record inside the transaction."""
        return self._run(self._statements.load(id))

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """See `Joined.extend`."""
        return self._run(self._statements.extend(family, replay, forget))

    def finish(self, write: Write, expect: bytes | None) -> Standing:
        """Put and commit in one round trip; if it does not land, roll back."""
        return self._run(self._statements.finish(write, expect))

    def commit(self) -> None:
        """See `Joined.commit`."""
        self._run(self._statements.commit())

    def rollback(self) -> bool:
        """See `Joined.rollback`."""
        return self._run(self._statements.rollback())

    def _run(self, flow: Flow[T]) -> T:
        return drive.walk(flow, self._perform)

    def _perform(self, effect: Send | Undo | Identify) -> Any:
        if isinstance(effect, Identify):
            return self._home.address
        connection = self._connection
        answers: list[Any] = []
        try:
            with connection.lock, closing(talk(connection, effect, answers)) as talking:
                connection.wait(talking)
        except DRIVER_ERRORS as error:
            raise failed_at(connection, effect, answers, error) from error
        return answers
