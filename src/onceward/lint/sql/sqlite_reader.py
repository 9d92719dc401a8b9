"""
SQLite's own ways of writing, made readable for sqlglot: REPLACE INTO, ON CONFLICT of constraints, triggers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from onceward._core.sql_lexer import Dialect, SqlToken, tokens_of
from onceward.lint.sql.glot_reader import read_with_sqlglot
from onceward.lint.sql.shifting import shifted
from onceward.lint.sql.splitting import split_statements
from onceward.lint.sql.statements import AddColumn, CreateTable, Routine, RoutineStep, Statement, Unique

_INSERT_OR: Final = "INSERT OR "
_RESOLUTIONS: Final = ("ROLLBACK", "ABORT", "FAIL", "IGNORE", "REPLACE")


def read_sqlite(text: str, offset: int) -> list[Statement]:
    """The statements in a piece of text that stands at an offset of the whole."""
    tokens = list(tokens_of(text, Dialect.SQLITE))
    words = [token.text for token in tokens[:4]]
    if words[:1] == ["REPLACE"]:
        found = read_with_sqlglot(text[: tokens[0].start] + _INSERT_OR + text[tokens[0].start :], Dialect.SQLITE)
        return [shifted(one, offset - len(_INSERT_OR), not_before=offset) for one in found]
    if words[:1] == ["CREATE"] and "TRIGGER" in words:
        return _trigger(text, tokens, offset)
    if words[:1] in (["CREATE"], ["ALTER"]):
        plain, resolutions = _without_resolutions(text, tokens)
        plain, strict = _without_options(plain, tokens)
        found = [_resolve(one, resolutions, strict) for one in read_with_sqlglot(plain, Dialect.SQLITE)]
    else:
        found = read_with_sqlglot(text, Dialect.SQLITE)
    return [shifted(one, offset) for one in found]


def _trigger(text: str, tokens: list[SqlToken], offset: int) -> list[Statement]:
    """The statements in a trigger."""
    begin = next((token.end for token in tokens if token.text == "BEGIN"), len(text))
    end = next((token.start for token in reversed(tokens) if token.text == "END"), len(text))
    found: list[Statement] = []
    for piece in split_statements(text, Dialect.SQLITE, begin, end):
        found += read_sqlite(text[piece.start : piece.end], offset + piece.start)
    name = next((one.text for one in tokens[2:] if one.text not in ("TRIGGER", "IF", "NOT", "EXISTS")), "trigger")
    return [Routine(offset, offset + 6, name.lower(), tuple(RoutineStep(one) for one in found), is_trigger=True)]


def _without_resolutions(text: str, tokens: list[SqlToken]) -> tuple[str, dict[int, str]]:
    """The text without the ON CONFLICT of its constraints, and by number of the unique constraint what each said."""
    resolutions: dict[int, str] = {}
    number, parts, done = -1, [], 0
    for place, token in enumerate(tokens):
        following = [one.text for one in tokens[place + 1 : place + 3]]
        if token.text == "UNIQUE" or (token.text == "PRIMARY" and following[:1] == ["KEY"]):
            number += 1
        elif token.text == "ON" and following[:1] == ["CONFLICT"] and following[-1] in _RESOLUTIONS:
            if number >= 0 and tokens[place - 1].text != "NULL":
                resolutions[number] = following[-1].lower()
            last = tokens[place + 2]
            parts += [text[done : token.start], " " * (last.end - token.start)]
            done = last.end
    return "".join(parts) + text[done:], resolutions


def _without_options(text: str, tokens: list[SqlToken]) -> tuple[str, bool]:
    """The text without WITHOUT ROWID and STRICT behind the last parenthesis, and whether it had the first."""
    last = max((place for place, token in enumerate(tokens) if token.text == ")"), default=len(tokens))
    options = [token.text for token in tokens[last + 1 :]]
    if options and set(options) <= {"WITHOUT", "ROWID", "STRICT", ","}:
        return text[: tokens[last].end], "WITHOUT" in options
    return text, False


def _resolve(statement: Statement, resolutions: dict[int, str], strict: bool) -> Any:
    if isinstance(statement, CreateTable) and strict:
        primary = {name for one in statement.uniques if one.primary for name in one.columns}
        columns = (replace(one, not_null=one.not_null or one.name in primary) for one in statement.columns)
        statement = replace(statement, columns=tuple(columns))
    if not resolutions or not isinstance(statement, CreateTable | AddColumn):
        return statement
    made: list[Unique] = []
    for number, unique in enumerate(statement.uniques):
        word = resolutions.get(number, "")
        made.append(replace(unique, resolution=word if word in ("ignore", "replace") else ""))
    return replace(statement, uniques=tuple(made))
