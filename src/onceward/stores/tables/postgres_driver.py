"""
The tables driver for PostgreSQL: in the records' own database, so that several replicas share tokens and balances.

Connections, what errors mean and what is tried again are those of the store (`stores/_postgres_*`). A connection that
was lost before anything was sent on it is replaced; a commit whose answer was lost, or that did not wait for its
synchronous standby, is told as `StoreUnavailable`: a reservation made then lapses, and a retry finds itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from psycopg import Connection

from onceward._core.errors import OncewardError
from onceward.runtime import failpoints
from onceward.runtime.environment import REAL, Environment
from onceward.runtime.flow_driver import drive_steps
from onceward.stores._postgres_flow import SCRIPT_LOCK_SECONDS, ConnectionEffect, with_retries
from onceward.stores._postgres_pool import PostgresConnection, PostgresPool
from onceward.stores._postgres_rows import DURABLE, TRACE, US
from onceward.stores._postgres_url import PostgresTarget
from onceward.stores._postgres_wire import DEFAULT_CONVERSION
from onceward.stores.tables.schema import Schema
from onceward.stores.tables.sql_steps import Row, RunSql, Sql, SqlSteps

T = TypeVar("T")

CONNECTIONS = 4
"""Of one process: as many as there are threads that ask for an awaiting service."""

_US = US.format("statement_timestamp()")
_BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{{}}'; SELECT {DURABLE}"
_COMMIT = (
    "SELECT CASE WHEN txid_current_if_assigned() IS NULL AND current_setting('synchronous_standby_names') <> '' "
    f"THEN {TRACE} END; COMMIT"
).encode()
"""
With a synchronous standby, a transaction that found everything done already waits for it, too: what it found may have
been committed by one whose wait was cut short, and whoever is told "done" must not lose it in a failover.
"""
# Not to_regclass: somebody may make the tables while we wait for the lock, and it remembers that there were none.
_HAS_TABLE = """SELECT EXISTS (SELECT FROM pg_class
    WHERE relname = '{}' AND relkind = 'r' AND pg_table_is_visible(oid))"""
_WORD = re.compile(r":(\w+)")
_WORDS = {
    "{lock}": "FOR UPDATE",
    "{free}": "FOR UPDATE SKIP LOCKED",
    "{bytes}": 'COLLATE "C"',
    "{turn}": "pg_advisory_xact_lock(hashtextextended(CAST(:turn AS text), 0))",
}


class PostgresDriver:
    """One database."""

    dialect = "postgres"

    def __init__(self, target: PostgresTarget, environment: Environment = REAL) -> None:
        self._target = target
        lends = min(CONNECTIONS, target.pool_size)
        self._pool = PostgresPool(target, environment, lends=lends, reading=DEFAULT_CONVERSION, schema=None)
        self._begin = _BEGIN.format(target.lock_timeout).encode()

    @classmethod
    def opened(
        cls, target: PostgresTarget, schema: Schema, environment: Environment = REAL, *, create: bool
    ) -> PostgresDriver:
        """The database with our tables in it, made if they may be."""
        driver = cls(target, environment)
        try:
            driver._run(lambda line: _bring_up_to_date(line, schema, target.name, create=create))
        except BaseException:
            driver.close()
            raise
        return driver

    def transact(self, at: str, steps: Callable[[], SqlSteps[T]]) -> T:
        """Run steps in one transaction that may write: all of it, or nothing."""
        return self.share(at, lambda _, ask: drive_steps(steps(), ask))

    def share(self, at: str, work: Callable[[PostgresConnection, RunSql], T]) -> T:
        """Run work that needs the connection in one transaction: a record that commits with the rows."""
        has_begun = False

        def run(line: PostgresConnection) -> T:
            nonlocal has_begun
            has_begun = False
            line.execute(self._begin)
            has_begun = True
            try:
                result = work(line, sql_runner(line))
            except OncewardError:
                line.execute(b"ROLLBACK")
                raise
            failpoints.hit(f"{at}.written")
            line.execute(_COMMIT)
            return result

        return self._run(run, lambda: has_begun)

    def look(self, steps: Callable[[], SqlSteps[T]]) -> T:
        """Run steps that only read."""
        return self._run(lambda line: drive_steps(steps(), sql_runner(line)))

    def wipe(self) -> None:
        """Nothing to do: the server's own vacuum removes deleted rows."""

    def close(self) -> None:
        """Close files and connections."""
        self._pool.close()

    def _run(self, work: Callable[[PostgresConnection], T], may_have_landed: Callable[[], bool] | None = None) -> T:
        """
        Do something with one connection, and again if that is worth it.

        After an error it is closed, and with it what was begun; but a refusal of ours has ended its transaction, and an
        empty balance must not cost a new connection a call.
        """
        result: T = self._pool.run(with_retries(self._target, ConnectionEffect(work), may_have_landed))
        return result


def _bring_up_to_date(line: PostgresConnection, schema: Schema, name: str, *, create: bool) -> None:
    if _version(line, schema, name) == schema.latest:
        return
    line.silence_seconds += SCRIPT_LOCK_SECONDS  # Waiting for somebody else's migration is no silence of the server's.
    try:
        line.execute(b"BEGIN; SET LOCAL lock_timeout = '%ds'" % SCRIPT_LOCK_SECONDS)
        line.execute(b"SELECT pg_advisory_xact_lock(%d)" % schema.lock)
        before = _version(line, schema, name)
        if not before and not create:
            raise schema.none_yet(name)
        for number, script in schema.migrations("postgres", before):
            line.execute(script.encode())
            line.execute(schema.set_version(number).encode())
        line.execute(b"COMMIT")
    finally:
        line.silence_seconds -= SCRIPT_LOCK_SECONDS


def _version(line: PostgresConnection, schema: Schema, name: str) -> int:
    if line.execute(_HAS_TABLE.format(schema.marker).encode()).fetchone() != (True,):
        return 0
    return schema.understood(line.execute(schema.version.encode()).fetchall(), name)


def sql_runner(connection: Connection[Any]) -> Callable[[Sql], list[Row]]:
    """What runs one statement of `steps` on a connection."""

    def ask(sql: Sql) -> list[Row]:
        if sql.rows is None:
            cursor = connection.execute(translate_sql(sql.text), sql.values)
        else:
            columns = [list(column) for column in zip(*sql.rows, strict=True)]
            cursor = connection.execute(_with_rows(sql.text, sql.types), columns)
        return cursor.fetchall() if cursor.description else []

    return ask


@lru_cache(maxsize=64)
def _with_rows(text: str, types: tuple[str, ...]) -> bytes:
    """An array for each column: one text, however many rows."""
    arrays = ", ".join(f"%s::{type}[]" for type in types)
    return text.replace("{rows}", f"SELECT * FROM unnest({arrays})").encode()  # noqa: S608 - types of ours


@lru_cache(maxsize=512)
def translate_sql(text: str) -> bytes:
    """The words of `steps` in PostgreSQL's."""

    def word(found: re.Match[str]) -> str:
        return _US if found[1] == "now" else f"%({found[1]})s"

    for ours, theirs in _WORDS.items():
        text = text.replace(ours, theirs)
    return _WORD.sub(word, text).encode()
