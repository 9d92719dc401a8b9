"""
Reading sqlglot's tree, which is used for SQLite and T-SQL: names, places, values and conditions.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from onceward.lint.sql.fresh_values import FRESH_FUNCTIONS
from onceward.lint.sql.statements import CONSTANT, DEFAULT, FRESH, GIVEN, NULL, Value

DEFAULT_SCHEMAS = ("main", "dbo")


def exp() -> Any:
    """The module with sqlglot's classes of nodes. It is imported when the first text is read."""
    return import_module("sqlglot.expressions")


def name_of(node: Any) -> str:
    """A name as SQLite and SQL Server compare it: capitals do not matter."""
    return str(node.name).lower() if node is not None else ""


def table_of(node: Any) -> str:
    """The name of the first table in a node, with its schema unless that is the default one."""
    table = node if isinstance(node, exp().Table) else node.find(exp().Table)
    if table is None:
        return ""
    schema = str(table.db).lower()
    return f"{schema}.{name_of(table)}" if schema and schema not in DEFAULT_SCHEMAS else name_of(table)


def span_of(node: Any) -> tuple[int, int]:
    """Where the first name in a node stands. Nodes have no places in sqlglot, names have."""
    node = (node.find(exp().Table) or node) if isinstance(node, exp().Schema) else node
    found = [(int(one.meta["start"]), int(one.meta["end"]) + 1) for one in node.find_all(exp().Identifier) if one.meta]
    if not found:
        return 0, 1
    parts = 2 if isinstance(node, exp().Table) and node.db else 1
    return min(found)[0], sorted(found)[parts - 1][1]


def fresh_name(expression: Any) -> str:
    """What in an expression makes it another at each attempt."""
    for one in expression.find_all(exp().Func):
        called = (one.name if isinstance(one, exp().Anonymous) else one.sql_name()).lower()
        if called in FRESH_FUNCTIONS:
            return f"{called}()"
        if any(literal.is_string and literal.name.lower() == "now" for literal in one.find_all(exp().Literal)):
            return f"{called}('now')"
    return ""


def value_of(expression: Any) -> Value:
    """What an expression is to a retry."""
    node = expression
    while isinstance(node, exp().Paren | exp().Cast):
        node = node.this
    if isinstance(node, exp().Null):
        return Value(NULL)
    if isinstance(node, exp().Literal | exp().Boolean | exp().HexString | exp().National):
        return Value(CONSTANT, str(node.name))
    if isinstance(node, exp().Var) and node.name.upper() == "DEFAULT":
        return Value(DEFAULT)
    if isinstance(node, exp().Column) and node.name.upper() == "DEFAULT":
        return Value(DEFAULT)
    fresh = fresh_name(node)
    return Value(FRESH, fresh) if fresh else Value(GIVEN)


def text_of(node: Any) -> str:
    """An expression in a form that two equal ones share, and that people can read."""
    while isinstance(node, exp().Paren | exp().Ordered | exp().Where):
        node = node.this
    if isinstance(node, exp().Not) and isinstance(node.this, exp().Is) and isinstance(node.this.expression, exp().Null):
        return f"{text_of(node.this.this)} IS NOT NULL"
    copy = node.copy()
    for one in copy.find_all(exp().Identifier):
        one.set("quoted", False)
    return str(copy.sql(dialect="sqlite")).lower().replace(" is null", " IS NULL")


def column_text(node: Any) -> str:
    """A column of an index or a target; an expression in parentheses."""
    while isinstance(node, exp().Ordered | exp().Paren | exp().Collate):
        node = node.this
    return name_of(node) if isinstance(node, exp().Column | exp().Identifier) else f"({text_of(node)})"


def conjuncts(where: Any) -> tuple[str, ...]:
    """The parts of a condition that are joined by AND."""
    node = where.this if isinstance(where, exp().Where) else where
    if node is None:
        return ()
    return tuple(text_of(one) for one in node.flatten()) if isinstance(node, exp().And) else (text_of(node),)


def tables_in(node: Any) -> tuple[str, ...]:
    """Every table that is named below a node."""
    return tuple(dict.fromkeys(table_of(one) for one in node.find_all(exp().Table) if one.name))
