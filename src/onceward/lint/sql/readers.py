"""
Which reader reads which dialect.
"""

from __future__ import annotations

from onceward._core.sql_lexer import Dialect
from onceward.lint.sql.statements import Statement


def read_piece(text: str, offset: int, dialect: Dialect) -> list[Statement]:
    """The statements in a piece of text (a statement, or a batch of T-SQL) that stands at an offset of the whole."""
    if dialect is Dialect.POSTGRES:
        from onceward.lint.sql.postgres_reader import read_postgres

        return read_postgres(text, offset)
    if dialect is Dialect.SQLITE:
        from onceward.lint.sql.sqlite_reader import read_sqlite

        return read_sqlite(text, offset)
    from onceward.lint.sql.tsql_reader import read_tsql

    return read_tsql(text, offset)
