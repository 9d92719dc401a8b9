"""
INSERT, UPDATE, MERGE and SELECT, as libpg_query has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from onceward.lint.sql.key_names import counts_attempts
from onceward.lint.sql.postgres_tree import (
    Node,
    conjuncts,
    index_columns,
    nodes,
    only,
    strings,
    table_name,
    value_of,
)
from onceward.lint.sql.row_values import merge_rows
from onceward.lint.sql.statements import Conflict, Insert, Lock, Merge, Read, Statement, UpdateRows, Value

if TYPE_CHECKING:
    from onceward.lint.sql.postgres_reader import Places

_ABSENCE_LINKS: Final = ("EXISTS_SUBLINK", "ANY_SUBLINK", "ALL_SUBLINK")
_ADDING: Final = ("+", "-", "*", "||")
_ADVISORY: Final = re.compile(r"pg_(try_)?advisory_(xact_)?lock", re.IGNORECASE)


def read_insert(insert: Node, places: Places, common: dict[str, tuple[str, ...]]) -> Insert:
    """An INSERT with its values, its clause and what it looks for first."""
    relation = insert.get("relation", {})
    table = table_name(relation)
    start, end = places.from_word("insert", relation)
    columns = tuple(str(one.get("name")) for _, one in map(only, insert.get("cols", [])))
    _, select = only(insert.get("selectStmt"))
    clause = insert.get("onConflictClause")
    return Insert(
        start,
        end,
        table,
        columns,
        _values(select),
        _conflict(clause, relation, places) if clause else None,
        _absence_checks(select, common) if select else (),
        default_row="selectStmt" not in insert,
    )


def read_update(update: Node, places: Places) -> UpdateRows:
    """An UPDATE: which columns become what."""
    relation = update.get("relation", {})
    start, end = places.from_word("update", relation)
    sets = [one for _, one in map(only, update.get("targetList", []))]
    return UpdateRows(
        start,
        end,
        table_name(relation),
        tuple(str(one.get("name")) for one in sets),
        tuple(value_of(one.get("val")) for one in sets),
    )


def read_merge(merge: Node, places: Places) -> Merge:
    """A MERGE, and whether it may insert."""
    relation = merge.get("relation", {})
    start, end = places.from_word("merge", relation)
    inserts = any(one.get("commandType") == "CMD_INSERT" for name, one in nodes(merge) if name == "MergeWhenClause")
    return Merge(start, end, table_name(relation), inserts)


def read_select(tree: Any, places: Places) -> Iterator[Statement]:
    """What a statement reads."""
    start = places.at(0)
    end = start + min(len(places.text), 60)
    if _ADVISORY.search(places.text):
        yield Lock(start, end)
    tables = tables_in(tree)
    if tables:
        yield Read(start, end, tables)


def tables_in(tree: Any) -> tuple[str, ...]:
    """Every table that is named in a tree."""
    found: dict[str, None] = {}
    for name, inside in nodes(tree):
        if name == "RangeVar":
            found[table_name(inside)] = None
        elif name in ("InsertStmt", "UpdateStmt", "DeleteStmt") and isinstance(inside.get("relation"), dict):
            found[table_name(inside["relation"])] = None
    return tuple(found)


def _values(select: Node) -> tuple[Value, ...]:
    rows = select.get("valuesLists")
    if rows:
        return merge_rows([value_of(item) for item in only(row)[1].get("items", [])] for row in rows)
    targets = [one.get("val") for _, one in map(only, select.get("targetList", []))]
    if any("A_Star" in (only(field)[0] for field in only(one)[1].get("fields", [])) for one in targets):
        return ()
    return tuple(value_of(one) for one in targets)


def _conflict(clause: Node, relation: Node, places: Places) -> Conflict:
    infer = clause.get("infer", {})
    sets = [one for _, one in map(only, clause.get("targetList", []))]
    own = {str(relation.get("relname")), str(relation.get("alias", {}).get("aliasname", ""))}
    return Conflict(
        "nothing" if clause.get("action") == "ONCONFLICT_NOTHING" else "update",
        places.at(int(clause.get("location", 0))),
        index_columns(infer.get("indexElems")),
        conjuncts(infer.get("whereClause")),
        str(infer.get("conname", "")),
        tuple(str(one.get("name")) for one in sets),
        tuple(str(one.get("name")) for one in sets if _adds(one, own)),
        changes_nothing=bool(sets) and all(_sets_itself(one, own, infer) for one in sets),
    )


def _column_of(node: Any) -> tuple[str, str]:
    """A reference to a column: what stands before it, and its name."""
    name, inside = only(node)
    parts = strings(inside.get("fields")) if name == "ColumnRef" else []
    return ("", "") if not parts else (parts[-2] if len(parts) > 1 else "", parts[-1])


def _adds(one: Node, own: set[str]) -> bool:
    """Whether a column is set to itself and something."""
    column = str(one.get("name"))
    if counts_attempts(column):
        return False
    for name, inside in nodes(one.get("val")):
        if name == "A_Expr" and (strings(inside.get("name")) or [""])[-1] in _ADDING:
            for inner, reference in nodes(inside):
                before, last = _column_of({inner: reference})
                if last == column and (before in own or not before):
                    return True
    return False


def _sets_itself(one: Node, own: set[str], infer: Node) -> bool:
    before, last = _column_of(one.get("val"))
    if last != one.get("name"):
        return False
    return before in own or (before == "excluded" and last in index_columns(infer.get("indexElems")))


def _absence_checks(select: Node, common: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Tables whose lack of a row is looked for: NOT EXISTS, NOT IN, `count(*) = 0`, LEFT JOIN ... IS NULL, EXCEPT."""
    found: list[str] = []
    where = select.get("whereClause")
    for name, inside in nodes(where):
        if name == "BoolExpr" and inside.get("boolop") == "NOT_EXPR":
            found += _links(inside.get("args"), _ABSENCE_LINKS)
        elif name == "SubLink" and inside.get("subLinkType") == "ALL_SUBLINK":
            found += tables_in(inside.get("subselect"))
        elif name == "A_Expr" and value_of(inside.get("rexpr")) in (Value("constant", "0"), Value("constant", "1")):
            found += _links(inside.get("lexpr"), ("EXPR_SUBLINK",))
        elif name == "NullTest" and inside.get("nulltesttype") == "IS_NULL":
            found += _links(inside.get("arg"), ("EXPR_SUBLINK",))
            found += _left_joined(select.get("fromClause"))
    if select.get("op") == "SETOP_EXCEPT":
        found += tables_in(select.get("rarg"))
    for name in list(found):
        found += common.get(name, ())
    return tuple(dict.fromkeys(found))


def _links(tree: Any, kinds: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for name, inside in nodes(tree):
        if name == "SubLink" and inside.get("subLinkType") in kinds:
            found += tables_in(inside.get("subselect"))
    return found


def _left_joined(tree: Any) -> list[str]:
    found: list[str] = []
    for name, inside in nodes(tree):
        if name == "JoinExpr" and inside.get("jointype") == "JOIN_LEFT":
            found += tables_in(inside.get("rarg"))
    return found
