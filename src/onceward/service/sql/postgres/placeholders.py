"""
Placeholders as people write them (`?`, `$1`, `:name`), to PostgreSQL's own `$1`.

`??` stands for PostgreSQL's operator `?` (so `??|` is `?|`). What is inside texts, names in quotes and comments is left
as it is. The words are counted in the same pass, because a parser takes stack and memory for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from onceward._core.sql_lexer import Dialect, SqlToken, TokenKind, tokens_of
from onceward.protocol.errors import SqlError, SqlKind

TOKENS_MAX: Final = 20_000
"""Of one statement: an INSERT of a thousand rows with ten columns, and parameters do not count."""
DEPTH_MAX: Final = 200
"""Of parentheses."""
TOKENS_SHORT: Final = 2_000
"""Up to this, and up to `DEPTH_SHORT`, the parser needs no process of its own."""
DEPTH_SHORT: Final = 60
REMEMBERED: Final = 500
REMEMBERED_CHARACTERS: Final = 2_000

_NAMED = re.compile(r":[^\W\d]\w*")
_NUMBERED = re.compile(r"\$([0-9]{1,5})")


class Template(NamedTuple):
    """A statement with PostgreSQL's placeholders, and what they stand for."""

    sql: str
    names: tuple[str, ...]
    """Of `:name` placeholders: the first is `$1`."""
    parameters: int
    """How many values it takes."""
    is_short: bool
    """Whether the parser may be called in this process."""


def numbered(sql: str) -> Template:
    """A statement as PostgreSQL takes it; `SqlError` if it is beyond all reason, or mixes placeholders."""
    return _remembered(sql) if len(sql) <= REMEMBERED_CHARACTERS else _numbered(sql)


def ordered(template: Template, params: Sequence[Any] | Mapping[str, Any] | None) -> list[Any]:
    """The values in the order of the placeholders; `SqlError` if some are missing or left over."""
    if type(params) is list and len(params) == template.parameters and not template.names:
        return params  # Most are.
    if isinstance(params, Mapping):
        if template.parameters and not template.names:
            raise SqlError(SqlKind.WRONG_PARAMS, "the statement has ? or $1 in it; send its parameters as a list")
        missing, unused = set(template.names) - params.keys(), params.keys() - set(template.names)
        if missing or unused:
            words = [f"{', '.join(sorted(missing))} missing"] if missing else []
            words += [f"{', '.join(sorted(map(str, unused)))} not in the statement"] if unused else []
            raise SqlError(SqlKind.WRONG_PARAMS, f"wrong parameters: {'; '.join(words)}"[:500])
        return [params[name] for name in template.names]
    values = list(params or ())
    if template.names:
        raise SqlError(
            SqlKind.WRONG_PARAMS,
            "the statement has named parameters; send them as an object by name",
            hint=f"it names {', '.join(sorted(template.names))[:200]}",
        )
    if len(values) != template.parameters:
        raise SqlError(
            SqlKind.WRONG_PARAMS, f"the statement takes {template.parameters} parameters, and {len(values)} were sent"
        )
    return values


def _numbered(sql: str) -> Template:
    parts: list[str] = []
    names: dict[str, int] = {}
    done = marks = most = tokens = depth = deepest = 0
    before: SqlToken | None = None
    for token in tokens_of(sql, Dialect.POSTGRES):
        tokens += 1
        if token.kind is TokenKind.MARK:
            depth += (token.text in "([") - (token.text in ")]")
            deepest = max(deepest, depth)
        if tokens > TOKENS_MAX or deepest > DEPTH_MAX:
            raise SqlError(
                SqlKind.TOO_LARGE,
                f"the statement has more than {TOKENS_MAX} words, or parentheses more than {DEPTH_MAX} deep",
                hint="put values into parameters, or send it in parts",
            )
        spelled: str | None = None
        if token.text == "?" and token.kind is TokenKind.MARK:
            if before is not None and before.text == "?" and before.end == token.start:
                # The first of the two was taken for a placeholder.
                parts.pop()
                marks -= 1
                spelled = "?"
                token = token._replace(text="??")
            else:
                marks += 1
                spelled = f"${marks}"
        elif token.kind is TokenKind.PLACEHOLDER and _NAMED.fullmatch(token.text):
            spelled = f"${names.setdefault(token.text[1:], len(names) + 1)}"
        elif token.kind is TokenKind.NUMBER and (number := _NUMBERED.fullmatch(token.text)):
            most = max(most, int(number[1]))
        if spelled is not None:
            parts += [sql[done : token.start], spelled]
            done = token.end
        before = token
    if sum(map(bool, (marks, names, most))) > 1:
        raise SqlError(
            SqlKind.WRONG_PARAMS,
            "the statement mixes ?, $1 and :name",
            hint="use one kind of placeholder; PostgreSQL's operator ? is written ??",
        )
    short = tokens <= TOKENS_SHORT and deepest <= DEPTH_SHORT
    return Template("".join(parts) + sql[done:], tuple(names), marks or most or len(names), short)


_remembered = lru_cache(maxsize=REMEMBERED)(_numbered)
