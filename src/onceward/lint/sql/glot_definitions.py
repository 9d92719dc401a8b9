"""
CREATE, ALTER and DROP of SQLite and T-SQL, as sqlglot has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from onceward._core.sql_lexer import Dialect
from onceward.lint.sql.glot_tree import column_text, conjuncts, exp, name_of, span_of, table_of, value_of
from onceward.lint.sql.statements import (
    FRESH,
    GIVEN,
    AddColumn,
    AddUnique,
    ChangeColumn,
    Column,
    CreateTable,
    Drop,
    Rename,
    Statement,
    Unique,
    Value,
)


def read_definition(tree: Any, text: str, dialect: Dialect) -> Iterator[Statement]:
    """What a statement makes, changes or drops."""
    classes = exp()
    if isinstance(tree, classes.Create):
        yield from _create(tree, text, dialect)
    elif isinstance(tree, classes.Alter):
        for action in tree.args.get("actions") or []:
            yield from _alter(table_of(tree.this), action, text, dialect)
    elif isinstance(tree, classes.TruncateTable):
        yield from (Drop(0, 8, "rows", table_of(one), table_of(one)) for one in tree.expressions)
    else:
        kind = str(tree.args.get("kind") or "").lower()
        kind = "index" if "index" in kind else kind
        for one in tree.args.get("tables") or [tree.this]:
            name = table_of(one) if one is not None else ""
            yield Drop(0, 4, kind, name if kind in ("table", "view") else "", name)


def _create(tree: Any, text: str, dialect: Dialect) -> Iterator[Statement]:
    classes, kind = exp(), str(tree.args.get("kind") or "").upper()
    if kind.endswith("INDEX"):
        if tree.args.get("unique"):
            yield _index(tree, text, dialect)
    elif kind == "VIEW":
        yield CreateTable(*span_of(tree.this), table_of(tree.this), kind="view")
    elif kind == "TABLE":
        if not isinstance(tree.this, classes.Schema):
            yield CreateTable(*span_of(tree.this), table_of(tree.this), kind="unknown")
            return
        properties = tree.args.get("properties")
        named = repr(properties).upper() if properties is not None else ""
        temporary = "TEMPORARY" in named or table_of(tree.this).startswith("#")
        columns, uniques = _elements(tree.this, dialect)
        yield CreateTable(
            *span_of(tree.this.this),
            table_of(tree.this),
            columns,
            uniques,
            "temporary" if temporary else "table",
            if_not_exists=bool(tree.args.get("exists")),
        )


def _elements(schema: Any, dialect: Dialect) -> tuple[tuple[Column, ...], tuple[Unique, ...]]:
    columns: list[Column] = []
    uniques: list[Unique] = []
    for element in schema.expressions:
        if isinstance(element, exp().ColumnDef):
            column, own = _column(element, dialect)
            columns.append(column)
            uniques += own
        else:
            uniques += _unique(element, dialect)
    primary = {name for one in uniques if one.primary for name in one.columns}
    if dialect is Dialect.TSQL:
        columns = [replace(one, not_null=True) if one.name in primary else one for one in columns]
    elif len(primary) == 1:  # SQLite: an INTEGER PRIMARY KEY is the row's number, also if it is declared at the end.
        columns = [
            replace(one, not_null=True, default=Value(FRESH, "auto-increment"))
            if one.name in primary and one.type in ("integer", "int")
            else one
            for one in columns
        ]
    return tuple(columns), tuple(uniques)


def _column(element: Any, dialect: Dialect) -> tuple[Column, list[Unique]]:
    classes = exp()
    kind = element.args.get("kind")
    type_name = str(kind.this.value if hasattr(kind.this, "value") else kind.this).lower() if kind is not None else ""
    not_null, default = False, None
    uniques: list[Unique] = []
    name, (at, _) = name_of(element.this), span_of(element.this)
    for constraint in element.args.get("constraints") or []:
        detail, named = constraint.args.get("kind"), name_of(constraint.this) if constraint.this else ""
        if isinstance(detail, classes.NotNullColumnConstraint):
            not_null = not_null or not detail.args.get("allow_null")
        elif isinstance(detail, classes.DefaultColumnConstraint):
            default = value_of(detail.this)
        elif isinstance(detail, classes.GeneratedAsIdentityColumnConstraint):
            not_null, default = True, Value(FRESH, "auto-increment")
        elif isinstance(detail, classes.ComputedColumnConstraint):
            default = Value(GIVEN, "generated")
        elif isinstance(detail, classes.PrimaryKeyColumnConstraint | classes.UniqueColumnConstraint):
            primary = isinstance(detail, classes.PrimaryKeyColumnConstraint)
            uniques.append(Unique((name,), at, named, primary, nulls_equal=dialect is Dialect.TSQL))
    return Column(name, at, type_name, not_null, default, _width(kind, type_name)), uniques


def _width(kind: Any, type_name: str) -> int:
    if type_name not in ("char", "nchar", "bpchar") or kind is None:
        return 0
    sizes = [str(one.this.name) for one in kind.expressions if one.this is not None]
    return int(sizes[0]) if sizes and sizes[0].isdecimal() else 1


def _unique(element: Any, dialect: Dialect, name: str = "") -> list[Unique]:
    """The unique constraints in an element of a table: sqlglot nests them in several ways."""
    classes = exp()
    if isinstance(element, classes.Constraint):
        return [one for each in element.expressions for one in _unique(each, dialect, name_of(element.this))]
    if isinstance(element, classes.PrimaryKey | classes.UniqueColumnConstraint):
        columns = _listed(element)
        if columns:
            primary = isinstance(element, classes.PrimaryKey)
            equal = dialect is Dialect.TSQL
            return [Unique(columns, span_of(element)[0], name, primary, nulls_equal=equal)]
    return []


def _listed(node: Any) -> tuple[str, ...]:
    """The columns below a constraint, which are in a schema, in a list, or below CLUSTERED."""
    classes = exp()
    seen: list[Any] = list(node.expressions)
    inside = node.this
    while not seen and inside is not None:
        seen = inside if isinstance(inside, list) else list(inside.expressions)
        inside = None if isinstance(inside, list) else inside.this
    if not seen and isinstance(node.this, classes.Schema):
        seen = list(node.this.expressions)
    return tuple(column_text(one) for one in seen)


def _index(tree: Any, text: str, dialect: Dialect) -> AddUnique:
    index = tree.this
    parameters = index.args.get("params")
    table = index.args.get("table")
    columns = tuple(column_text(one) for one in (parameters.args.get("columns") or [])) if parameters else ()
    ignores = "IGNORE_DUP_KEY=ON" in text.upper().replace(" ", "")
    unique = Unique(
        columns,
        0,
        name_of(index.this),
        predicate=conjuncts(parameters.args.get("where")) if parameters else (),
        nulls_equal=dialect is Dialect.TSQL,
        resolution="ignore" if ignores else "",
    )
    return AddUnique(0, span_of(table)[1], table_of(table), unique)


def _alter(table: str, action: Any, text: str, dialect: Dialect) -> Iterator[Statement]:
    classes = exp()
    if isinstance(action, classes.ColumnDef):
        column, uniques = _column(action, dialect)
        yield AddColumn(column.at, column.at + len(column.name), table, column, tuple(uniques))
    elif isinstance(action, classes.Schema):
        for element in action.expressions:
            yield from _alter(table, element, text, dialect)
    elif isinstance(action, classes.AddConstraint):
        for element in action.expressions:
            for unique in _unique(element, dialect):
                yield AddUnique(unique.at, unique.at + 10, table, unique)
    elif isinstance(action, classes.AlterRename):
        yield Rename(0, 5, "table", table, table, table_of(action.this))
    elif isinstance(action, classes.RenameColumn):
        yield Rename(0, 5, "column", table, name_of(action.this), name_of(action.args.get("to")))
    elif isinstance(action, classes.AlterColumn):
        not_null = True if "NOT NULL" in text.upper() else None
        yield ChangeColumn(*span_of(action), table, name_of(action.this), not_null=not_null)
    elif isinstance(action, classes.Drop):
        kind = str(action.args.get("kind") or "").lower()
        dropped = [*(action.args.get("tables") or []), *([action.this] if action.this is not None else [])]
        for one in dropped:
            yield Drop(*span_of(one), "constraint" if "constraint" in kind else "column", table, name_of(one))
