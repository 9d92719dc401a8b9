"""
A tenant's SQLite database, read in one snapshot: schema, rows, and the records of its keys.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward._core.sql_lexer import Dialect, TokenKind, tokens_of
from onceward.service.sql.authorizer import OWN_PREFIX
from onceward.service.sql.closed_databases import is_closed
from onceward.service.sql.limits import DEFAULT_LIMITS
from onceward.service.sql.moving.create_table import TableText, read_create_table
from onceward.service.sql.moving.dialects import quoted
from onceward.service.sql.moving.moved_records import COLUMNS, MovedRecord, portable
from onceward.service.sql.moving.moved_schema import (
    SQLITE,
    MovedColumn,
    MovedForeignKey,
    MovedIndex,
    MovedSchema,
    MovedTable,
    MovedView,
    Obstacle,
)
from onceward.service.sql.moving.moved_values import MovedRow
from onceward.service.sql.session import connect
from onceward.service.sql.sqlite_errors import DRIVER_ERRORS
from onceward.stores import _sqlite_schema as records_schema

_OBJECTS: Final = "SELECT type, name, sql FROM sqlite_schema ORDER BY rowid"
_HIDDEN: Final = 1
_GENERATED: Final = (2, 3)


class SqliteSource:
    """One database, in one snapshot, for the length of a `with` block. Nothing is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path, DEFAULT_LIMITS, readonly=True)
        self._connection.execute("BEGIN")
        self.schema = self._read_schema()

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more writes: nothing is missing in this snapshot, then."""
        return self._has_records() and is_closed(self._connection)

    @property
    def fence_floor(self) -> int:
        """The greatest fence that was ever deleted here."""
        if not self._has_records():
            return 0
        [floor] = self._connection.execute("SELECT value FROM onceward_meta WHERE name = 'fence_floor'").fetchone()
        return int(floor)

    def size(self) -> int:
        """How many rows and records there are."""
        names = [quoted(one.name) for one in self.schema.tables] + ["onceward_records"] * self._has_records()
        counts = (self._connection.execute(f"SELECT count(*) FROM {one}").fetchone() for one in names)  # noqa: S608
        return sum(count for (count,) in counts)

    def rows(self, table: MovedTable) -> Iterator[MovedRow]:
        """The rows of a table."""
        names = ", ".join(quoted(one.name) for one in table.columns)
        try:
            yield from self._connection.execute(f"SELECT {names} FROM {quoted(table.name)}")  # noqa: S608 - quoted
        except DRIVER_ERRORS as error:
            raise ConfigurationError(
                f"a row of the table {table.name} cannot be read ({error}). If it is text that is not UTF-8, "
                "change it to a blob; nothing was exported"
            ) from error

    def records(self) -> Iterator[MovedRecord]:
        """The records of its keys."""
        if not self._has_records():
            return
        cursor = self._connection.cursor()
        modern = records_schema.checked_version(records_schema.version_of(cursor)) >= records_schema.AT_OPENING
        names = [one if modern or one != "holder" else "NULL" for one in COLUMNS]
        for row in cursor.execute(f"SELECT {', '.join(names)} FROM onceward_records ORDER BY id"):  # noqa: S608
            yield portable(row, "")

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _has_records(self) -> bool:
        asked = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'onceward_records'"
        return self._connection.execute(asked).fetchone() is not None

    # The schema.

    def _read_schema(self) -> MovedSchema:
        try:
            objects = self._connection.execute(_OBJECTS).fetchall()
        except DRIVER_ERRORS as error:
            raise StoreUnavailable(f"{self._path.name} could not be read: {error}") from error
        made = MovedSchema(SQLITE, [], [], [])
        for kind, name, sql in objects:
            if name.startswith((OWN_PREFIX, "sqlite_")):
                continue
            if kind == "table" and sql.upper().startswith("CREATE VIRTUAL"):
                made.others.append(Obstacle(f"table:{name}", "it is a virtual table"))
            elif kind == "table":
                made.tables.append(self._table(name, sql, made.others))
            elif kind == "view":
                query = _query_of(sql)
                if query is None:
                    made.others.append(Obstacle(f"view:{name}", "it names its columns in front of its query"))
                else:
                    made.views.append(MovedView(name, query))
            elif kind == "trigger":
                made.others.append(Obstacle(f"trigger:{name}", "triggers are not moved: the other side has none"))
        return made

    def _ask(self, pragma: str, name: str) -> list[Any]:
        return self._connection.execute(f"SELECT * FROM pragma_{pragma}(?)", (name,)).fetchall()  # noqa: S608 - ours

    def _table(self, name: str, sql: str, others: list[Obstacle]) -> MovedTable:
        text = read_create_table(sql)
        if text.on_conflict:
            others.append(Obstacle(f"table:{name}", "a constraint of it says ON CONFLICT, which only SQLite has"))
        info = [one for one in self._ask("table_xinfo", name) if one[6] != _HIDDEN]
        columns = [
            MovedColumn(
                name=column,
                type=declared,
                not_null=bool(needed),
                default=default,
                generated=hidden in _GENERATED,
                collation=text.collations.get(column.lower()),
            )
            for _, column, declared, needed, default, _, hidden in info
        ]
        keys = [one[1] for one in sorted((one for one in info if one[5]), key=lambda one: one[5])]
        flags = self._flags(name)
        uniques, indexes, indexed_key = self._indexes(name, others)
        identity = keys[0] if len(keys) == 1 and not indexed_key and "WITHOUT ROWID" not in flags else None
        return MovedTable(
            name=name,
            columns=columns,
            primary_key=keys,
            uniques=uniques,
            checks=text.checks,
            foreign_keys=self._foreign_keys(name, text),
            indexes=indexes,
            options=[*flags, *(["AUTOINCREMENT"] if text.autoincrement else [])],
            identity=identity,
            identity_last=None if identity is None else self._last(name, identity, text),
        )

    def _flags(self, name: str) -> list[str]:
        asked = "SELECT wr, strict FROM pragma_table_list(?) WHERE schema = 'main'"
        [(rowless, strict)] = self._connection.execute(asked, (name,)).fetchall()
        return ["WITHOUT ROWID"] * rowless + ["STRICT"] * strict

    def _indexes(self, name: str, others: list[Obstacle]) -> tuple[list[list[str]], list[MovedIndex], bool]:
        """UNIQUE constraints, indexes, and whether the primary key has an index of its own."""
        uniques, indexes, indexed_key = [], [], False
        for _, index, unique, origin, partial in reversed(self._ask("index_list", name)):
            parts = [one for one in self._ask("index_xinfo", index) if one[5]]
            indexed_key = indexed_key or origin == "pk"
            if origin == "u":
                uniques.append([one[2] for one in parts])
            if origin != "c":
                continue
            if any(one[1] < 0 for one in parts):
                others.append(Obstacle(f"index:{index}", "it is over an expression"))
            elif any(one[4].upper() != "BINARY" for one in parts):
                others.append(Obstacle(f"index:{index}", f"it compares by {parts[0][4]}, which only SQLite has"))
            else:
                where = self._where(index) if partial else None
                indexes.append(MovedIndex(index, [one[2] for one in parts], bool(unique), where))
        return uniques, indexes, indexed_key

    def _where(self, index: str) -> str:
        [sql] = self._connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (index,)).fetchone()
        depth = 0
        for token in tokens_of(sql, Dialect.SQLITE):
            if token.kind is TokenKind.MARK:
                depth += (token.text == "(") - (token.text == ")")
            if token.kind is TokenKind.WORD and token.text == "WHERE" and not depth:
                return str(sql[token.end :]).strip()
        return ""

    def _foreign_keys(self, name: str, text: TableText) -> list[MovedForeignKey]:
        found: dict[int, MovedForeignKey] = {}
        for number, _, parent, column, to, on_update, on_delete, _ in self._ask("foreign_key_list", name):
            if number not in found:
                found[number] = MovedForeignKey([], parent, [], on_update, on_delete, column.lower() in text.deferred)
            found[number].columns.append(column)
            if to is not None:
                found[number].parent_columns.append(to)
        return [one for _, one in sorted(found.items(), reverse=True)]

    def _last(self, name: str, column: str, text: TableText) -> int | None:
        if text.autoincrement:
            with suppress(sqlite3.OperationalError):
                row = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (name,)).fetchone()
                return None if row is None else int(row[0])
        [last] = self._connection.execute(f"SELECT max({quoted(column)}) FROM {quoted(name)}").fetchone()  # noqa: S608
        return None if last is None else int(last)


def _query_of(sql: str) -> str | None:
    """The query of a CREATE VIEW; None if it has a list of columns, too."""
    for token in tokens_of(sql, Dialect.SQLITE):
        if token.kind is TokenKind.WORD and token.text == "AS":
            return sql[token.end :].strip()
        if token.text == "(" and token.kind is TokenKind.MARK:
            break
    return None
