"""
A database on PostgreSQL that is being imported: a schema that no name leads to until it is whole.

The row of `onceward_moves` says how far it is, and changes in the same transactions as the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg

from onceward._core.errors import OncewardError
from onceward.protocol.errors import SqlError
from onceward.runtime import failpoints
from onceward.runtime.environment import REAL
from onceward.service.sql.database_files import DatabaseName
from onceward.service.sql.moving.dialects import from_postgres_text, in_postgres, quoted, to_postgres_text
from onceward.service.sql.moving.import_steps import (
    ADDED,
    COMPARED,
    COMPLETE,
    MADE,
    PUBLISHED,
    ROWS,
    WHOLE,
    Misfit,
    another_is_at_it,
    begun_otherwise,
    exists_already,
)
from onceward.service.sql.moving.moved_records import COLUMNS, MovedRecord, stored_row
from onceward.service.sql.moving.moved_schema import POSTGRESQL, Obstacle
from onceward.service.sql.moving.moved_values import MovedRow, MovedValue
from onceward.service.sql.moving.postgres_connection import MovingConnection, scope_suffix
from onceward.service.sql.moving.postgres_source import PostgresSource
from onceward.service.sql.moving.target_plan import PlannedStatement, PlannedTable, TargetPlan
from onceward.service.sql.postgres.placeholders import numbered
from onceward.service.sql.postgres.statement_checker import CATALOG_QUERY, StatementChecker, catalog_names
from onceward.service.sql.postgres.tenant_schemas import checked_role, new_schema_name, statements_that_make
from onceward.stores._postgres_rows import TYPES

_DONE: Final = "published"
_FLOOR: Final = "UPDATE {0}.onceward_meta SET value = greatest(value, $1::bigint) WHERE name = 'fence_floor'"
_INSTANTS: Final = ("lease_until", "replay_until", "forget_at")


class PostgresMoveTarget:
    """One import into a PostgreSQL database."""

    dialect = POSTGRESQL

    def __init__(self, line: MovingConnection, name: DatabaseName) -> None:
        self._line = line
        self._name = name
        self._schema = ""
        self._checker = StatementChecker(catalog_names(line.ask(CATALOG_QUERY)))

    # What can be known before anything is written.

    def rehearse(self, plan: TargetPlan) -> list[Obstacle]:
        """Make everything in a transaction that is undone; what the service's rules and PostgreSQL refuse."""
        found, line = list[Obstacle](), self._line
        schema = new_schema_name(REAL.random)
        line.ask("BEGIN")
        try:
            for sql in statements_that_make(schema, line.server_version):
                line.ask(sql)
            with line.as_tenant(schema, schema):
                for one in (*plan.before, *plan.after):
                    why = self._refusal(one)
                    if why:
                        found.append(Obstacle(one.what, why))
        finally:
            line.ask("ROLLBACK")
        return found

    def _refusal(self, statement: PlannedStatement) -> str:
        line = self._line
        line.ask("SAVEPOINT one")
        try:
            self._run(statement)
        except (SqlError, psycopg.Error) as error:
            line.ask("ROLLBACK TO one")
            return str(error).partition("\n")[0][:200]
        line.ask("RELEASE one")
        return ""

    def misfits(self, table: PlannedTable, rows: Sequence[MovedRow]) -> Iterator[Misfit]:
        """Values that a table would not give back as they are."""
        texts = [[to_postgres_text(value) for value in row] for row in rows]
        casts = ", ".join(f"c{n}::{type}::text" for n, type in enumerate(table.types))
        try:
            back = self._line.ask(f"SELECT {casts} FROM {_unnested(len(table.types))}", *_columns(texts))  # noqa: S608
        except psycopg.DataError:
            back = [tuple(self._one_by_one(table, row)) for row in texts]
        for number, (row, found) in enumerate(zip(rows, back, strict=True)):
            for place, (value, text) in enumerate(zip(row, found, strict=True)):
                why = _why_not(value, text, table.types[place], needed=table.needed[place])
                if why:
                    yield Misfit(number, place, why)

    def _one_by_one(self, table: PlannedTable, texts: Sequence[str | None]) -> list[Any]:
        """A row of which PostgreSQL refuses something: its values, and errors in place of some."""
        found: list[Any] = []
        for text, type in zip(texts, table.types, strict=True):
            try:
                [[back]] = self._line.ask(f"SELECT $1::text::{type}::text", text)
                found.append(back)
            except psycopg.Error as error:
                found.append(error)
        return found

    # What is written.

    def published(self, digest: str) -> bool:
        """Whether this very file was imported before. If there is another database of that name, it is refused."""
        there = self._line.ask(
            f"SELECT schema_name FROM {self._line.tables}.onceward_databases "  # noqa: S608 - a name of ours
            "WHERE namespace = $1 AND database = $2",
            *self._name,
        )
        moved = self._move()
        if there and moved is not None and (moved[0], moved[1], moved[4]) == (there[0][0], digest, _DONE):
            return True
        if there:
            raise exists_already(self._name.database)
        if moved is not None and moved[4] == _DONE:  # It was dropped since.
            self._forget_move()
        return False

    def begin(self, plan: TargetPlan, digest: str, choices: str) -> tuple[str, int]:
        """Make the tables, or find them made: the stage that it is in, and how many rows and records are in."""
        moved = self._move()
        if moved is None:
            self._make(plan, digest, choices)
            return ROWS, 0
        self._schema, found_digest, found_choices, position, stage = moved
        if (found_digest, found_choices) != (digest, choices):
            raise begun_otherwise()
        return stage, position

    def add_rows(self, table: PlannedTable, rows: Sequence[MovedRow], position: int) -> None:
        """Add rows that stand at a position in the file."""
        names = ", ".join(quoted(one) for one in table.columns)
        casts = ", ".join(f"c{n}::{type}" for n, type in enumerate(table.types))
        sql = (
            f"INSERT INTO {quoted(table.name)} ({names}) OVERRIDING SYSTEM VALUE "  # noqa: S608 - quoted
            f"SELECT {casts} FROM {_unnested(len(table.types))}"
        )
        texts = [[to_postgres_text(value) for value in row] for row in rows]
        with self._line.transaction():
            self._step(position, len(rows))
            with self._line.as_tenant(self._schema, self._schema):
                self._line.ask(sql, *_columns(texts))
        failpoints.hit(ADDED)

    def add_records(self, records: Sequence[MovedRecord], position: int) -> None:
        """Add records that stand at a position in the file, under the ids that they have here."""
        suffix = scope_suffix(self._schema)
        types = ["bigint" if one in _INSTANTS else TYPES[one] for one in COLUMNS]
        arrays = ", ".join(f"${n}::{type}[]" for n, type in enumerate(types, 1))
        sql = (
            f"INSERT INTO {self._line.tables}.onceward_records ({', '.join(COLUMNS)}) "  # noqa: S608 - our names
            f"SELECT * FROM unnest({arrays})"
        )
        with self._line.transaction():
            self._step(position, len(records))
            self._line.ask(sql, *_columns([stored_row(one, suffix) for one in records]))
        failpoints.hit(ADDED)

    def skip(self, count: int, position: int) -> None:
        """Go past rows of a table that is left out."""
        with self._line.transaction():
            self._step(position, count)

    def complete(self, plan: TargetPlan, fence_floor: int) -> None:
        """Indexes, foreign keys, views, numbers, and the fences that no key may get again."""
        line = self._line
        with line.transaction():
            with line.as_tenant(self._schema, self._schema):
                for one in plan.after:
                    self._run(one)
            line.ask(_FLOOR.format(line.tables), fence_floor)
            self._stage(ROWS, WHOLE)
        failpoints.hit(COMPLETE)

    def source(self) -> PostgresSource:
        """What has been imported, to be read again."""
        return PostgresSource(self._line, self._schema, self._schema)

    def publish(self) -> None:
        """Let the name lead to the schema."""
        failpoints.hit(COMPARED)
        line = self._line
        with line.transaction():
            made = line.ask(
                f"INSERT INTO {line.tables}.onceward_databases (namespace, database, schema_name) "  # noqa: S608
                "VALUES ($1, $2, $3) ON CONFLICT (namespace, database) DO NOTHING RETURNING 1",
                *(*self._name, self._schema),
            )
            if not made:
                raise exists_already(self._name.database)
            self._stage(WHOLE, _DONE)
        failpoints.hit(PUBLISHED)

    def discard(self) -> None:
        """Throw away what was begun: the schema, and the records of its keys."""
        moved, line = self._move(), self._line
        if moved is None or moved[4] == _DONE:
            return
        schema, suffix = moved[0], scope_suffix(moved[0])
        with line.transaction():
            line.ask(
                f"DELETE FROM {line.tables}.onceward_records WHERE right(scope, {len(suffix)}) = $1",  # noqa: S608
                suffix,
            )
            with line.as_tenant(schema, schema):
                line.ask(f"DROP SCHEMA {schema} CASCADE")
            line.ask(f"DROP ROLE {schema}")
            self._forget_move()

    def close(self) -> None:
        """Let go of the connection."""
        with suppress(OncewardError, psycopg.Error):
            self._line.close()

    def _run(self, statement: PlannedStatement) -> None:
        """Run a statement that a tenant might have sent."""
        self._checker.check(numbered(statement.sql).sql)
        self._line.ask(statement.sql)

    def _make(self, plan: TargetPlan, digest: str, choices: str) -> None:
        line = self._line
        self._schema = new_schema_name(REAL.random)
        values = (*self._name, self._schema, digest, choices, ROWS)
        with line.transaction():
            made = line.ask(
                f"INSERT INTO {line.tables}.onceward_moves "  # noqa: S608 - a name of ours
                "(namespace, database, schema_name, file_digest, choices, stage, position) "
                "VALUES ($1, $2, $3, $4, $5, $6, 0) ON CONFLICT (namespace, database) DO NOTHING RETURNING 1",
                *values,
            )
            if not made:
                raise another_is_at_it()
            for sql in statements_that_make(self._schema, line.server_version):
                line.ask(sql)
            with line.as_tenant(self._schema, self._schema):
                for one in plan.before:
                    self._run(one)
        failpoints.hit(MADE)

    def _move(self) -> tuple[Any, ...] | None:
        found = self._line.ask(
            f"SELECT schema_name, file_digest, choices, position, stage FROM {self._line.tables}.onceward_moves "  # noqa: S608
            "WHERE namespace = $1 AND database = $2",
            *self._name,
        )
        return (checked_role(found[0][0]), *found[0][1:]) if found else None

    def _forget_move(self) -> None:
        self._line.ask(
            f"DELETE FROM {self._line.tables}.onceward_moves WHERE namespace = $1 AND database = $2",  # noqa: S608
            *self._name,
        )

    def _step(self, position: int, count: int) -> None:
        """Go on from a position; another import that is at the same place waits here, and finds that it lost."""
        moved = self._line.ask(
            f"UPDATE {self._line.tables}.onceward_moves SET position = $4 WHERE namespace = $1 "  # noqa: S608
            "AND database = $2 AND position = $3 RETURNING 1",
            *(*self._name, position, position + count),
        )
        if not moved:
            raise another_is_at_it()

    def _stage(self, before: str, after: str) -> None:
        moved = self._line.ask(
            f"UPDATE {self._line.tables}.onceward_moves SET stage = $4 WHERE namespace = $1 "  # noqa: S608
            "AND database = $2 AND stage = $3 RETURNING 1",
            *(*self._name, before, after),
        )
        if not moved:
            raise another_is_at_it()


def _unnested(count: int) -> str:
    arrays = ", ".join(f"${n}::text[]" for n in range(1, count + 1))
    return f"unnest({arrays}) AS given({', '.join(f'c{n}' for n in range(count))})"


def _columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _why_not(value: MovedValue, found: Any, type: str, *, needed: bool) -> str:
    """Why a value does not fit; empty if it does."""
    if value is None:
        return "is NULL, and the column does not allow that" if needed else ""
    if isinstance(found, psycopg.Error):
        return f"does not fit {type}: {str(found).partition(chr(10))[0][:100]}"
    back = from_postgres_text(found, type)
    if isinstance(value, str):
        fits = back == value and isinstance(back, str)
    else:
        one, two = in_postgres(value, type), in_postgres(back, type)
        fits = one.__class__ is two.__class__ and (one == two or (one != one and two != two))
    return "" if fits else f"is {_kind(value)}, and would come back from {type} otherwise"


def _kind(value: MovedValue) -> str:
    names = {"int": "a whole number", "float": "a number", "str": "text", "bytes": "a blob", "bool": "a truth value"}
    return names[type(value).__name__]
