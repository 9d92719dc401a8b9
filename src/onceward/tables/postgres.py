"""
The driver for PostgreSQL: the records' own database, so that several replicas share tokens and balances.

A few connections, opened by whoever needs one. A connection that was lost before anything was sent on it is replaced; a
commit whose answer was lost, or that did not wait for its synchronous standby, is told as `StoreUnavailable`: a
reservation made then lapses, and a retry finds itself.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar

from psycopg import Connection
from psycopg.pq import TransactionStatus

from onceward import failpoints
from onceward._core.errors import OncewardError, StoreUnavailable
from onceward.drive import walk
from onceward.stores._postgres_errors import (
    DRIVER_ERRORS,
    Verdict,
    meaning_of,
    meaning_of_no_connection,
    no_free_connection,
    verdict,
)
from onceward.stores._postgres_links import Line
from onceward.stores._postgres_url import Target
from onceward.tables.schema import Schema
from onceward.tables.steps import Ask, Row, Sql, Steps

T = TypeVar("T")

CONNECTIONS = 4
"""Of one process: as many as there are threads that ask for an awaiting service."""
TRIES = 3
"""Of a transaction that met a deadlock, or a connection that had died while nobody used it."""

_US = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{}'; "
    "SELECT CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') "
    "THEN set_config('synchronous_commit', 'on', true) END"
)
_COMMIT = (
    b"SELECT CASE WHEN txid_current_if_assigned() IS NULL AND current_setting('synchronous_standby_names') <> '' "
    b"THEN pg_logical_emit_message(true, 'onceward', '') END; COMMIT"
)
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
    "{turn}": "pg_advisory_xact_lock(hashtextextended(CAST(:turn AS text), 0))",
}


class PostgresDriver:
    """One database."""

    dialect = "postgres"

    def __init__(self, target: Target) -> None:
        self._target = target
        self._free = threading.Semaphore(min(CONNECTIONS, target.pool_size))
        self._idle: list[Line] = []
        self._begin = _BEGIN.format(target.lock_timeout).encode()
        self._closed = False
        self._ever = False

    @classmethod
    def opened(cls, target: Target, schema: Schema, *, create: bool) -> PostgresDriver:
        """The database with our tables in it, made if they may be."""
        driver = cls(target)
        try:
            with driver._borrowed() as line:
                _bring_up_to_date(line, schema, target.name, create=create)
        except BaseException:
            driver.close()
            raise
        return driver

    def transact(self, at: str, steps: Callable[[], Steps[T]]) -> T:
        """See `Driver.transact`."""
        return self.share(at, lambda _, ask: walk(steps(), ask))

    def share(self, at: str, work: Callable[[Line, Ask], T]) -> T:
        """See `Driver.share`."""
        has_begun = False

        def run(line: Line) -> T:
            nonlocal has_begun
            has_begun = False
            line.execute(self._begin)
            has_begun = True
            try:
                answer = work(line, asking(line))
            except OncewardError:
                line.execute(b"ROLLBACK")
                raise
            failpoints.hit(f"{at}.written")
            line.execute(_COMMIT)
            return answer

        return self._tried(run, changes_nothing=lambda: not has_begun)

    def look(self, steps: Callable[[], Steps[T]]) -> T:
        """See `Driver.look`."""
        return self._tried(lambda line: walk(steps(), asking(line)), changes_nothing=lambda: True)

    def wipe(self) -> None:
        """See `Driver.wipe`. The server's vacuum does that, in its own time."""

    def close(self) -> None:
        """See `Driver.close`."""
        self._closed = True
        self._drop_idle()

    def _tried(self, run: Callable[[Line], T], *, changes_nothing: Callable[[], bool]) -> T:
        tries = TRIES
        while True:
            tries -= 1
            try:
                with self._borrowed() as line:
                    return run(line)
            except DRIVER_ERRORS as error:
                judged = verdict(error)
                if tries and (judged is Verdict.AGAIN or (judged is Verdict.LOST and changes_nothing())):
                    self._drop_idle()
                    continue
                raise meaning_of(error, self._target.name) from error

    @contextmanager
    def _borrowed(self) -> Iterator[Line]:
        """
        A connection for one transaction.

        After an error it is closed, and with it what was begun; but a refusal of ours has ended its transaction, and an
        empty balance must not cost a new connection a call.
        """
        seconds = self._target.lock_seconds
        if not self._free.acquire(timeout=seconds):
            raise no_free_connection(self._target.name, CONNECTIONS, seconds)
        line: Line | None = None
        try:
            line = self._taken()
            yield line
        except OncewardError:
            if line is not None:
                self._given_back(line)
            raise
        except BaseException:
            if line is not None:
                with suppress(*DRIVER_ERRORS):
                    line.close()
            raise
        else:
            self._given_back(line)
        finally:
            self._free.release()

    def _taken(self) -> Line:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connected()

    def _given_back(self, line: Line) -> None:
        if self._closed or line.pgconn.transaction_status != TransactionStatus.IDLE:
            line.close()
        else:
            self._idle.append(line)

    def _connected(self) -> Line:
        target = self._target
        if self._closed:
            raise StoreUnavailable(f"{target.name} was closed")
        try:
            # Nothing is prepared: a pooler may stand between.
            line: Line = Line.connect(autocommit=True, prepare_threshold=None, **target.parameters)
        except DRIVER_ERRORS as error:
            raise meaning_of_no_connection(error, target.name, ever_connected=self._ever) from error
        line.silence_seconds = target.lock_seconds + target.answer_seconds
        self._ever = True
        return line

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()


def _bring_up_to_date(line: Line, schema: Schema, name: str, *, create: bool) -> None:
    try:
        if _version(line, schema, name) == schema.latest:
            return
        line.execute(b"BEGIN; SET LOCAL lock_timeout = '30s'")
        line.execute(b"SELECT pg_advisory_xact_lock(%d)" % schema.lock)
        before = _version(line, schema, name)
        if not before and not create:
            raise schema.none_yet(name)
        for number, script in schema.migrations("postgres", before):
            line.execute(script.encode())
            line.execute(schema.set_version(number).encode())
        line.execute(b"COMMIT")
    except DRIVER_ERRORS as error:
        raise meaning_of(error, name) from error


def _version(line: Line, schema: Schema, name: str) -> int:
    if line.execute(_HAS_TABLE.format(schema.marker).encode()).fetchone() != (True,):
        return 0
    return schema.understood(line.execute(schema.version.encode()).fetchall(), name)


def asking(connection: Connection[Any]) -> Callable[[Sql], list[Row]]:
    """What runs one statement of `steps` on a connection."""

    def ask(sql: Sql) -> list[Row]:
        cursor = connection.execute(translated(sql.text), sql.values)
        return cursor.fetchall() if cursor.description else []

    return ask


@lru_cache(maxsize=512)
def translated(text: str) -> bytes:
    """The words of `steps` in PostgreSQL's."""

    def word(found: re.Match[str]) -> str:
        return _US if found[1] == "now" else f"%({found[1]})s"

    for ours, theirs in _WORDS.items():
        text = text.replace(ours, theirs)
    return _WORD.sub(word, text).encode()
