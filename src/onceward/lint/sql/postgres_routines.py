"""
Functions, procedures and DO blocks of PostgreSQL: their statements in order, and who handles their errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from onceward._core.sql_lexer import Dialect, TokenKind, tokens_of
from onceward.lint.sql.postgres_tree import Node, joined_name, only, strings
from onceward.lint.sql.splitting import split_statements
from onceward.lint.sql.statements import (
    FoundCheck,
    Handler,
    Lock,
    Problem,
    Routine,
    RoutineStep,
    Statement,
    Transaction,
)

if TYPE_CHECKING:
    from onceward.lint.sql.postgres_reader import Places

_UNIQUE: Final = ("unique_violation", "integrity_constraint_violation", "23505")
_FOUND: Final = re.compile(r"\bfound\b|row_?count|\brows\b", re.IGNORECASE)
_CLAIM: Final = "ONCEWARD_CLAIM"
"""Words are in capitals here."""
_NESTING_MAX: Final = 200
_EXPRESSION_MODES: Final = (2,)


def read_routine(inside: Node, places: Places) -> Iterator[Statement]:
    """A routine in SQL or PL/pgSQL. One in another language is not looked into."""
    given = map(only, inside.get("options") or inside.get("args") or [])
    options = {str(one.get("defname")): one.get("arg") for _, one in given}
    usual = "sql" if "funcname" in inside else "plpgsql"
    language = str(only(options.get("language"))[1].get("sval", usual)).lower()
    name = joined_name(strings(inside.get("funcname")))
    body = _body_span(places.text)
    if body is None or language not in ("sql", "plpgsql"):
        return
    start = places.at(0)
    offset = start + len(places.text[: body[0]])
    text = places.text[body[0] : body[1]]
    if language == "sql":
        steps = tuple(RoutineStep(one) for one in _read_sql(text, offset))
        yield Routine(start, start + 60, name, steps)
        return
    parser: Any = import_module("pgparse")
    try:
        functions = parser.parse_pgsql(places.text)
    except parser.PGQueryError as error:
        yield Problem(start, start + 1, "syntax", f"PL/pgSQL: {error.message}")
        return
    claims = any(token.text == _CLAIM for token in tokens_of(text, Dialect.POSTGRES))
    is_trigger = strings(inside.get("returnType", {}).get("names"))[-1:] == ["trigger"]
    for function in functions:
        reader = _BodyReader(text, offset)
        reader.walk(function, -1, 0)
        steps, handlers = tuple(reader.steps), tuple(reader.handlers)
        end = start + min(len(places.text), 60)
        yield Routine(start, end, name, steps, handlers, is_trigger=is_trigger, claims=claims)


def _body_span(text: str) -> tuple[int, int] | None:
    """Where the body stands: in the dollar quotes, or in the longest string."""
    spans = []
    for token in tokens_of(text, Dialect.POSTGRES):
        if token.kind is TokenKind.DOLLAR:
            return token.start + len(token.text), token.end - len(token.text)
        if token.kind is TokenKind.STRING:
            spans.append((token.start + 1, token.end - 1))
    return max(spans, key=lambda span: span[1] - span[0], default=None)


def _read_sql(text: str, offset: int) -> list[Statement]:
    from onceward.lint.sql.postgres_reader import read_postgres

    found: list[Statement] = []
    for piece in split_statements(text, Dialect.POSTGRES):
        found += read_postgres(text[piece.start : piece.end], offset + piece.start)
    return found


class _BodyReader:
    """Walks a PL/pgSQL body, in which statements and expressions are texts."""

    def __init__(self, text: str, offset: int) -> None:
        self._text, self._offset = text, offset
        self._lines = [0]
        for line in text.split("\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)
        self.steps: list[RoutineStep] = []
        self.handlers: list[Handler] = []
        self._line = 1

    def walk(self, node: Any, handler: int, depth: int) -> None:
        """Take the steps of a node and all below, in order."""
        if depth > _NESTING_MAX:
            return
        if isinstance(node, list):
            for one in node:
                self.walk(one, handler, depth + 1)
            return
        if not isinstance(node, dict):
            return
        for name, inside in node.items():
            if isinstance(inside, dict) and "lineno" in inside:
                self._line = int(inside["lineno"])
            if name == "PLpgSQL_stmt_block":
                self._block(inside, handler, depth)
            elif name == "PLpgSQL_expr":
                self._expression(inside, handler)
            elif name in ("PLpgSQL_stmt_commit", "PLpgSQL_stmt_rollback"):
                place = self._place()
                self.steps.append(
                    RoutineStep(Transaction(place, place + 6, name.removeprefix("PLpgSQL_stmt_")), handler)
                )
            elif name != "datums":
                self.walk(inside, handler, depth + 1)

    def _block(self, block: Node, handler: int, depth: int) -> None:
        _, exceptions = only(block.get("exceptions"))
        inner = handler
        if exceptions:
            inner = len(self.handlers)
            place = self._place()
            self.handlers.append(_handler(exceptions, place))
        self.walk(block.get("body"), inner, depth + 1)
        self.walk(exceptions.get("exc_list"), handler, depth + 1)

    def _expression(self, expression: Node, handler: int) -> None:
        query = str(expression.get("query", ""))
        mode = int(expression.get("parseMode", 0))
        place = self._find(query)
        if "advisory" in query and "lock" in query:
            self.steps.append(RoutineStep(Lock(place, place + len(query)), handler))
        if mode == 0:
            found = _read_sql(query, place)
        elif "select" in query.lower():
            found = _read_sql(f"SELECT {query.split(':=', 1)[-1]}", max(0, place - 7))
        else:
            if mode in _EXPRESSION_MODES and _FOUND.search(query):
                self.steps.append(RoutineStep(FoundCheck(place, place + len(query)), handler, condition=True))
            return
        condition = mode in _EXPRESSION_MODES
        self.steps += [RoutineStep(one, handler, condition) for one in found if not isinstance(one, Problem)]

    def _place(self) -> int:
        """Where the line begins that the parser is at."""
        line = min(max(self._line, 1), len(self._lines) - 1)
        start = self._lines[line - 1]
        text = self._text[start : self._lines[line]]
        return self._offset + start + len(text) - len(text.lstrip())

    def _find(self, query: str) -> int:
        start = self._place()
        found = self._text.find(query, start - self._offset) if query else -1
        return found + self._offset if found >= 0 else start


def _handler(exceptions: Node, place: int) -> Handler:
    conditions: list[str] = []
    raises = looks = names_it = False
    for _, one in map(only, exceptions.get("exc_list", [])):
        conditions += [str(inside.get("condname", "")).lower() for _, inside in map(only, one.get("conditions", []))]
        text = repr(one.get("action", ""))
        raises = raises or "PLpgSQL_stmt_raise" in text
        looks = looks or "CONSTRAINT_NAME" in text
        names_it = names_it or any(one in text for one in _UNIQUE)
    catches_all = "others" in conditions
    catches_unique = (catches_all and (names_it or not raises)) or any(one in _UNIQUE for one in conditions)
    return Handler(place, place + 5, catches_unique, catches_all, looks, raises)
