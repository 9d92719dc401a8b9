"""
The words of an SQL text: one pass, no recursion, before any real parser sees it.

It knows just enough (strings, quoted names, comments, dollar quotes, parentheses, placeholders) to find where
statements end, how many words they have and how deeply they nest: that is what the limits are measured by.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple


class Dialect(Enum):
    """Whose SQL it is."""

    POSTGRES = "postgres"
    SQLITE = "sqlite"
    TSQL = "tsql"


class TokenKind(Enum):
    """What a token is."""

    WORD = "word"
    QUOTED = "quoted"
    STRING = "string"
    DOLLAR = "dollar"
    """A dollar-quoted text, which may be the body of a function."""
    NUMBER = "number"
    PLACEHOLDER = "placeholder"
    """What a driver or a template fills in: `:name`, `%s`, `?`, `{{ name }}`."""
    MARK = "mark"
    LINE = "line"
    """A command to psql: from a backslash to the end of the line."""


class SqlToken(NamedTuple):
    """One token: what it is, where it stands, and its text (words in capitals)."""

    kind: TokenKind
    start: int
    end: int
    text: str


_SHARED: Final = r"""
    (?P<space>\s+)
  | (?P<comment>--[^\n]*)
  | (?P<block>/\*)
  | (?P<template>\{\{[^{}\n]{0,200}\}\}|\{\w{0,100}\})
"""
_BY_DIALECT: Final = {
    Dialect.POSTGRES: r"""
  | (?P<string>[eE]'(?:[^'\\]++|\\.|'')*+'? | (?:[bBxXnN]|[uU]&)?'(?:[^']++|'')*+'?)
  | (?P<quoted>(?:[uU]&)?"(?:[^"]++|"")*+"?)
  | (?P<dollar>\$(?:[^\W\d]\w*)?\$)
  | (?P<placeholder>%\(\w{1,100}\)s | %s | :'\w{1,100}' | :"\w{1,100}" | (?<![:\w]):[^\W\d]\w* | (?<!@)@[^\W\d]\w*)
  | (?P<number>\$?\d[\w.]*)
  | (?P<word>[^\W\d][\w$]*)
  | (?P<line>\\[^\n]*)
  | (?P<mark>::|:=|.)
""",
    Dialect.SQLITE: r"""
  | (?P<string>[xX]?'(?:[^']++|'')*+'?)
  | (?P<quoted>"(?:[^"]++|"")*+"?|`[^`]*+`?|\[[^\]]*+\]?)
  | (?P<placeholder>%\(\w{1,100}\)s | %s | \?\d* | [:@$][^\W\d]\w*)
  | (?P<number>\d[\w.]*)
  | (?P<word>[^\W\d][\w$]*)
  | (?P<line>^\.\w[^\n]*)
  | (?P<mark>.)
""",
    Dialect.TSQL: r"""
  | (?P<string>[nN]?'(?:[^']++|'')*+'?)
  | (?P<quoted>"(?:[^"]++|"")*+"?|\[(?:[^\]]++|\]\])*+\]?)
  | (?P<number>\d[\w.]*)
  | (?P<word>@{0,2}[^\W\d][\w$#@]*|\#{1,2}\w+)
  | (?P<mark>.)
""",
}
_PATTERNS: Final = {
    dialect: re.compile(_SHARED + rest, re.VERBOSE | re.DOTALL | re.MULTILINE) for dialect, rest in _BY_DIALECT.items()
}
_KINDS: Final = {kind.value: kind for kind in TokenKind}
_BEFORE_VALUE: Final = frozenset(
    {
        "SELECT",
        "VALUES",
        "LIMIT",
        "OFFSET",
        "AND",
        "OR",
        "NOT",
        "IN",
        "LIKE",
        "ILIKE",
        "BETWEEN",
        "THEN",
        "ELSE",
        "WHEN",
    }
)
_BLOCK_EDGE: Final = re.compile(r"/\*|\*/")


def tokens_of(text: str, dialect: Dialect, start: int = 0) -> Iterator[SqlToken]:
    """The tokens of a text, without blanks and comments. Every character is looked at a bounded number of times."""
    pattern, place = _PATTERNS[dialect], start
    while place < len(text):
        found = pattern.match(text, place)
        if found is None:  # Never: a mark is any character.
            return
        kind, place = found.lastgroup or "mark", found.end()
        if kind in ("space", "comment"):
            continue
        if kind == "block":
            place = _end_of_comment(text, place, nests=dialect is not Dialect.SQLITE)
        elif kind == "dollar":
            close = text.find(found[0], place)
            place = len(text) if close < 0 else close + len(found[0])
            yield SqlToken(TokenKind.DOLLAR, found.start(), place, found[0])
        elif kind == "template":
            yield SqlToken(TokenKind.PLACEHOLDER, found.start(), place, found[0])
        else:
            word = found[0].upper() if kind == "word" else found[0]
            yield SqlToken(_KINDS[kind], found.start(), place, word)


def _end_of_comment(text: str, place: int, *, nests: bool) -> int:
    depth = 1
    for edge in _BLOCK_EDGE.finditer(text, place):
        if edge[0] == "*/":
            depth -= 1
        elif nests:
            depth += 1
        if depth == 0:
            return edge.end()
    return len(text)


def without_placeholders(text: str, tokens: list[SqlToken], start: int) -> str:
    """The same text, as long as before, with a name where a driver or a template would put a value."""
    parts, done = [], start
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.kind is TokenKind.PLACEHOLDER or (token.text == "?" and _awaits_value(before)):
            parts += [text[done : token.start], "_" * (token.end - token.start)]
            done = token.end
        elif token.kind is TokenKind.LINE:
            parts += [text[done : token.start], " " * (token.end - token.start)]
            done = token.end
    return "".join(parts) + text[done : tokens[-1].end if tokens else start]


def _awaits_value(before: SqlToken | None) -> bool:
    """Whether a `?` here is a placeholder, and not PostgreSQL's operator for JSON."""
    if before is None:
        return True
    if before.kind is TokenKind.WORD:
        return before.text in _BEFORE_VALUE
    return before.kind is TokenKind.MARK and before.text not in (")", "]")
