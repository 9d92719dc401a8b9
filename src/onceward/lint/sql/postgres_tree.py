"""
Reading libpg_query's tree: nodes are dictionaries of one name, as its JSON has them. No recursion on strangers' input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from onceward.lint.sql.fresh_values import FRESH_FUNCTIONS
from onceward.lint.sql.statements import CONSTANT, DEFAULT, FRESH, GIVEN, NULL, Value

Node: TypeAlias = dict[str, Any]

DEFAULT_SCHEMAS = ("public", "pg_temp")
_TEXT_DEPTH_MAX = 30


def nodes(tree: Any) -> Iterator[tuple[str, Node]]:
    """Every named node in a tree, in the order of the text, without recursion."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += reversed(node)
        elif isinstance(node, dict):
            for name, inside in node.items():
                if name[:1].isupper() and isinstance(inside, dict):
                    yield name, inside
            stack += reversed(list(node.values()))


def only(node: Any) -> tuple[str, Node]:
    """A node's name and what is in it."""
    for name, inside in (node or {}).items():
        return name, inside if isinstance(inside, dict) else {}
    return "", {}


def strings(items: list[Node] | None) -> list[str]:
    """The texts of a list of String nodes, such as the parts of a name."""
    return [inside.get("sval", "") for name, inside in map(only, items or []) if name == "String"]


def table_name(relation: Node) -> str:
    """A table's name; with its schema unless that is the default one."""
    schema, name = relation.get("schemaname", ""), relation.get("relname", "")
    return f"{schema}.{name}" if schema and schema not in DEFAULT_SCHEMAS else str(name)


def joined_name(parts: list[str]) -> str:
    """A name of one or two parts, as `table_name` has it."""
    return ".".join(part for part in parts[-2:] if part not in DEFAULT_SCHEMAS or part == parts[-1])


def fresh_name(expression: Any) -> str:
    """What in an expression makes it another at each attempt; nothing if it stays the same."""
    for name, inside in nodes(expression):
        if name == "FuncCall":
            called = strings(inside.get("funcname"))
            if called and called[-1].lower() in FRESH_FUNCTIONS:
                return f"{called[-1]}()"
        elif name == "SQLValueFunction":
            word = str(inside.get("op", "")).removeprefix("SVFOP_")
            if "TIME" in word or "DATE" in word:
                return word
    return ""


def value_of(expression: Any) -> Value:
    """What an expression is to a retry."""
    name, inside = only(expression)
    while name == "TypeCast":
        name, inside = only(inside.get("arg"))
    if name == "A_Const":
        return Value(NULL) if inside.get("isnull") else Value(CONSTANT, constant_text(inside))
    if name == "SetToDefault":
        return Value(DEFAULT)
    fresh = fresh_name(expression)
    return Value(FRESH, fresh) if fresh else Value(GIVEN)


def constant_text(constant: Node) -> str:
    """A constant as it is written, without quotes."""
    for kind in ("sval", "ival", "fval", "boolval", "bsval"):
        if kind in constant:
            inside = constant[kind]
            return str(next(iter(inside.values()), 0 if kind == "ival" else "")) if isinstance(inside, dict) else ""
    return ""


def expression_text(node: Any, depth: int = 0) -> str:
    """An expression in a form that two equal ones share, without casts; also what people are shown."""
    name, inside = only(node)
    if depth > _TEXT_DEPTH_MAX:
        return "..."
    if name == "ColumnRef":
        return (strings(inside.get("fields")) or ["*"])[-1]
    if name == "A_Const":
        text = constant_text(inside)
        return f"'{text}'" if "sval" in inside else "NULL" if inside.get("isnull") else text
    if name in ("TypeCast", "CollateClause"):
        return expression_text(inside.get("arg"), depth + 1)
    if name == "FuncCall":
        arguments = ", ".join(expression_text(one, depth + 1) for one in inside.get("args", []))
        return f"{(strings(inside.get('funcname')) or ['?'])[-1]}({arguments})"
    if name == "NullTest":
        words = "IS NULL" if inside.get("nulltesttype") == "IS_NULL" else "IS NOT NULL"
        return f"{expression_text(inside.get('arg'), depth + 1)} {words}"
    if name == "A_Expr":
        left, right = (expression_text(inside.get(side), depth + 1) for side in ("lexpr", "rexpr"))
        return f"{left} {(strings(inside.get('name')) or ['?'])[-1]} {right}".strip()
    if name == "BoolExpr":
        parts = [expression_text(one, depth + 1) for one in inside.get("args", [])]
        kind = str(inside.get("boolop", "")).removesuffix("_EXPR")
        return f"NOT ({parts[0]})" if kind == "NOT" and parts else "(" + f" {kind} ".join(parts) + ")"
    if name == "CoalesceExpr":
        return "coalesce(" + ", ".join(expression_text(one, depth + 1) for one in inside.get("args", [])) + ")"
    if name == "List":
        return ", ".join(expression_text(one, depth + 1) for one in inside.get("items", [])[:100])
    return name or "?"


def conjuncts(where: Any) -> tuple[str, ...]:
    """The parts of a condition that are joined by AND."""
    if not where:
        return ()
    name, inside = only(where)
    if name == "BoolExpr" and inside.get("boolop") == "AND_EXPR":
        return tuple(expression_text(one) for one in inside.get("args", []))
    return (expression_text(where),)


def index_columns(elements: list[Node] | None) -> tuple[str, ...]:
    """The columns of an index or a conflict target; expressions in parentheses."""
    found = []
    for _, element in map(only, elements or []):
        found.append(str(element["name"]) if "name" in element else f"({expression_text(element.get('expr'))})")
    return tuple(found)
