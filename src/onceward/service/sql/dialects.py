"""
What depends on the database behind a service's SQL, and can be told without opening it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from onceward._core.sql_lexer import Dialect, TokenKind, tokens_of
from onceward.service.sql.limits import PUBLISHED, Limits
from onceward.service.sql.metering import may_write
from onceward.service.sql.statement_parser import only_reads

_SQLITE_ONLY: Final = frozenset(
    (
        *("value_bytes", "columns", "expression_depth", "compound_selects", "function_arguments", "pattern_bytes"),
        "trigger_depth",
    )
)
"""Limits of SQLite's own."""
LOOKED_AT_MAX: Final = 2_000
"""Characters of a statement that are looked at; a longer one is taken to write."""
_WRITING_WORDS = "alter comment create delete drop insert into merge nextval setval truncate update"
_WRITING: Final = frozenset(_WRITING_WORDS.split())


class SqlDialect(NamedTuple):
    """One kind of database."""

    may_write: Callable[[str], bool]
    """Whether a statement may write, as far as one can see: room is set aside for it."""
    only_reads: Callable[[str], bool]
    """Whether a statement changes nothing, so that an agent needs no key for it."""
    limits: frozenset[str]
    """Which of the limits hold."""

    def published(self, limits: Limits) -> dict[str, int | float]:
        """The limits that callers are told."""
        return {PUBLISHED[name]: getattr(limits, name) for name in PUBLISHED if name in self.limits}


def _may_write_postgres(sql: str) -> bool:
    if len(sql) > LOOKED_AT_MAX:
        return True
    words = (one.text.lower() for one in tokens_of(sql, Dialect.POSTGRES) if one.kind is TokenKind.WORD)
    return not _WRITING.isdisjoint(words)


SQLITE: Final = SqlDialect(may_write, only_reads, frozenset(PUBLISHED))
POSTGRES: Final = SqlDialect(
    _may_write_postgres, lambda sql: not _may_write_postgres(sql), frozenset(PUBLISHED) - _SQLITE_ONLY
)
