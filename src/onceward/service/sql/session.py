"""
A hardened SQLite connection that runs a tenant's statements within their limits.

Workers and the local database use the same `Session`. It runs statements inside a transaction that somebody else began
and will end; it keeps no state between two requests.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from onceward._core.errors import OncewardError
from onceward.protocol.errors import SqlError, SqlKind
from onceward.protocol.sql_values import json_text, to_json, to_sqlite
from onceward.runtime.environment import REAL, Environment
from onceward.service.sql.authorizer import (
    OWN_PREFIX,
    TABLE_FUNCTIONS,
    AuthorizerMode,
    SqlAuthorizer,
    readonly_error,
)
from onceward.service.sql.limits import Limits
from onceward.service.sql.quick_functions import QuickFunctions, was_called_off
from onceward.service.sql.requests import SqlRequest
from onceward.service.sql.sqlite_errors import DRIVER_ERRORS, translate_sqlite_error
from onceward.service.sql.statement_parser import SCHEMA_VERBS, WRITES, parse_statement
from onceward.service.sql.statement_timer import StatementTimer
from onceward.service.sql.worker_errors import SliceUsed

T = TypeVar("T")

INSTRUCTIONS_BETWEEN_LOOKS = 10_000
"""Instructions between two looks at the clock: a look costs 30 % at this rate, 60 % at a tenth of it."""
BUSY_SECONDS = 5.0
"""How long to wait for another process's lock: a worker of an engine that has just died may still finish its commit."""
STATEMENTS_REMEMBERED = 1_024
"""More than the driver's cache has."""
NEVER = float("inf")


