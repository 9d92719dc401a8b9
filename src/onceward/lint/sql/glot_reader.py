"""
From sqlglot's tree to the statements of the checks: INSERT, UPDATE, MERGE, SELECT of SQLite and T-SQL.

sqlglot reads many dialects and so reads a few things of SQLite not at all: they are written in another way, or left
out and kept aside, before it sees the text (`sqlite_reader.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from onceward._core.sql_lexer import Dialect
from onceward.lint.sql.glot_definitions import read_definition
from onceward.lint.sql.glot_tree import (
    column_text,
    conjuncts,
    exp,
    name_of,
    span_of,
    table_of,
    tables_in,
    value_of,
)
from onceward.lint.sql.key_names import counts_attempts
from onceward.lint.sql.row_values import merge_rows
from onceward.lint.sql.statements import (
    Conflict,
    Insert,
    Merge,
    Problem,
    Read,
    Statement,
    Transaction,
    UpdateRows,
    Value,
)

LOCKING_HINTS = frozenset({"HOLDLOCK", "SERIALIZABLE"})
"""T-SQL's: they lock the gap where the row would be."""


def read_with_sqlglot(text: str, dialect: Dialect) -> list[Statement]:
    """The statements in a text, with places in it. What cannot be parsed is a Problem."""
    sqlglot: Any = import_module("sqlglot")
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # What it cannot read is told by us.
    try:
        trees = sqlglot.parse(text, dialect=dialect.value)
    except sqlglot.errors.SqlglotError as error:
        detail: dict[str, Any] = next(iter(getattr(error, "errors", [])), {})
        message = str(detail.get("description") or error).split("\n")[0][:200]
        place = _place(text, int(detail.get("line") or 1), int(detail.get("col") or 1))
        return [Problem(place, place + 1, "syntax", message)]
    found: list[Statement] = []
    for tree in trees:
        if tree is not None:
            found += _read(tree, text, dialect)
    return found


def _place(text: str, line: int, column: int) -> int:
    lines = text.split("\n")[: line - 1]
    return min(sum(map(len, lines)) + len(lines) + max(0, column - 1), max(0, len(text) - 1))


def _read(tree: Any, text: str, dialect: Dialect) -> Iterator[Statement]:
    classes = exp()
    end = min(len(text), 60)
    if isinstance(tree, classes.Transaction):
        yield Transaction(0, end, "begin")
    elif isinstance(tree, classes.Commit):
        yield Transaction(0, end, "commit")
    elif isinstance(tree, classes.Rollback):
        yield Transaction(0, end, "rollback")
    elif isinstance(tree, classes.Create | classes.Alter | classes.Drop | classes.TruncateTable):
        yield from read_definition(tree, text, dialect)
    elif isinstance(tree, classes.Command):
        # A fallback of sqlglot for what it cannot read. Words that write are no matter for a guess.
        if str(tree.this).upper() in ("INSERT", "REPLACE", "MERGE", "CREATE", "ALTER"):
            yield Problem(0, 1, "syntax", f"this {str(tree.this).upper()} cannot be read")
    else:
        yield from _writes_and_reads(tree, text)


def _writes_and_reads(tree: Any, text: str) -> Iterator[Statement]:
    classes = exp()
    wrote = False
    for one in tree.find_all(classes.Insert, classes.Update, classes.Merge):
        if one.find_ancestor(classes.Merge) or (isinstance(one, classes.Update) and one.args.get("this") is None):
            continue
        wrote = True
        if isinstance(one, classes.Insert):
            yield _insert(one, tree, text)
        elif isinstance(one, classes.Update):
            sets = [each for each in one.expressions if isinstance(each, classes.EQ)]
            names, values = [name_of(each.this) for each in sets], [value_of(each.expression) for each in sets]
            yield UpdateRows(*_from_word(text, "update", one.this), table_of(one.this), tuple(names), tuple(values))
        else:
            inserts = any(isinstance(each.args.get("then"), classes.Insert) for each in one.find_all(classes.When))
            yield Merge(*_from_word(text, "merge", one.this), table_of(one.this), inserts)
    if not wrote:
        tables = tables_in(tree)
        hints = {str(hint.name).upper() for one in tree.find_all(classes.WithTableHint) for hint in one.expressions}
        if tables:
            yield Read(0, min(len(text), 60), tables, bool(hints & LOCKING_HINTS))


