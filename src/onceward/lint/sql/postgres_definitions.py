"""
CREATE, ALTER and DROP, as libpg_query has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from onceward.lint.sql.postgres_tree import (
    Node,
    conjuncts,
    index_columns,
    joined_name,
    only,
    strings,
    table_name,
    value_of,
)
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

if TYPE_CHECKING:
    from onceward.lint.sql.postgres_reader import Places

CREATING: Final = frozenset(
    {
        "CreateStmt",
        "CreateTableAsStmt",
        "ViewStmt",
        "AlterTableStmt",
        "IndexStmt",
        "RenameStmt",
        "DropStmt",
        "TruncateStmt",
    }
)
_SERIAL: Final = ("serial", "bigserial", "smallserial", "serial4", "serial8", "serial2")
_LIKE_INDEXES: Final = 1 << 6
_KINDS: Final = {
    "OBJECT_TABLE": "table",
    "OBJECT_INDEX": "index",
    "OBJECT_SCHEMA": "schema",
    "OBJECT_VIEW": "view",
    "OBJECT_TYPE": "type",
    "OBJECT_SEQUENCE": "sequence",
    "OBJECT_EXTENSION": "extension",
    "OBJECT_FUNCTION": "function",
    "OBJECT_PROCEDURE": "function",
    "OBJECT_ROUTINE": "function",
}


def read_definition(name: str, inside: Node, places: Places) -> Iterator[Statement]:
    """What a statement makes, changes or drops."""
    start = places.at(0)
    end = start + min(len(places.text), 60)
    if name == "CreateStmt":
        yield _create(inside, places)
    elif name == "CreateTableAsStmt":
        relation = inside.get("into", {}).get("rel", {})
        yield CreateTable(*places.span(relation), table_name(relation), kind="unknown")
    elif name == "ViewStmt":
        relation = inside.get("view", {})
        yield CreateTable(*places.span(relation), table_name(relation), kind="view")
    elif name == "AlterTableStmt" and inside.get("objtype", "OBJECT_TABLE") == "OBJECT_TABLE":
        for _, command in map(only, inside.get("cmds", [])):
            yield from _alter(table_name(inside.get("relation", {})), command, places, (start, end))
    elif name == "IndexStmt" and inside.get("unique"):
        yield _index(inside, places)
    elif name == "RenameStmt":
        yield from _rename(inside, (start, end))
    elif name == "DropStmt":
        kind = _KINDS.get(str(inside.get("removeType")), "other")
        for item in inside.get("objects", []):
            dropped = joined_name(_names(item))
            yield Drop(start, end, kind, dropped if kind in ("table", "view") else "", dropped)
    elif name == "TruncateStmt":
        for _, relation in map(only, inside.get("relations", [])):
            yield Drop(start, end, "rows", table_name(relation), table_name(relation))


def _names(item: Any) -> list[str]:
    kind, inside = only(item)
    if kind == "List":
        return strings(inside.get("items"))
    if kind == "TypeName":
        return strings(inside.get("names"))
    if kind == "ObjectWithArgs":
        return strings(inside.get("objname"))
    return [str(inside.get("sval", ""))]


def _create(inside: Node, places: Places) -> CreateTable:
    relation = inside.get("relation", {})
    columns: list[Column] = []
    uniques: list[Unique] = []
    like: list[str] = []
    like_indexes = False
    for kind, element in map(only, inside.get("tableElts", [])):
        if kind == "ColumnDef":
            column, own = _column(element, places)
            columns.append(column)
            uniques += own
        elif kind == "Constraint":
            uniques += _unique(element, places)
        elif kind == "TableLikeClause":
            like.append(table_name(element.get("relation", {})))
            like_indexes = like_indexes or bool(int(element.get("options", 0)) & _LIKE_INDEXES)
    like += [table_name(parent) for _, parent in map(only, inside.get("inhRelations", []))]
    is_partition = "partbound" in inside
    primary = {name for one in uniques if one.primary for name in one.columns}
    return CreateTable(
        *places.span(relation),
        table_name(relation),
        tuple(_as_not_null(one) if one.name in primary else one for one in columns),
        tuple(uniques),
        "temporary" if relation.get("relpersistence") == "t" else "table",
        tuple(like),
        like_indexes or is_partition,
        bool(inside.get("if_not_exists")),
    )


def _as_not_null(column: Column) -> Column:
    return replace(column, not_null=True)


def _column(element: Node, places: Places) -> tuple[Column, list[Unique]]:
    name, at = str(element.get("colname")), places.at(int(element.get("location", 0)))
    type_names = strings(element.get("typeName", {}).get("names"))
    type_name = type_names[-1] if type_names else ""
    serial = type_name in _SERIAL
    not_null, default = serial, Value(FRESH, "auto-increment") if serial else None
    uniques: list[Unique] = []
    before = ""
    for _, constraint in map(only, element.get("constraints", [])):
        kind = str(constraint.get("contype"))
        not_null = not_null or kind in ("CONSTR_NOTNULL", "CONSTR_PRIMARY", "CONSTR_IDENTITY")
        if kind == "CONSTR_DEFAULT":
            default = value_of(constraint.get("raw_expr"))
        elif kind == "CONSTR_IDENTITY":
            default = Value(FRESH, "auto-increment")
        elif kind == "CONSTR_GENERATED":
            default = Value(GIVEN, "generated")
        elif kind == "CONSTR_ATTR_DEFERRABLE" and before in ("CONSTR_PRIMARY", "CONSTR_UNIQUE"):
            uniques[-1] = replace(uniques[-1], deferrable=True)
        uniques += _unique(constraint, places, column=name)
        before = kind
    return Column(name, at, type_name, not_null, default, _width(element.get("typeName", {}), type_name)), uniques


def _width(type_node: Node, type_name: str) -> int:
    """How long a padded text is; 0 for a type that does not pad."""
    if type_name != "bpchar":
        return 0
    for modifier in type_node.get("typmods", []):
        text = value_of(modifier).text
        if text.isdecimal():
            return int(text)
    return 1


def _unique(constraint: Node, places: Places, column: str = "") -> list[Unique]:
    kind = str(constraint.get("contype"))
    if kind == "CONSTR_EXCLUSION":
        elements = [only(one.get("List", {}).get("items", [{}])[0])[1] for one in constraint.get("exclusions", [])]
        names = tuple(str(one.get("name", "")) for one in elements)
        place = places.at(int(constraint.get("location", 0)))
        return [Unique(names, place, str(constraint.get("conname", "")), excludes=True)]
    if kind not in ("CONSTR_PRIMARY", "CONSTR_UNIQUE"):
        return []
    columns = tuple(strings(constraint.get("keys"))) or ((column,) if column else ())
    return [
        Unique(
            columns,
            places.at(int(constraint.get("location", 0))),
            str(constraint.get("conname", "")),
            kind == "CONSTR_PRIMARY",
            nulls_equal=bool(constraint.get("nulls_not_distinct")),
            deferrable=bool(constraint.get("deferrable")),
            using_index=str(constraint.get("indexname", "")),
        )
    ]


def _index(inside: Node, places: Places) -> AddUnique:
    relation = inside.get("relation", {})
    start, end = places.span(relation)
    unique = Unique(
        index_columns(inside.get("indexParams")),
        places.at(0),
        str(inside.get("idxname", "")),
        predicate=conjuncts(inside.get("whereClause")),
        nulls_equal=bool(inside.get("nulls_not_distinct")),
    )
    return AddUnique(places.at(0), max(end, start), table_name(relation), unique)


def _alter(table: str, command: Node, places: Places, span: tuple[int, int]) -> Iterator[Statement]:
    kind, column = str(command.get("subtype")), str(command.get("name", ""))
    _, definition = only(command.get("def"))
    if kind == "AT_AddColumn":
        added, uniques = _column(definition, places)
        yield AddColumn(added.at, added.at + len(added.name), table, added, tuple(uniques))
    elif kind == "AT_AddConstraint":
        for unique in _unique(definition, places):
            yield AddUnique(unique.at, unique.at + 10, table, unique)
    elif kind in ("AT_SetNotNull", "AT_DropNotNull"):
        yield ChangeColumn(*_column_span(column, places, span), table, column, not_null=kind == "AT_SetNotNull")
    elif kind == "AT_ColumnDefault":
        default = value_of(command["def"]) if "def" in command else None
        yield ChangeColumn(
            *_column_span(column, places, span), table, column, default=default, drops_default=default is None
        )
    elif kind == "AT_AlterColumnType":
        names = strings(definition.get("typeName", {}).get("names"))
        type_name = names[-1] if names else ""
        width = _width(definition.get("typeName", {}), type_name)
        yield ChangeColumn(*_column_span(column, places, span), table, column, type=type_name, width=width)
    elif kind == "AT_DropColumn":
        yield Drop(*_column_span(column, places, span), "column", table, column)
    elif kind == "AT_DropConstraint":
        yield Drop(*_column_span(column, places, span), "constraint", table, column)


def _column_span(column: str, places: Places, span: tuple[int, int]) -> tuple[int, int]:
    """Where a column is named: libpg_query does not say, so it is the last place in the statement."""
    found = [one.start() for one in re.finditer(rf"\b{re.escape(column)}\b", places.text)]
    return (span[0] + found[-1], span[0] + found[-1] + len(column)) if column and found else span


def _rename(inside: Node, span: tuple[int, int]) -> Iterator[Statement]:
    kind, new = str(inside.get("renameType")), str(inside.get("newname", ""))
    table = table_name(inside.get("relation", {}))
    if kind == "OBJECT_TABLE":
        yield Rename(*span, "table", table, table, new)
    elif kind == "OBJECT_COLUMN":
        yield Rename(*span, "column", table, str(inside.get("subname", "")), new)
    elif kind == "OBJECT_TABCONSTRAINT":
        yield Rename(*span, "constraint", table, str(inside.get("subname", "")), new)
    elif kind == "OBJECT_INDEX":
        yield Rename(*span, "constraint", "", table, new)
