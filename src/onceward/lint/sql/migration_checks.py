"""
The order of a migration that adds a key: add nullable, fill deterministically, tighten, constrain last, drop nothing.

Five points of the second document, each looked at over all files of a run in their order. A table that the migration
makes itself has no rows, so there is nothing to fill there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from onceward._core.sql_lexer import Dialect
from onceward.lint.sql.key_names import KeyNames
from onceward.lint.sql.schema import SchemaTable, SqlSchema, describe
from onceward.lint.sql.statements import (
    CONSTANT,
    FRESH,
    AddColumn,
    AddUnique,
    ChangeColumn,
    CreateTable,
    Drop,
    Insert,
    Rename,
    Statement,
    Unique,
    UpdateRows,
)

Step: TypeAlias = tuple[int, Statement]
"""The number of the file, and the statement."""
Placed: TypeAlias = tuple[int, str, int, int, str]
"""The number of the file, a code, a place, an end and a message."""


ADDED_MAX: Final = 500
"""Key columns of one run that are followed through it: each statement is held against each of them."""


@dataclass
class _Added:
    """A column that the migration adds to a table that was there, and what happens to it."""

    table: str
    column: str
    file: int
    at: int
    constrained: Step | None = None
    tightened: Step | None = None
    filled: Step | None = None
    born_not_null: bool = False
    has_default: bool = False
    fills: list[Step] = field(default_factory=list)


def check_migration(steps: list[Step], before: SqlSchema, after: SqlSchema, names: KeyNames) -> Iterator[Placed]:
    """What is wrong with the order of a migration. `before` and `after` are the schema around it."""
    made = {one.table for _, one in steps if isinstance(one, CreateTable)}
    added = _follow(steps, made, names)
    for one in added:
        yield from _order(one, names)
        yield from _tightness(one, after, names)
    yield from _drops(steps, names)
    yield from _lost_protection(steps, before, names)


def _follow(steps: list[Step], made: set[str], names: KeyNames) -> list[_Added]:
    added: dict[tuple[str, str], _Added] = {}
    for file, one in steps:
        match one:
            case AddColumn(table=table, column=column) if table not in made:
                if len(added) < ADDED_MAX and (names.is_key(column.name) or names.is_scope(column.name)):
                    new = _Added(table, column.name, file, column.at)
                    new.born_not_null, new.has_default = column.not_null, column.default is not None
                    if one.uniques:
                        new.constrained = (file, one)
                    added[table, column.name] = new
            case AddUnique(table=table, unique=unique):
                for each in added.values():
                    if each.table == table and each.column in unique.columns and each.constrained is None:
                        each.constrained = (file, one)
            case ChangeColumn(table=table, column=name, not_null=True):
                if (table, name) in added and added[table, name].tightened is None:
                    added[table, name].tightened = (file, one)
            case UpdateRows(table=table, columns=columns):
                for name in columns:
                    if (table, name) in added:
                        added[table, name].fills.append((file, one))
                        added[table, name].filled = added[table, name].filled or (file, one)
    return list(added.values())


def _comes_before(first: Step, second: Step) -> bool:
    return (first[0], first[1].at) < (second[0], second[1].at)


def _order(one: _Added, names: KeyNames) -> Iterator[Placed]:
    where = f"{one.table}.{one.column}"
    is_key = names.is_key(one.column)
    if one.born_not_null and not one.has_default:
        yield (
            one.file,
            "OW225",
            one.at,
            one.at + len(one.column),
            f"{where} is NOT NULL from the start, which fails if there are rows. Add it as nullable, fill it, then "
            "SET NOT NULL",
        )
    elif one.tightened is not None and one.filled is None and not one.has_default:
        yield _at(one.tightened, "OW225", f"{where} becomes NOT NULL, but no row was given a value. Fill it first")
    elif one.tightened is not None and one.filled is not None and _comes_before(one.tightened, one.filled):
        yield _at(one.tightened, "OW225", f"{where} becomes NOT NULL before it is filled. Fill it first")
    if is_key and one.constrained is not None and one.filled is not None and _comes_before(one.constrained, one.filled):
        message = (
            f"the constraint over {where} is added before the rows have their keys: the backfill may collide half-way. "
            "Add it last"
        )
        yield _at(one.constrained, "OW222", message)
    for file, update in one.fills if is_key else ():
        yield from _backfill(file, update, one)


def _backfill(file: int, update: Statement, one: _Added) -> Iterator[Placed]:
    if not isinstance(update, UpdateRows):
        return
    value = update.values[update.columns.index(one.column)]
    if value.kind == FRESH:
        message = (
            f"the backfill of {one.table}.{one.column} uses {value.text}, so a second run makes other keys. "
            "Derive each key from its row: a hash of the primary key"
        )
        yield file, "OW226", update.at, update.end, message
    elif value.kind == CONSTANT:
        message = (
            f"the backfill gives every row of {one.table} the same {one.column}, so the constraint collides. "
            "Derive each key from its row: a hash of the primary key"
        )
        yield file, "OW226", update.at, update.end, message


def _tightness(one: _Added, after: SqlSchema, names: KeyNames) -> Iterator[Placed]:
    """A key column that stays nullable does not protect the rows without a key."""
    table = after.table(one.table)
    column = table.columns.get(one.column) if table is not None else None
    if table is None or column is None or column.not_null or one.constrained is None:
        return
    holding = [unique for unique in table.uniques if one.column in unique.columns]
    if any(unique.nulls_equal or f"{one.column} IS NOT NULL" in unique.predicate for unique in holding):
        return
    if after.dialect is Dialect.SQLITE:
        return  # It has no SET NOT NULL; `lint sql` looks at what is inserted.
    message = (
        f"{one.table}.{one.column} stays nullable, and NULLs are distinct: rows without it are not protected. "
        "SET NOT NULL after the backfill"
    )
    yield one.file, "OW205", one.at, one.at + len(one.column), message


def _drops(steps: list[Step], names: KeyNames) -> Iterator[Placed]:
    """A migration for keys adds, fills, tightens and constrains. It does not drop."""
    about_keys = {file for file, one in steps if _is_about_keys(one, names)}
    passing = _passing(steps)
    for file, one in steps:
        if (
            not isinstance(one, Drop)
            or file not in about_keys
            or (one.kind == "table" and (file, one.table) in passing)
        ):
            continue
        what = f"{one.kind} {one.name}" if one.kind != "rows" else f"the rows of {one.name}"
        yield (
            file,
            "OW223",
            one.at,
            one.end,
            f"this migration adds a key and drops {what}: it cannot be undone. Leave the DROP to a later migration",
        )


def _is_about_keys(one: Statement, names: KeyNames) -> bool:
    match one:
        case AddColumn(column=column):
            return names.is_key(column.name)
        case AddUnique(unique=unique):
            return bool(names.keys_of(unique.columns))
        case CreateTable(columns=columns):
            return any(names.is_key(column.name) for column in columns)
        case ChangeColumn(column=name):
            return names.is_key(name)
        case UpdateRows(columns=columns):
            return bool(names.keys_of(columns))
    return False


def _passing(steps: list[Step]) -> set[tuple[int, str]]:
    """By file, the tables whose DROP is only passing: made in the same file, or SQLite's way to change a table."""
    found: set[tuple[int, str]] = set()
    copied: set[int] = set()
    dropped: set[tuple[int, str]] = set()
    for file, one in steps:
        match one:
            case CreateTable(table=table):
                found.add((file, table))
            case Insert():
                copied.add(file)
            case Drop(kind="table", table=table) if file in copied:
                dropped.add((file, table))
            case Rename(kind="table", new=new) if (file, new) in dropped:
                found.add((file, new))
    return found


