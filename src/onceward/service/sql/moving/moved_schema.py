"""
The schema of a database as an export file has it: plain data, the types and expressions in the words of its source.

`Obstacle` is something that cannot be moved as it is, with the word that leaves it out: `--without trigger:audit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"


class MovedColumn(NamedTuple):
    """A column."""

    name: str
    type: str
    """As it was declared (SQLite), or as PostgreSQL writes the type."""
    not_null: bool = False
    default: str | None = None
    """The expression, as SQL."""
    generated: bool = False
    """Whether the database computes its values: they are moved, and the rule is not."""
    collation: str | None = None
    """If it is not the usual one."""


class MovedForeignKey(NamedTuple):
    """Columns that point to another table."""

    columns: list[str]
    table: str
    parent_columns: list[str]
    """Empty: the other table's primary key."""
    on_update: str = "NO ACTION"
    on_delete: str = "NO ACTION"
    deferred: bool = False


class MovedIndex(NamedTuple):
    """An index over columns."""

    name: str
    columns: list[str]
    unique: bool = False
    where: str | None = None


class MovedTable(NamedTuple):
    """A table."""

    name: str
    columns: list[MovedColumn]
    primary_key: list[str]
    uniques: list[list[str]]
    checks: list[str]
    foreign_keys: list[MovedForeignKey]
    indexes: list[MovedIndex]
    options: list[str]
    """SQLite's STRICT, WITHOUT ROWID and AUTOINCREMENT."""
    identity: str | None = None
    """The column whose values the database hands out."""
    identity_last: int | None = None
    """The last number that was handed out."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The table that `document_of` made data of."""
        made = cls(**document)
        return made._replace(
            columns=[MovedColumn(*one) for one in made.columns],
            foreign_keys=[MovedForeignKey(*one) for one in made.foreign_keys],
            indexes=[MovedIndex(*one) for one in made.indexes],
        )


class MovedView(NamedTuple):
    """A view."""

    name: str
    sql: str
    """The query."""


class Obstacle(NamedTuple):
    """What cannot be moved as it is, and why."""

    what: str
    """`trigger:audit`, `column:orders.note`: what `--without` takes, except for columns."""
    why: str

    @property
    def advice(self) -> str:
        """What to do about it."""
        kind, _, name = self.what.partition(":")
        if kind == "column":
            return f"--column-type {name}=TYPE, correct the rows, or --without table:{name.rpartition('.')[0]}"
        return f"--without {self.what}"


class MovedSchema(NamedTuple):
    """Everything but the rows."""

    dialect: str
    tables: list[MovedTable]
    views: list[MovedView]
    others: list[Obstacle]
    """What no file can carry: triggers, virtual tables, and their like."""

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "dialect": self.dialect,
            "tables": [one._asdict() for one in self.tables],
            "views": [list(one) for one in self.views],
            "others": [list(one) for one in self.others],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The schema that `document` made data of."""
        return cls(
            document["dialect"],
            [MovedTable.from_document(one) for one in document["tables"]],
            [MovedView(*one) for one in document["views"]],
            [Obstacle(*one) for one in document["others"]],
        )


def without(schema: MovedSchema, left_out: Sequence[str]) -> tuple[MovedSchema, list[str]]:
    """The schema without what is left out, and the words among them that name nothing in it."""
    chosen = set(left_out)
    named = {one.what for one in schema.others} | {f"view:{one.name}" for one in schema.views}
    tables = []
    for table in schema.tables:
        here = {f"table:{table.name}", *(f"index:{one.name}" for one in table.indexes)}
        here |= {f"check:{table.name}.{number}" for number in range(1, len(table.checks) + 1)}
        here |= {f"foreignkey:{table.name}.{number}" for number in range(1, len(table.foreign_keys) + 1)}
        for column in table.columns:
            here |= {f"{kind}:{table.name}.{column.name}" for kind in ("default", "generated", "collation")}
        named |= here
        if f"table:{table.name}" not in chosen:
            tables.append(_table_without(table, chosen))
    kept = schema._replace(
        tables=tables,
        views=[one for one in schema.views if f"view:{one.name}" not in chosen],
        others=[one for one in schema.others if one.what not in chosen],
    )
    return kept, sorted(chosen - named)


def _table_without(table: MovedTable, chosen: set[str]) -> MovedTable:
    """
    A table without some of its rules. Their numbers in words such as check:orders.2 stay as they were: what is left out
    is emptied, and not taken away.
    """
    columns = [
        one._replace(
            default=None if f"default:{table.name}.{one.name}" in chosen else one.default,
            generated=one.generated and f"generated:{table.name}.{one.name}" not in chosen,
            collation=None if f"collation:{table.name}.{one.name}" in chosen else one.collation,
        )
        for one in table.columns
    ]
    checks = ["" if f"check:{table.name}.{n}" in chosen else one for n, one in enumerate(table.checks, 1)]
    keys = [
        one._replace(columns=[]) if f"foreignkey:{table.name}.{n}" in chosen else one
        for n, one in enumerate(table.foreign_keys, 1)
    ]
    indexes = [one for one in table.indexes if f"index:{one.name}" not in chosen]
    identity = None if f"default:{table.name}.{table.identity}" in chosen else table.identity
    return table._replace(columns=columns, checks=checks, foreign_keys=keys, indexes=indexes, identity=identity)
