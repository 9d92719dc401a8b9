"""
From a text to its statements: split, measured, and parsed here or, if it is long or deep, in another process.

Nothing of what is parsed is run. A statement that cannot be parsed is a `Problem`, and the others are read all the
same; so is one whose parser crashes, because it does so in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

from onceward._core.errors import ConfigurationError
from onceward._core.sql_lexer import Dialect, without_placeholders
from onceward.lint.sql.parse_process import parse_elsewhere
from onceward.lint.sql.readers import read_piece
from onceward.lint.sql.splitting import DEPTH_MAX, TOKENS_MAX, Piece, split_statements
from onceward.lint.sql.statements import Problem, Statement

PROCESSES_MAX: Final = 20
"""For one file: so many statements of it are parsed elsewhere."""
PROBLEMS_MAX: Final = 20
"""For one file: one that is not SQL at all would have one for each line."""

_PACKAGES: Final = {Dialect.POSTGRES: "pgparse", Dialect.SQLITE: "sqlglot", Dialect.TSQL: "sqlglot"}


def check_parsers(dialect: Dialect) -> None:
    """Raises ConfigurationError if the parser for a dialect is not installed."""
    package = _PACKAGES[dialect]
    if find_spec(package) is None:
        raise ConfigurationError(
            f"reading SQL needs the package {package!r}, which is missing: pip install 'onceward[lint]'"
        )


def parse_sql(text: str, dialect: Dialect) -> Iterator[Statement]:
    """The statements of a text in order, with a `Problem` for each that could not be read."""
    check_parsers(dialect)
    processes = problems = 0
    for piece in split_statements(text, dialect):
        if problems >= PROBLEMS_MAX:
            return
        if piece.is_too_large:
            found: list[Statement] = [_too_large(piece)]
        else:
            for prepared in _texts(text, piece, dialect):
                found, elsewhere = _parse(prepared, piece, dialect, may_start=processes < PROCESSES_MAX)
                processes += elsewhere
                if not any(isinstance(one, Problem) for one in found):
                    break
        problems += sum(isinstance(one, Problem) for one in found)
        yield from found


def _texts(text: str, piece: Piece, dialect: Dialect) -> list[str]:
    """The texts to try: as it stands; and with names for what looks like placeholders, if anything does."""
    plain = text[piece.start : piece.end]
    if dialect is Dialect.TSQL:
        return [plain]
    prepared = without_placeholders(text, piece.tokens, piece.start)
    return [plain] if prepared == plain else [plain, prepared]


def _parse(prepared: str, piece: Piece, dialect: Dialect, *, may_start: bool) -> tuple[list[Statement], bool]:
    """The statements of a piece, and whether it took another process."""
    if piece.is_short:
        try:
            return read_piece(prepared, piece.start, dialect), False
        except (RecursionError, MemoryError):
            pass  # Few tokens, but a deep tree: where there is more stack, it may be read.
    if not may_start:
        message = f"this file has more than {PROCESSES_MAX} long statements; this one was not checked"
        return [Problem(piece.start, piece.start + 1, "large", message)], False
    return parse_elsewhere(prepared, piece.start, dialect), True


def _too_large(piece: Piece) -> Problem:
    if piece.cut:
        message = "the file has too many words or statements; nothing from here on was checked"
    elif piece.depth > DEPTH_MAX:
        message = f"nests more than {DEPTH_MAX} deep; this statement was not checked"
    else:
        message = f"has more than {TOKENS_MAX:,} words; this statement was not checked"
    return Problem(piece.start, piece.start + 1, "large", message)
