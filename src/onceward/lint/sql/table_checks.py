"""
Key columns as they are declared: under a UNIQUE, with whose key it is, without a default, wide enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from onceward.lint.sql.coverage import holds_for_some
from onceward.lint.sql.key_names import KeyNames
from onceward.lint.sql.routine_checks import fixed_width
from onceward.lint.sql.schema import SchemaTable, SqlSchema, describe
from onceward.lint.sql.statements import (
    CONSTANT,
    FRESH,
    AddColumn,
    AddUnique,
    ChangeColumn,
    Column,
    CreateTable,
    Statement,
    Unique,
    Value,
)

Placed: TypeAlias = tuple[str, int, int, str]
"""A code, a place, an end and a message."""


def check_tables(statements: list[Statement], schema: SqlSchema, names: KeyNames) -> Iterator[Placed]:
    """What is wrong with the key columns that these statements declare. `schema` is as it is after all of them."""
    told: set[tuple[str, str]] = set()
    keepers = _keepers(schema, names)
    for table_name, column in declared_keys(statements, names):
        table = schema.table(table_name)
        end = column.at + len(column.name)
        yield from ((code, column.at, end, message) for code, message in default_hazards(column.name, column.default))
        if column.width:
            yield "OW213", column.at, end, fixed_width(column.name, column.width)
        if table is not None and table.kind != "temporary" and (table.name, column.name) not in told:
            told.add((table.name, column.name))
            yield from (
                (code, at or column.at, end if not at else at + 6, text)
                for code, at, text in _guards(table, column, keepers, names)
            )
    for one in statements:
        if isinstance(one, ChangeColumn) and names.is_key(one.column):
            yield from ((code, one.at, one.end, text) for code, text in default_hazards(one.column, one.default))
            if one.width:
                yield "OW213", one.at, one.end, fixed_width(one.column, one.width)
        elif isinstance(one, AddUnique):
            table = schema.table(one.table)
            keys = names.keys_of(one.unique.columns)
            if table is not None and keys and (table.name, keys[0]) not in told:
                message = _unscoped(one.unique, table, names)
                if message:
                    yield "OW224", one.at, one.end, message


def declared_keys(statements: list[Statement], names: KeyNames) -> Iterator[tuple[str, Column]]:
    """The key columns that statements declare, with their tables."""
    for one in statements:
        columns = one.columns if isinstance(one, CreateTable) else (one.column,) if isinstance(one, AddColumn) else ()
        for column in columns:
            if names.is_key(column.name) and isinstance(one, CreateTable | AddColumn):
                yield one.table, column


def default_hazards(name: str, default: Value | None) -> Iterator[tuple[str, str]]:
    """A key has no default: it is the caller's."""
    if default is not None and default.kind == CONSTANT:
        shown = default.text or "''"
        yield (
            "OW220",
            f"DEFAULT {shown} on the key column {name}: every row without a key gets the same one, so the constraint "
            "collides, or takes a new operation for an old one. Remove the default",
        )
    elif default is not None and default.kind == FRESH:
        yield (
            "OW206",
            f"the key column {name} is filled by {default.text} if the caller sends no key: then a retry has another "
            "key. Remove the default",
        )


def _guards(table: SchemaTable, column: Column, keepers: set[str], names: KeyNames) -> Iterator[tuple[str, int, str]]:
    """Code, place (0: the column's) and message about the constraints over a key column."""
    guarding = [one for one in table.uniques if column.name in names.keys_of(one.columns) or column.name in one.columns]
    guarding += [one for one in table.uniques if one not in guarding and f"({column.name})" in "".join(one.columns)]
    if not guarding and not keepers - {table.name}:
        yield (
            "OW221",
            0,
            f"{table.name}.{column.name} has no UNIQUE constraint, so the column protects nothing. "
            f"Add one, such as {_suggestion(table, column, names)}",
        )
    if not guarding:
        return
    whole = [one for one in guarding if not holds_for_some(one)]
    if not whole:
        yield (
            "OW215",
            guarding[0].at,
            f"{describe(guarding[0])} covers only some rows: a retry is refused only while "
            f"{' AND '.join(holds_for_some(guarding[0]))}",
        )
        return
    messages = [_unscoped(one, table, names) for one in whole]
    if all(messages):
        yield "OW224", whole[0].at, messages[0]


def _keepers(schema: SqlSchema, names: KeyNames) -> set[str]:
    """The tables that are named for keys, and keep them under a constraint: columns in others only refer to them."""
    return {
        table.name
        for table in schema.tables.values()
        if table.uniques and names.is_key(table.name.rpartition(".")[2].removesuffix("s"))
    }


def _unscoped(unique: Unique, table: SchemaTable, names: KeyNames) -> str:
    """What is wrong if a constraint does not say whose key it is; nothing if it does, or the table does not know."""
    scopes = [one for one in table.columns if names.is_scope(one)]
    if not scopes or any(names.is_scope(one) for one in unique.columns):
        return ""
    wanted = ", ".join([scopes[0], *unique.columns])
    return (
        f"{describe(unique)} leaves out {scopes[0]}: if two of them use the same key by chance, the second is taken "
        f"for a retry of the first. Make it UNIQUE ({wanted})"
    )


def _suggestion(table: SchemaTable, column: Column, names: KeyNames) -> str:
    scope = next((one for one in table.columns if names.is_scope(one)), "")
    last = table.name.rpartition(".")[2]
    name = f"{last}_{scope.removesuffix('_id') + '_' if scope else ''}idem_key"
    return f"CONSTRAINT {name} UNIQUE ({', '.join(one for one in (scope, column.name) if one)})"
