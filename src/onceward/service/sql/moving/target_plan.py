"""
What a target makes of a file's schema: statements before the rows and after them, and what stands in the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from onceward._core.errors import ConfigurationError
from onceward._core.sql_lexer import Dialect, tokens_of
from onceward.service.sql.moving.dialects import (
    INTEGERS,
    REALS,
    default_in_both,
    expression_in_both,
    known_type,
    postgres_type,
    query_in_both,
    quoted,
    spelled_for_sqlite,
    sqlite_type,
)
from onceward.service.sql.moving.moved_schema import (
    POSTGRESQL,
    SQLITE,
    MovedColumn,
    MovedForeignKey,
    MovedSchema,
    MovedTable,
    MovedView,
    Obstacle,
    without,
)

NAME_BYTES_MAX: Final = 63
"""Of a name in PostgreSQL, which cuts off the rest."""
_ONLY_ONE: Final = "it is not written in SQL that means the same in both databases"
_TRUTH: Final = {"0": "FALSE", "1": "TRUE"}
_ORDERED_ALIKE: Final = INTEGERS | REALS | {"boolean", "text"}


class PlannedStatement(NamedTuple):
    """A statement, and what it makes."""

    what: str
    sql: str


class PlannedTable(NamedTuple):
    """A table as it will be in the target."""

    name: str
    columns: list[str]
    types: list[str]
    needed: list[bool]
    """Which columns take no NULL."""
    strict: bool = False


class TargetPlan(NamedTuple):
    """How a schema is made."""

    tables: list[PlannedTable | None]
    """By their number in the file; None for what is left out."""
    before: list[PlannedStatement]
    after: list[PlannedStatement]
    last: dict[str, int]
    """The last number that was handed out, by table."""
    obstacles: list[Obstacle]


class MoveChoices(NamedTuple):
    """What the operator decided about what cannot be moved as it is."""

    column_types: Mapping[str, str] = {}
    """By `table.column`, as they are in the file."""
    without: Sequence[str] = ()


def make_plan(schema: MovedSchema, dialect: str, choices: MoveChoices) -> TargetPlan:
    """The plan for a target of that dialect."""
    kept, unknown = without(schema, choices.without)
    columns = {f"{table.name}.{column.name}" for table in schema.tables for column in table.columns}
    unknown += sorted(choices.column_types.keys() - columns)
    if unknown:
        raise ConfigurationError(f"there is no {', '.join(unknown)[:300]} in this file, or it does not need a choice")
    return _Planner(kept, dialect, choices.column_types).plan([one.name for one in schema.tables])


class _Planner:
    def __init__(self, schema: MovedSchema, dialect: str, chosen: Mapping[str, str]) -> None:
        self._schema = schema
        self._to = dialect
        self._same = schema.dialect == dialect
        self._chosen = chosen
        self._obstacles = list(schema.others)
        self._before: list[PlannedStatement] = []
        self._after: list[PlannedStatement] = []
        self._last: dict[str, int] = {}

    def plan(self, names: list[str]) -> TargetPlan:
        made = {table.name: self._table(table) for table in self._schema.tables}
        taken = [one.name.lower() for one in made.values()]
        for table in self._schema.tables:
            if taken.count(self._name(table.name).lower()) > 1:
                self._stop(f"table:{table.name}", "another table has the same name except for capitals")
        for view in _in_order(self._schema.views):
            self._view(view)
        tables = [made.get(name) for name in names]
        return TargetPlan(tables, self._before, self._after, self._last, self._obstacles)

    def _stop(self, what: str, why: str) -> None:
        self._obstacles.append(Obstacle(what, why))

    def _name(self, name: str) -> str:
        """A name as the target has it: PostgreSQL reads what is not quoted in small letters."""
        return name.lower() if self._to == POSTGRESQL and not self._same else name

    def _names(self, names: Sequence[str]) -> str:
        return ", ".join(quoted(self._name(one)) for one in names)

    def _table(self, table: MovedTable) -> PlannedTable:
        name = self._name(table.name)
        if self._to == POSTGRESQL:
            for one in (table.name, *(column.name for column in table.columns)):
                if len(one.encode()) > NAME_BYTES_MAX:
                    self._stop(f"table:{table.name}", f"the name {one[:20]}... has over {NAME_BYTES_MAX} bytes")
        types = [self._type(table, column) for column in table.columns]
        parts = [self._column(table, one, type) for one, type in zip(table.columns, types, strict=True)]
        numbered = self._numbers_itself_in_sqlite(table)
        if table.primary_key and not numbered:
            parts.append(f"PRIMARY KEY ({self._names(table.primary_key)})")
        parts += [f"UNIQUE ({self._names(one)})" for one in table.uniques]
        parts += self._checks(table)
        parts += self._foreign_keys(table)
        kept = [one for one in table.options if one != "AUTOINCREMENT"] if self._to == SQLITE else []
        tail = f" {', '.join(kept)}" if kept else ""
        self._before.append(
            PlannedStatement(f"table:{table.name}", f"CREATE TABLE {quoted(name)} ({', '.join(parts)}){tail}")
        )
        self._indexes(table)
        if table.identity is not None and table.identity_last is not None:
            self._identity(table, numbered)
        needed = [
            one.not_null or (one.name in table.primary_key and self._to == POSTGRESQL) or one.name == table.identity
            for one in table.columns
        ]
        return PlannedTable(name, [self._name(one.name) for one in table.columns], types, needed, "STRICT" in kept)

    def _type(self, table: MovedTable, column: MovedColumn) -> str:
        where = f"{table.name}.{column.name}"
        chosen = self._chosen.get(where)
        if self._to == SQLITE:
            return chosen or sqlite_type(self._schema.dialect, column.type)
        type = known_type((chosen or "").lower() or postgres_type(self._schema.dialect, column.type))
        if type is None:
            self._stop(f"column:{where}", "its type is not one of PostgreSQL's built-in types")
        return type or "text"

    def _column(self, table: MovedTable, column: MovedColumn, type: str) -> str:
        where = f"{table.name}.{column.name}"
        spelled = type if self._to == POSTGRESQL else spelled_for_sqlite(type)
        if self._to == SQLITE and column.name == table.identity and self._numbers_itself_in_sqlite(table):
            by_itself = "AUTOINCREMENT" in table.options or not self._same
            return f"{quoted(column.name)} INTEGER PRIMARY KEY{' AUTOINCREMENT' if by_itself else ''}"
        words = [quoted(self._name(column.name)), spelled]
        if column.generated:
            self._stop(f"generated:{where}", "the database computes it: its values can be moved, its rule cannot")
        if column.collation is not None and self._same and self._to == SQLITE:
            words.append(f"COLLATE {quoted(column.collation)}")
        elif column.collation is not None:
            self._stop(f"collation:{where}", f"it compares by {column.collation}, which the target does not have")
        if column.not_null:
            words.append("NOT NULL")
        if column.name == table.identity:
            if self._to == POSTGRESQL and type in INTEGERS:
                words.append("GENERATED BY DEFAULT AS IDENTITY")
            elif self._to == SQLITE:
                self._stop(f"default:{where}", "only a primary key that is one column numbers itself in SQLite")
        elif column.default is not None:
            default = f"({column.default})" if self._same else default_in_both(column.default)
            if type == "boolean" and self._to == POSTGRESQL:
                default = _TRUTH.get(default or "", default)
            if default is None:
                self._stop(f"default:{where}", "its default is not a plain literal")
            else:
                words.append(f"DEFAULT {default}")
        return " ".join(words)

    def _numbers_itself_in_sqlite(self, table: MovedTable) -> bool:
        return self._to == SQLITE and table.identity is not None and table.primary_key == [table.identity]

    def _checks(self, table: MovedTable) -> Iterator[str]:
        columns = self._alike(table)
        for number, check in enumerate(table.checks, 1):
            moved = check if self._same else expression_in_both(check, columns)
            if check and moved is None:
                self._stop(f"check:{table.name}.{number}", f"{_ONLY_ONE}: {check[:120]}")
            elif moved:
                yield f"CHECK ({moved})"

    def _alike(self, table: MovedTable) -> dict[str, str]:
        """The columns whose values both sides compare and order alike, with their types."""
        return {
            one.name: one.type
            for one in table.columns
            if self._to == POSTGRESQL or one.type in _ORDERED_ALIKE or one.type.startswith("character varying")
        }

    def _foreign_keys(self, table: MovedTable) -> Iterator[str]:
        there = {one.name.lower() for one in self._schema.tables}
        for number, key in enumerate(table.foreign_keys, 1):
            what = f"foreignkey:{table.name}.{number}"
            if not key.columns:
                continue
            if key.table.lower() not in there:
                self._stop(what, f"it points to {key.table or 'a table'}, which is not moved")
            elif self._to == SQLITE:
                yield self._foreign_key(key)
            else:
                name = quoted(self._name(table.name))
                self._after.append(PlannedStatement(what, f"ALTER TABLE {name} ADD {self._foreign_key(key)}"))

    def _foreign_key(self, key: MovedForeignKey) -> str:
        parents = f" ({self._names(key.parent_columns)})" if key.parent_columns else ""
        deferred = " DEFERRABLE INITIALLY DEFERRED" if key.deferred else ""
        return (
            f"FOREIGN KEY ({self._names(key.columns)}) REFERENCES {quoted(self._name(key.table))}{parents} "
            f"ON UPDATE {key.on_update} ON DELETE {key.on_delete}{deferred}"
        )

    def _indexes(self, table: MovedTable) -> None:
        columns = self._alike(table)
        for index in table.indexes:
            where = index.where if self._same or index.where is None else expression_in_both(index.where, columns)
            if where is None and index.where is not None:
                self._stop(f"index:{index.name}", f"its condition: {_ONLY_ONE}")
                continue
            sql = (
                f"CREATE {'UNIQUE ' if index.unique else ''}INDEX {quoted(self._name(index.name))} "
                f"ON {quoted(self._name(table.name))} ({self._names(index.columns)})"
            )
            self._after.append(PlannedStatement(f"index:{index.name}", sql + (f" WHERE {where}" if where else "")))

    def _identity(self, table: MovedTable, numbered: bool) -> None:
        last = table.identity_last or 0
        if self._to == SQLITE and numbered and ("AUTOINCREMENT" in table.options or not self._same):
            self._last[table.name] = last
        elif self._to == POSTGRESQL and 0 < last < 2**63 - 1:
            column, name = quoted(self._name(table.identity or "")), quoted(self._name(table.name))
            sql = f"ALTER TABLE {name} ALTER COLUMN {column} RESTART WITH {last + 1}"
            self._after.append(PlannedStatement(f"table:{table.name}", sql))

    def _view(self, view: MovedView) -> None:
        names = {one.name for one in self._schema.views}
        for table in self._schema.tables:
            names |= {table.name, *(one.name for one in table.columns)}
        moved = view.sql if self._same else query_in_both(view.sql, names)
        if moved is None:
            self._stop(f"view:{view.name}", _ONLY_ONE)
        else:
            name = quoted(self._name(view.name))
            self._after.append(PlannedStatement(f"view:{view.name}", f"CREATE VIEW {name} AS {moved}"))


def _in_order(views: Sequence[MovedView]) -> list[MovedView]:
    """Views, each behind those that it mentions."""
    waiting, placed = list(views), list[MovedView]()
    while waiting:
        names = {one.name.upper() for one in waiting}
        free = [one for one in waiting if not (_mentioned(one) & (names - {one.name.upper()}))] or waiting[:1]
        placed += free
        waiting = [one for one in waiting if one not in free]
    return placed


def _mentioned(view: MovedView) -> set[str]:
    return {one.text.strip('"').upper() for one in tokens_of(view.sql, Dialect.POSTGRES)}