def _lost_protection(steps: list[Step], before: SqlSchema, names: KeyNames) -> Iterator[Placed]:
    """What takes the protection of a key away, in whatever migration."""
    schema = before.copy()
    about_keys = {file for file, one in steps if _is_about_keys(one, names)}
    passing = _passing(steps)
    guards = {
        unique.name for table in before.tables.values() for unique in table.uniques if names.keys_of(unique.columns)
    }
    guards |= {one.unique.name for _, one in steps if isinstance(one, AddUnique)}
    for file, one in steps:
        if (
            isinstance(one, Drop)
            and file not in about_keys
            and not (one.kind == "table" and (file, one.table) in passing)
            and (one.table or one.name.rpartition(".")[2] in guards)
        ):
            for table, unique in _guards_lost(one, schema, names):
                yield (
                    file,
                    "OW223",
                    one.at,
                    one.end,
                    f"dropping {one.kind} {one.name} removes {describe(unique)} of {table.name}, so retries write "
                    "duplicates",
                )
        elif isinstance(one, ChangeColumn) and one.not_null is False and names.is_key(one.column):
            yield (
                file,
                "OW205",
                one.at,
                one.end,
                f"the key column {one.column} may be NULL again, and NULLs are distinct",
            )
        schema.apply(one)


def _guards_lost(drop: Drop, schema: SqlSchema, names: KeyNames) -> Iterator[tuple[SchemaTable, Unique]]:
    named = schema.table(drop.table) if drop.table else None
    for table in [named] if named is not None else schema.tables.values() if not drop.table else ():
        for unique in table.uniques:
            if not names.keys_of(unique.columns):
                continue
            last = drop.name.rpartition(".")[2]
            if (drop.kind in ("constraint", "index") and unique.name == last) or (
                named is not None
                and (drop.kind in ("table", "rows") or (drop.kind == "column" and drop.name in unique.columns))
            ):
                yield table, unique


def _at(step: Step, code: str, message: str) -> Placed:
    file, statement = step
    return file, code, statement.at, statement.end, message