def connect(path: Path, limits: Limits, *, readonly: bool = False) -> sqlite3.Connection:
    """A connection with every setting that a hostile schema or statement makes necessary; it creates no file."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={'ro' if readonly else 'rw'}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        if hasattr(connection, "setconfig"):  # Python 3.12. Before that, the authorizer alone holds these.
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)  # type: ignore[attr-defined]
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_TRUSTED_SCHEMA, False)  # type: ignore[attr-defined]
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA cache_size = -1000")
        connection.execute("PRAGMA temp_store = MEMORY")  # Under the memory limit, and no files outside of the folder.
        connection.execute("PRAGMA synchronous = FULL")
        if readonly:
            connection.execute("PRAGMA query_only = ON")
        else:
            page = connection.execute("PRAGMA page_size").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {max(limits.database_bytes // page, 16)}")
            connection.execute(f"PRAGMA journal_size_limit = {16 << 20}")
        # The first use of such a function declares it, which looks like a change of the schema to the authorizer.
        for function in sorted(TABLE_FUNCTIONS):
            with suppress(sqlite3.OperationalError):  # A tenant may have a table of that name.
                connection.execute(f"SELECT 1 FROM {function}('[]')").fetchall()  # noqa: S608 - our own list
        for limit, value in limits.of_sqlite().items():
            connection.setlimit(limit, value)
    except BaseException:
        connection.close()
        raise
    return connection


class Session:
    """
    A connection with its guard and its deadline.

    With a `timer` (in a worker) the deadline is one of processor time. A `quick` session gives a request no more than
    a slice of it: what is not done by then, or may be one long instruction, ends as `SliceUsed`.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        limits: Limits,
        environment: Environment = REAL,
        *,
        timer: StatementTimer | None = None,
        quick: bool = False,
    ) -> None:
        self.connection = connection
        self.limits = limits
        self._environment = environment
        self._timer = timer
        self._quick = quick
        self._clock = environment.monotonic if timer is None else timer.clock
        self._seconds = min(limits.slice_seconds, limits.statement_seconds) if quick else limits.statement_seconds
        self._guard = SqlAuthorizer(names_max=limits.compiled_names, quick=quick)
        self._functions = QuickFunctions(connection, limits) if quick else None
        self._needs_short_values: OrderedDict[int, None] = OrderedDict()
        """Hashes of statements that are known to call a function which is quick only with short values."""
        self._deadline = NEVER
        connection.set_authorizer(self._guard.authorize)
        connection.set_progress_handler(self._is_late, INSTRUCTIONS_BETWEEN_LOOKS)

    def close(self) -> None:
        """Let go of the file."""
        if self._functions is not None:
            self._functions.close()
        self.connection.close()

    def run(self, request: SqlRequest) -> dict[str, Any]:
        """
        Run a request's statements; the result as it is stored and sent.

        Everything it raises is an `OncewardError`. What was written before the error is still there: the caller undoes
        it.
        """
        mode = AuthorizerMode.READ if request.readonly else AuthorizerMode.WRITE
        began = self._environment.monotonic()
        try:
            self._begin_time()
            room = _Room(self.limits)
            if not request.batch:
                sql, params = request.statements[0]
                return self._timed(self._one(sql, params, mode, room), began)
            return self._timed(self._batch(request.statements, mode, room), began)
        finally:
            self._end_time()

    def refuse_writes(self, request: SqlRequest) -> None:
        """
        Refuse what writes, without running it: for a caller who may only read, before its key is looked up.

        By its verb, so that the result is the same whether or not its tables are still there. Of the statements that
        are left only a PRAGMA can write, and SQLite is asked about that.
        """
        for number, (sql, _) in enumerate(request.statements):
            verb = parse_statement(sql).verb
            if verb in WRITES or (verb == "PRAGMA" and self._pragma_writes(sql)):
                refusal = readonly_error()
                refusal.statement = number if request.batch else None
                raise refusal

    def _pragma_writes(self, sql: str) -> bool:
        guard = self._guard
        with guard.tenant(AuthorizerMode.READ, "PRAGMA"), closing(self.connection.cursor()) as cursor:
            try:
                cursor.execute(guard.marked(f"EXPLAIN {sql}"))
            except DRIVER_ERRORS:
                return guard.refusal is not None and guard.refusal.kind is SqlKind.READONLY
        return False

    def look(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Do something of the engine's own that reads, under the same deadline."""
        try:
            self._begin_time()
            return action(self.connection)
        except DRIVER_ERRORS as error:
            raise self._meaning(error) from error
        finally:
            self._end_time()

    def _begin_time(self) -> None:
        """From here on a deadline counts. Call `_end_time`, whatever happens."""
        self._deadline = self._clock() + self._seconds
        if self._timer is not None:
            self._timer.begin(self.connection, self._deadline)

    def _end_time(self) -> None:
        if self._timer is not None:
            self._timer.end()
        self._deadline = NEVER

    def _meaning(self, error: BaseException, *, short_values: bool = False) -> OncewardError:
        """The error to raise for one of the driver's."""
        if self._quick:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            too_long = short_values and (code == sqlite3.SQLITE_TOOBIG or "too big" in str(error))
            if code == sqlite3.SQLITE_INTERRUPT or too_long or self._guard.needs_time or was_called_off(error):
                return SliceUsed()
        return translate_sqlite_error(error, self._guard.refusal)

    def _timed(self, document: dict[str, Any], began: float) -> dict[str, Any]:
        milliseconds = (self._environment.monotonic() - began) * 1_000
        return {**document, "meta": {"durationMs": round(milliseconds, 3)}}

    def _batch(self, statements: Iterable[tuple[str, Any]], mode: AuthorizerMode, room: _Room) -> dict[str, Any]:
        results = []
        for number, (sql, params) in enumerate(statements):
            try:
                began = self._environment.monotonic()
                results.append(self._timed(self._one(sql, params, mode, room), began))
            except SqlError as error:
                error.statement = number
                raise
        return {
            "results": results,
            "rowsRead": sum(one["rowsRead"] for one in results),
            "rowsWritten": sum(one["rowsWritten"] for one in results),
        }

    def _one(self, sql: str, params: Any, mode: AuthorizerMode, room: _Room) -> dict[str, Any]:
        verb = parse_statement(sql).verb
        if verb in SCHEMA_VERBS and OWN_PREFIX in sql.lower():
            # A foreign key to our tables, or one of our names for a new table, is nothing that SQLite would ask about.
            raise SqlError(SqlKind.DENIED, f"names with {OWN_PREFIX!r} in them belong to the service")
        values: Any = (
            {name: to_sqlite(value, name) for name, value in params.items()}
            if isinstance(params, dict)
            else [to_sqlite(value, str(number)) for number, value in enumerate(params, 1)]
        )
        before = self.connection.total_changes
        with closing(self.connection.cursor()) as cursor:
            with self._guard.tenant(mode, verb):
                short_values = self._execute(cursor, self._guard.marked(sql), values)
                try:
                    # SQLite describes what it runs itself to carry out an ALTER TABLE.
                    columns = [] if verb in SCHEMA_VERBS else [name for name, *_ in cursor.description or ()]
                    room.take(columns)
                    rows = [room.row(row, columns) for row in cursor]
                except OncewardError:
                    raise
                except DRIVER_ERRORS as error:
                    raise self._meaning(error, short_values=short_values) from error
                finally:
                    self._take_short_values(False)
            written = self.connection.total_changes - before
            inserted = verb in ("INSERT", "REPLACE") and written > 0
            return {
                "columns": columns,
                "rows": rows,
                "rowsRead": len(rows),
                "rowsWritten": written,
                "lastInsertRowid": to_json(cursor.lastrowid, "rowid") if inserted else None,
            }

    def _execute(self, cursor: sqlite3.Cursor, marked: str, values: Any) -> bool:
        """
        Compile and begin; whether no long values are taken, now and while its rows are read.

        What a statement calls is known when it is compiled, and the driver compiles it once and keeps it: so that is
        remembered for longer than the driver keeps it (128 statements).
        """
        statement = hash(marked)
        known = self._quick and statement in self._needs_short_values
        if known:
            self._needs_short_values.move_to_end(statement)
        for short_values in (known, True):
            self._take_short_values(short_values)
            try:
                cursor.execute(marked, values)
            except DRIVER_ERRORS as error:
                self._take_short_values(False)
                if self._guard.needs_short_values and not short_values:
                    self._guard.needs_short_values, self._guard.refusal = False, None
                    self._needs_short_values[statement] = None
                    if len(self._needs_short_values) > STATEMENTS_REMEMBERED:
                        self._needs_short_values.popitem(last=False)
                    continue
                raise self._meaning(error, short_values=short_values) from error
            return short_values
        raise SliceUsed

    def _take_short_values(self, short: bool) -> None:
        if short != self._guard.short_values:
            self._guard.short_values = short
            limit = self.limits.quick_value_bytes if short else self.limits.value_bytes
            self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(limit, self.limits.value_bytes))

    def _is_late(self) -> bool:
        return self._clock() > self._deadline


class _Room:
    """How much a result may still hold."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rows = limits.answer_rows
        # Each statement's share of names, counts and punctuation is in the 50,000 that a record has over.
        self._bytes = limits.answer_bytes

    def take(self, value: Any) -> None:
        """Count a part of the result, or refuse the whole of it."""
        self._bytes -= len(json_text(value).encode()) + 1
        if self._bytes < 0:
            raise SqlError(
                SqlKind.TOO_LARGE,
                f"the result has more than {self._limits.answer_bytes} bytes",
                hint="select fewer columns, or page with LIMIT",
            )

    def row(self, row: tuple[Any, ...], columns: list[str]) -> list[Any]:
        """A row as it is shown, counted."""
        self._rows -= 1
        if self._rows < 0:
            raise SqlError(
                SqlKind.TOO_LARGE, f"the result has more than {self._limits.answer_rows} rows", hint="page with LIMIT"
            )
        values = [to_json(value, column) for value, column in zip(row, columns, strict=True)]
        self.take(values)
        return values
