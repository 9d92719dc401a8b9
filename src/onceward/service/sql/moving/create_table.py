"""
What SQLite's PRAGMAs do not tell of a table: its CHECKs, collations and deferred foreign keys, read from its text.

The text is SQLite's own copy of a statement that it has parsed, so it is well formed; only its words are looked at.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from onceward._core.sql_lexer import Dialect, SqlToken, TokenKind, tokens_of

_RULES: Final = frozenset(("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"))
"""Words that a rule of the whole table begins with; anything else is the name of a column."""


class TableText(NamedTuple):
    """What was found in the text of a table."""

    checks: list[str]
    collations: dict[str, str]
    """By column, in small letters; without BINARY, which is the usual one."""
    deferred: set[str]
    """The first column of each foreign key that is looked at only when a transaction ends; in small letters."""
    autoincrement: bool
    on_conflict: bool
    """Whether a constraint has its own answer to a conflict, such as ON CONFLICT REPLACE."""


def read_create_table(sql: str) -> TableText:
    """Read what the text says."""
    tokens = list(tokens_of(sql, Dialect.SQLITE))
    found = TableText([], {}, set(), any(one.text == "AUTOINCREMENT" for one in tokens), _has_conflict(tokens))
    for part in _parts(tokens):
        name = None if part[0].text in _RULES and part[0].kind is TokenKind.WORD else _name(part[0], sql)
        for number, token in enumerate(part):
            word = token.text if token.kind is TokenKind.WORD else ""
            if word == "CHECK":
                found.checks.append(_inside(part, number + 1, sql))
            elif word == "COLLATE" and name is not None and number + 1 < len(part):
                collation = _name(part[number + 1], sql).upper()
                if collation != "BINARY":
                    found.collations[name.lower()] = collation
            elif word == "DEFERRED":
                found.deferred.add((name or _first_column(part, sql)).lower())
    return found


def _has_conflict(tokens: list[SqlToken]) -> bool:
    return any(one.text == "ON" and two.text == "CONFLICT" for one, two in pairwise(tokens))


def _parts(tokens: list[SqlToken]) -> list[list[SqlToken]]:
    """What stands between the commas of the outermost parentheses."""
    parts: list[list[SqlToken]] = []
    part: list[SqlToken] = []
    depth = 0
    for token in tokens:
        mark = token.text if token.kind is TokenKind.MARK else ""
        if mark == "(":
            depth += 1
            if depth == 1:
                continue
        elif mark == ")":
            depth -= 1
            if depth == 0:
                break
        if depth == 1 and mark == ",":
            parts.append(part)
            part = []
        elif depth:
            part.append(token)
    return [one for one in (*parts, part) if one]


def _inside(part: list[SqlToken], at: int, sql: str) -> str:
    """The text in the parentheses that open at a token."""
    depth = 0
    for token in part[at:]:
        if token.kind is TokenKind.MARK:
            depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            return sql[part[at].end : token.start].strip()
    return sql[part[at].end : part[-1].end].strip()


def _first_column(part: list[SqlToken], sql: str) -> str:
    """The first column in FOREIGN KEY (...)."""
    opened = next((n for n, one in enumerate(part) if one.text == "(" and one.kind is TokenKind.MARK), 0)
    return _name(part[min(opened + 1, len(part) - 1)], sql)


def _name(token: SqlToken, sql: str) -> str:
    text = sql[token.start : token.end]
    if text[:1] in ('"', "`", "'"):
        return text[1:-1].replace(text[0] * 2, text[0])
    return text[1:-1] if text[:1] == "[" else text
