"""
The tables as they are after the statements so far: what an INSERT is judged against.

Made of migration files in their order, of a live database, or of the very file that is looked at. What is not known
is not guessed: a table that was never seen has no entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from onceward._core.sql_lexer import Dialect
from onceward.lint.sql.statements import (
    AddColumn,
    AddUnique,
    ChangeColumn,
    Column,
    CreateTable,
    Drop,
    Rename,
    Statement,
    Unique,
)

UNIQUES_MAX: Final = 100
"""Of one table. Each INSERT is held against each of them; what people wrote has a handful."""


@dataclass
class SchemaTable:
    """A table as far as it is known."""

    name: str
    columns: dict[str, Column] = field(default_factory=dict)
    uniques: list[Unique] = field(default_factory=list)
    kind: str = "table"
    """"table", "temporary", "view", "unknown" (its columns were never seen)."""

    def copy(self) -> SchemaTable:
        """The same table, which may then be changed."""
        return SchemaTable(self.name, dict(self.columns), list(self.uniques), self.kind)


@dataclass
class SqlSchema:
    """Tables by name."""

    dialect: Dialect = Dialect.POSTGRES
    tables: dict[str, SchemaTable] = field(default_factory=dict)
    gone: dict[str, SchemaTable] = field(default_factory=dict)
    """Tables that were dropped or renamed, as they were: an INSERT before that was into these."""
    source: str = ""
    """Where it is from, for people; empty: nothing was given, and only what the file itself makes is known."""
    files: frozenset[str] = frozenset()
    """The migrations that it was made of, as paths without links: what they insert themselves is inserted once."""
    routines: dict[str, str] = field(default_factory=dict)
    """By name, the last of those files that defines a routine: those before it are of the past."""
    _by_last: dict[str, dict[str, None]] = field(default_factory=dict, repr=False, compare=False)
    """The names by their last part."""

    def __post_init__(self) -> None:
        for name, table in self.tables.items():
            self.put(name, table)

    def put(self, name: str, table: SchemaTable) -> None:
        """Add a table, or replace it."""
        self.tables[name] = table
        self._by_last.setdefault(name.rpartition(".")[2], {})[name] = None

    def _take(self, name: str) -> SchemaTable:
        self._by_last[name.rpartition(".")[2]].pop(name)
        return self.tables.pop(name)

    def copy(self) -> SqlSchema:
        """The same tables, which may then be changed."""
        tables = {name: one.copy() for name, one in self.tables.items()}
        return SqlSchema(self.dialect, tables, dict(self.gone), self.source, self.files, dict(self.routines))

    def table(self, name: str) -> SchemaTable | None:
        """A table by its name. If one of the two names has no schema in it, the last part decides."""
        if name in self.tables:
            return self.tables[name]
        last, qualified = name.rpartition(".")[2], "." in name
        found = [key for key in self._by_last.get(last, ()) if not ("." in key and qualified)]
        return self.tables[found[0]] if len(found) == 1 else None

    def table_ever(self, name: str) -> SchemaTable | None:
        """A table by its name, also if it is gone by now."""
        return self.table(name) or self.gone.get(name)

    def apply(self, statement: Statement) -> None:
        """Change the tables as a statement does."""
        match statement:
            case CreateTable():
                self._create(statement)
            case AddColumn(table=name, column=column, uniques=uniques):
                table = self._known(name)
                table.columns[column.name] = column
                for unique in uniques:
                    self._add(table, unique)
            case AddUnique(table=name, unique=unique):
                self._add(self._known(name), unique)
            case ChangeColumn():
                self._change(statement)
            case Rename():
                self._rename(statement)
            case Drop():
                self._drop(statement)

    def _known(self, name: str) -> SchemaTable:
        table = self.table(name)
        if table is None:
            table = SchemaTable(name, kind="unknown")
            self.put(name, table)
        return table

    def _create(self, made: CreateTable) -> None:
        there = self.table(made.table)
        if there is not None and there.kind == made.kind == "table":
            return  # IF NOT EXISTS; or a declaration for a tool, because the database would refuse it.
        table = SchemaTable(made.table, kind=made.kind)
        if there is not None and there.kind == "unknown":
            table.uniques += there.uniques  # Files of indexes may be read before those of tables.
        for parent in made.like:
            original = self.table(parent)
            if original is not None:
                table.columns |= original.columns
                if made.like_indexes:
                    table.uniques += [replace(one, name="") for one in original.uniques]
        table.columns |= {one.name: one for one in made.columns}
        table.uniques = [self._named(table, one) for one in (*table.uniques, *made.uniques)][:UNIQUES_MAX]
        self.put(made.table, table)

    def _named(self, table: SchemaTable, unique: Unique) -> Unique:
        """With the name that PostgreSQL gives a constraint that has none."""
        if unique.name or self.dialect is not Dialect.POSTGRES:
            return unique
        last = table.name.rpartition(".")[2]
        name = f"{last}_pkey" if unique.primary else f"{last}_{'_'.join(unique.columns)}_key"
        return replace(unique, name=name)

    def _add(self, table: SchemaTable, unique: Unique) -> None:
        if unique.using_index:
            index = next((one for one in table.uniques if one.name == unique.using_index), None)
            if index is not None:
                table.uniques.remove(index)
                unique = replace(unique, columns=index.columns, nulls_equal=index.nulls_equal)
        if unique.name and any(one.name == unique.name for one in table.uniques):
            return  # IF NOT EXISTS.
        if len(table.uniques) >= UNIQUES_MAX:
            return
        table.uniques.append(self._named(table, unique))
        for name in unique.columns if unique.primary else ():
            if name in table.columns:
                table.columns[name] = replace(table.columns[name], not_null=True)

    def _change(self, change: ChangeColumn) -> None:
        table = self._known(change.table)
        column = table.columns.get(change.column) or Column(change.column, change.at)
        if change.not_null is not None:
            column = replace(column, not_null=change.not_null)
        if change.default is not None or change.drops_default:
            column = replace(column, default=change.default)
        if change.type:
            column = replace(column, type=change.type, width=change.width)
        table.columns[change.column] = column

    def _rename(self, rename: Rename) -> None:
        if rename.kind == "constraint":
            for table in self.tables.values():
                table.uniques = [
                    replace(one, name=rename.new) if one.name == rename.old else one for one in table.uniques
                ]
            return
        found = self.table(rename.table)
        if found is None:
            return
        if rename.kind == "table":
            self.gone[found.name] = found.copy()
            self._take(found.name)
            found.name = f"{found.name.rpartition('.')[0]}.{rename.new}".lstrip(".")
            self.put(found.name, found)
        elif rename.old in found.columns:
            found.columns = {
                (rename.new if name == rename.old else name): (
                    replace(one, name=rename.new) if name == rename.old else one
                )
                for name, one in found.columns.items()
            }
            found.uniques = [
                replace(one, columns=tuple(rename.new if name == rename.old else name for name in one.columns))
                for one in found.uniques
            ]

    def _drop(self, drop: Drop) -> None:
        table = self.table(drop.table) if drop.table else None
        if drop.kind in ("table", "view") and table is not None:
            self.gone[table.name] = self._take(table.name)
        elif drop.kind == "column" and table is not None:
            table.columns.pop(drop.name, None)
            table.uniques = [one for one in table.uniques if drop.name not in one.columns]
        elif drop.kind in ("constraint", "index"):
            last = drop.name.rpartition(".")[2]
            for one in [table] if table is not None else self.tables.values():
                one.uniques = [unique for unique in one.uniques if unique.name != last]
        elif drop.kind == "function":
            self.routines.pop(drop.name, None)
        elif drop.kind == "schema":
            for name in [name for name in self.tables if name.partition(".")[0] == drop.name]:
                self._take(name)


def describe(unique: Unique) -> str:
    """A constraint in words: its name, what it is and over which columns."""
    words = "PRIMARY KEY" if unique.primary else "EXCLUDE" if unique.excludes else "UNIQUE"
    where = f" WHERE {' AND '.join(unique.predicate)}" if unique.predicate else ""
    return f"{unique.name} {words} ({', '.join(unique.columns)}){where}".strip()
