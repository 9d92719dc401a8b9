"""
SQLite: looks at a table, and applies the migration in transactions so short that other writers get their turn.

Each batch is one transaction of its own, so that a kill loses at most a batch, and the next run goes on with the rows
that still lack a key. The last batch and the triggers are one transaction: no row can slip in between.
"""

# ruff: noqa: S608 - names come from `quote`, and values are bound

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from onceward._core.errors import ConfigurationError
from onceward.migrate import statements
from onceward.migrate.database import PASSES, UNFINISHED_MAX, Application, Migrator
from onceward.migrate.hashing import LABEL, Hash, historical_key
from onceward.migrate.reporting import Backfill, Say
from onceward.migrate.table import (
    KEY,
    WORKER,
    Dialect,
    MigrationRefused,
    MigrationStep,
    Progress,
    Table,
    check_name,
    quote,
)
from onceward.runtime.environment import REAL
from onceward.stores._sqlite_file import DRIVER_ERRORS, parse, translate_error

_FUNCTION = "onceward_historical_key"
_PAUSE_SECONDS_MAX = 0.1
_UNFINISHED = f"""SELECT t.name FROM pragma_table_list AS t
    WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'onceward\\_%' ESCAPE '\\'
    AND (SELECT count(*) FROM pragma_table_info(t.name) AS c WHERE lower(c.name) IN ('{WORKER}', '{KEY}')) = 2
    ORDER BY t.name"""
"""Tables with both columns, besides our own."""


@contextmanager
def open_sqlite(url: str, lock_seconds: float) -> Iterator[SqliteMigrator]:
    """The file that a URL names; it must be there."""
    path, _ = parse(url)
    if not path.is_file():
        raise ConfigurationError(f"there is no file {path}. Write the path of your database: sqlite:///app.db")
    try:
        with closing(_connect(path, lock_seconds)) as connection:
            yield SqliteMigrator(path, connection)
    except DRIVER_ERRORS as error:
        raise translate_error(error, path) from error


def _connect(path: Path, lock_seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=lock_seconds, isolation_level=None)
    connection.create_function(_FUNCTION, 1, historical_key, deterministic=True)
    return connection