def _from_word(text: str, word: str, node: Any) -> tuple[int, int]:
    start, end = span_of(node)
    before = text[max(0, start - 400) : start].lower()
    begin = before.rfind(word)
    return (start - len(before) + begin if begin >= 0 else start), end


def _insert(insert: Any, tree: Any, text: str) -> Insert:
    classes = exp()
    into = insert.this
    columns = tuple(name_of(one) for one in into.expressions) if isinstance(into, classes.Schema) else ()
    source = insert.args.get("expression")
    start, end = _from_word(text, "insert", into)
    return Insert(
        start,
        end,
        table_of(into),
        columns,
        _values(source),
        _conflict(insert, text),
        _absence_checks(source, tree) if source is not None else (),
        default_row=source is None,
    )


def _values(source: Any) -> tuple[Value, ...]:
    classes = exp()
    if isinstance(source, classes.Values):
        return merge_rows(
            [value_of(one) for one in (row.expressions if isinstance(row, classes.Tuple) else [row])]
            for row in source.expressions
        )
    selects = source.selects if isinstance(source, classes.Query) else []
    if any(one.is_star for one in selects):
        return ()
    return tuple(value_of(one.this if isinstance(one, classes.Alias) else one) for one in selects)


def _conflict(insert: Any, text: str) -> Conflict | None:
    alternative = str(insert.args.get("alternative") or "").lower()
    clause = insert.args.get("conflict")
    if clause is None:
        if alternative in ("ignore", "replace"):
            return Conflict(alternative, max(0, text.lower().find(f"or {alternative}")))
        return None
    action = "update" if "UPDATE" in str(clause.args.get("action") or "").upper() else "nothing"
    sets = [one for one in clause.expressions if isinstance(one, exp().EQ)]
    target = tuple(column_text(one) for one in clause.args.get("conflict_keys") or [])
    own = {table_of(insert.this), str(insert.this.find(exp().Table).alias).lower(), ""}
    return Conflict(
        action,
        max(0, text.lower().rfind("conflict")),
        target,
        conjuncts(clause.args.get("index_predicate")),
        str(clause.args.get("constraint") or ""),
        tuple(name_of(one.this) for one in sets),
        tuple(name_of(one.this) for one in sets if _adds(one, own)),
        changes_nothing=bool(sets) and all(_sets_itself(one, own, target) for one in sets),
    )


def _adds(one: Any, own: set[str]) -> bool:
    classes, column = exp(), name_of(one.this)
    if counts_attempts(column):
        return False
    return any(
        name_of(reference) == column and str(reference.table).lower() in own
        for sum_ in one.expression.find_all(classes.Add, classes.Sub, classes.Mul, classes.DPipe)
        for reference in sum_.find_all(classes.Column)
    )


def _sets_itself(one: Any, own: set[str], target: tuple[str, ...]) -> bool:
    value = one.expression
    if not isinstance(value, exp().Column) or name_of(value) != name_of(one.this):
        return False
    table = str(value.table).lower()
    return table in own or (table == "excluded" and name_of(value) in target)


def _absence_checks(source: Any, tree: Any) -> tuple[str, ...]:
    """The tables whose lack of a row is looked for."""
    classes = exp()
    found: list[str] = []
    where = source.args.get("where")
    if where is not None:
        for one in where.find_all(classes.Not):
            for link in one.find_all(classes.Exists, classes.In):
                found += tables_in(link)
        for one in where.find_all(classes.EQ, classes.Is, classes.LT):
            if isinstance(one.expression, classes.Null) or one.expression.name in ("0", "1"):
                found += [table for each in one.find_all(classes.Subquery) for table in tables_in(each)]
                if isinstance(one, classes.Is) and not isinstance(one.parent, classes.Not):
                    found += _left_joined(source)
    if isinstance(source, classes.Except):
        found += tables_in(source.expression)
    common = {str(one.alias).lower(): tables_in(one.this) for one in tree.find_all(classes.CTE)}
    for name in list(found):
        found += common.get(name, ())
    return tuple(dict.fromkeys(found))


def _left_joined(source: Any) -> list[str]:
    joins = source.args.get("joins") or []
    return [table for one in joins if str(one.side).upper() == "LEFT" for table in tables_in(one)]