class SqliteMigrator:
    """One file."""

    dialect: Dialect = "sqlite"

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    def look(self, name: str, schema: str, how: Hash) -> Table:
        """The table, if it can be migrated; nothing is changed."""
        check_name(name, "sqlite")
        if schema:
            raise MigrationRefused("SQLite has no schemas: leave --schema out")
        if how == "pgcrypto":
            raise MigrationRefused("pgcrypto exists only in PostgreSQL. Leave --hash out, or choose --hash application")
        kinds = self._rows(
            "SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND lower(name) = lower(?)", name
        )
        if not kinds:
            raise MigrationRefused(f"there is no table {name!r} in {self._path}. Write it as it is in the database")
        name, kind = kinds[0]
        if kind != "table":
            raise MigrationRefused(
                f"{name!r} is a {kind}, and only a table can have a key. Name the table that has its rows"
            )
        columns = {
            row[0]: row
            for row in self._rows("SELECT name, type, pk, dflt_value, hidden FROM pragma_table_xinfo(?)", name)
        }
        ids = [column for column, row in columns.items() if row[2]]
        if len(ids) != 1:
            raise MigrationRefused(
                f"{name!r} has no primary key, from which the keys of existing rows are made. Add one first"
                if not ids
                else f"the primary key of {name!r} has {len(ids)} columns, and the keys of existing rows are made from "
                "one. Write its migration by hand, with a key made from all columns"
            )
        self._check_columns(name, columns)
        table = Table("sqlite", "", name, ids[0], self._type_of_ids(name, ids[0]))
        self._check_names(table)
        return table

    def _check_columns(self, name: str, columns: dict[str, tuple[Any, ...]]) -> None:
        """What is there under the names of our columns must be what we would have added."""
        for column, declared, _, default, hidden in columns.values():
            if str(column).lower() not in (WORKER, KEY):
                continue
            is_text = any(word in str(declared).upper() for word in ("CHAR", "CLOB", "TEXT"))
            if not is_text or "INT" in str(declared).upper() or hidden:
                raise MigrationRefused(
                    f"{name}.{column} already exists with the type {declared or 'none'}, and must be text. "
                    "Rename it first"
                )
            if default is not None:
                raise MigrationRefused(
                    f"{name}.{column} has the default {default}, so rows without a key would all get the same key. "
                    "Remove the default first"
                )

    def _type_of_ids(self, name: str, id: str) -> str:
        """Ids must be all numbers or all texts: 1 and '1' would have one key."""
        kinds = [kind for (kind,) in self._rows(f"SELECT DISTINCT typeof({quote(id)}) FROM {quote(name)}")]
        if len(kinds) > 1 or not set(kinds) <= {"integer", "text"}:
            raise MigrationRefused(
                f"the ids of {name!r} must be all integers or all text, but there are: "
                f"{', '.join(sorted(kinds))}. Correct those rows first"
            )
        return kinds[0].upper() if kinds else "TEXT"

    def _check_names(self, table: Table) -> None:
        """What has the name of our index or triggers must be ours."""
        ours = {table.constraint: "index", **dict.fromkeys(statements.trigger_names(table), "trigger")}
        for name, kind in ours.items():
            for found, on in self._rows("SELECT type, tbl_name FROM sqlite_schema WHERE name = ?", name):
                if (found, on) != (kind, table.name) or (kind == "index" and not self._is_ours(table)):
                    raise MigrationRefused(f"there is another {found} named {name}. Rename it first")

    def _is_ours(self, table: Table) -> bool:
        columns = self._rows("SELECT name FROM pragma_index_info(?) ORDER BY seqno", table.constraint)
        kinds = self._rows(
            'SELECT "unique", partial FROM pragma_index_list(?) WHERE name = ?', table.name, table.constraint
        )
        return [name for (name,) in columns] == [WORKER, KEY] and kinds == [(1, 0)]

    def progress_of(self, table: Table) -> Progress:
        """How far the table has come."""
        columns = self._missing_columns(table)
        names = {name for (name,) in self._rows("SELECT name FROM sqlite_schema WHERE tbl_name = ?", table.name)}
        return Progress(
            not columns,
            not columns and not self._rows(f"SELECT 1 FROM {table.quoted} WHERE {statements.MISSING} LIMIT 1"),
            set(statements.trigger_names(table)) <= names,
            table.constraint in names,
        )

    def unfinished(self) -> list[tuple[str, str]]:
        """Tables whose migration has not come to its end."""
        return [("", name) for (name,) in self._rows(_UNFINISHED) if not self._is_unique(name)][:UNFINISHED_MAX]

    def _is_unique(self, name: str) -> bool:
        """Whether an index keeps worker and key from being there twice."""
        indexes = self._rows('SELECT name FROM pragma_index_list(?) WHERE "unique" = 1 AND partial = 0', name)
        return any(
            {column.lower() for (column,) in self._rows("SELECT name FROM pragma_index_info(?)", index) if column}
            == {WORKER, KEY}
            for (index,) in indexes
        )

    def apply(self, table: Table, wanted: Application, say: Say) -> int:
        """Do what is left; the number of rows that got a key."""
        if not self.progress_of(table).added:
            say("add: two nullable columns")
            with self._transaction():
                for column in self._missing_columns(table):
                    self._connection.execute(f"ALTER TABLE {table.quoted} ADD COLUMN {quote(column)} TEXT")
        if wanted.until is MigrationStep.ADD:
            return 0
        ((missing,),) = self._rows(f"SELECT count(*) FROM {table.quoted} WHERE {statements.MISSING}")
        say(f"backfill: {missing:,} rows without a key")
        rows = Backfill(say, missing)
        for _ in range(PASSES):
            before = rows.rows
            self._backfill(table, wanted.batch_rows, rows)
            if rows.rows - before < wanted.batch_rows:
                break
        if wanted.until is MigrationStep.BACKFILL:
            return rows.rows
        if not self.progress_of(table).tightened:
            say("tighten: two triggers refuse NULL")
            with self._transaction():
                rows.add(self._fill(table, "", ()))
                for name, trigger in zip(statements.trigger_names(table), statements.triggers(table), strict=True):
                    if not self._rows("SELECT 1 FROM sqlite_schema WHERE name = ?", name):
                        self._connection.execute(trigger)
        if wanted.until is MigrationStep.CONSTRAIN and not self.progress_of(table).constrained:
            say(f"constrain: unique index {table.constraint}")
            self._check_doubles(table)
            with self._transaction():
                for statement in statements.up(table, MigrationStep.CONSTRAIN, wanted.how):
                    self._connection.execute(statement.replace(" INDEX ", " INDEX IF NOT EXISTS ", 1))
        return rows.rows

    def _missing_columns(self, table: Table) -> list[str]:
        found = {name.lower() for (name,) in self._rows("SELECT name FROM pragma_table_info(?)", table.name)}
        return [column for column in (WORKER, KEY) if column not in found]

    def _backfill(self, table: Table, batch_rows: int, rows: Backfill) -> None:
        """Walk through the ids that are there now, once: after those that others add meanwhile it would never end."""
        id, last = table.id, None
        ((highest,),) = self._rows(f"SELECT max({id}) FROM {table.quoted}")
        while True:
            began = REAL.monotonic()
            after = f"{id} <= ? AND" if last is None else f"{id} <= ? AND {id} > ? AND"
            values = (highest,) if last is None else (highest, last)
            batch = f"SELECT {id} FROM {table.quoted} WHERE {after} ({statements.MISSING}) ORDER BY {id} LIMIT ?"
            with self._transaction():
                ((end,),) = self._rows(f"SELECT max({id}) FROM ({batch})", *values, batch_rows)
                filled = 0 if end is None else self._fill(table, f"{after} {id} <= ? AND", (*values, end))
            if end is None:
                return
            rows.add(filled)
            last = end
            # Others wait for the file by trying again now and then: leave it to them for as long as we had it.
            REAL.sleep(min(_PAUSE_SECONDS_MAX, REAL.monotonic() - began))

    def _fill(self, table: Table, where: str, values: tuple[object, ...]) -> int:
        text = f"CAST({table.id} AS TEXT)"
        change = f"SET {quote(WORKER)} = '{LABEL}', {quote(KEY)} = {_FUNCTION}({text})"
        cursor = self._connection.execute(
            f"UPDATE {table.quoted} {change} WHERE {where} ({statements.MISSING})", values
        )
        return cursor.rowcount

    def _check_doubles(self, table: Table) -> None:
        columns = f"{quote(WORKER)}, {quote(KEY)}"
        doubles = self._rows(f"SELECT {columns} FROM {table.quoted} GROUP BY {columns} HAVING count(*) > 1 LIMIT 1")
        if doubles:
            raise MigrationRefused(
                f"two rows have the worker {doubles[0][0]!r} and the key {doubles[0][1]!r}, so a unique index "
                "is not possible. Decide which row stays, then run this again: what is done stays done"
            )

    def execute(self, statements: list[str]) -> None:
        """Run statements in one transaction."""
        with self._transaction():
            for statement in statements:
                self._connection.execute(statement)

    def describe(self, table: Table) -> list[str]:
        """The table's columns, indexes, triggers and rows as lines, to be compared."""
        columns = self._rows('SELECT name, type, "notnull", dflt_value FROM pragma_table_info(?)', table.name)
        lines = [f"column {name} {type}{' NOT NULL' if strict else ''}" for name, type, strict, _ in columns]
        made = self._rows(
            "SELECT type, name FROM sqlite_schema WHERE tbl_name = ? AND type <> 'table' ORDER BY 1, 2", table.name
        )
        lines += [f"{kind} {name}" for kind, name in made]
        ((rows,),) = self._rows(f"SELECT count(*) FROM {table.quoted}")
        lines.append(f"rows {rows}")
        for title, names in (
            ("content", [name for name, *_ in columns if name not in (WORKER, KEY)]),
            ("keys", [name for name, *_ in columns if name in (WORKER, KEY)]),
        ):
            if names:
                digest = hashlib.sha256()
                listed = ", ".join(f"quote({quote(name)})" for name in names)
                for row in self._connection.execute(f"SELECT {listed} FROM {table.quoted} ORDER BY {table.id}"):
                    digest.update(repr(row).encode())
                lines.append(f"{title} sha256 {digest.hexdigest()[:16]}")
        return lines

    @contextmanager
    def copy(self, table: Table, bytes_max: int) -> Iterator[tuple[Migrator, Table]]:
        """The whole file, copied while others write to it."""
        size = self._path.stat().st_size
        if size > bytes_max:
            raise MigrationRefused(
                f"{self._path} has {size:,} bytes, and a rehearsal copies at most {bytes_max:,}. Rehearse on a smaller "
                "copy of your own, or allow more with --copy-max"
            )
        with tempfile.TemporaryDirectory(prefix="onceward-rehearsal-") as folder:
            path = Path(folder) / "copy.db"
            with closing(_connect(path, 0)) as connection:
                self._connection.backup(connection)
                yield SqliteMigrator(path, connection), table

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()
