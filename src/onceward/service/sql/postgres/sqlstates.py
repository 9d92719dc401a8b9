"""
What PostgreSQL's errors mean: one table from SQLSTATE to the kinds of `SqlError`.

A message of PostgreSQL's may carry a row's values (`Key (id)=(5) already exists`): those are the tenant's own, and go
to nobody else. They are cut at a length all the same.
"""

from __future__ import annotations

from typing import Any, Final

from psycopg.pq import DiagnosticField

from onceward._core.errors import OncewardError, StoreUnavailable
from onceward.protocol.errors import SqlError, SqlKind

MESSAGE_MAX: Final = 500
_CHEAPER = "make it cheaper: an index, a LIMIT, fewer rows at a time"
_AGAIN = "send it again, with the same key"

KINDS: Final[dict[str, tuple[SqlKind, str | None]]] = {
    "23505": (
        SqlKind.UNIQUE_VIOLATION,
        "a retry of the same row? INSERT ... ON CONFLICT DO NOTHING makes it harmless, DO UPDATE takes the new values",
    ),
    "23502": (SqlKind.NOT_NULL, "give the column a value"),
    "23503": (SqlKind.FOREIGN_KEY, "the row that it points to must be there"),
    "23514": (SqlKind.CHECK, None),
    "23P01": (SqlKind.CHECK, None),
    "42P01": (SqlKind.UNKNOWN_TABLE, "create it first; then the same key may be used again"),
    "42703": (SqlKind.UNKNOWN_COLUMN, "text goes into single quotes, or better into a parameter"),
    "42601": (SqlKind.SYNTAX, None),
    "42P02": (SqlKind.WRONG_PARAMS, None),
    "08P01": (SqlKind.WRONG_PARAMS, None),
    "42P18": (SqlKind.TYPE, "give the type of the parameter: $1::text"),
    "42804": (SqlKind.TYPE, None),
    "42846": (SqlKind.TYPE, None),
    "42883": (SqlKind.TYPE, "no function or operator takes these types; a cast may help"),
    "22P02": (SqlKind.TYPE, None),
    "22003": (SqlKind.TYPE, None),
    "22007": (SqlKind.TYPE, None),
    "22008": (SqlKind.TYPE, None),
    "22021": (SqlKind.TYPE, None),
    "40001": (SqlKind.LOCKED, _AGAIN),
    "40P01": (SqlKind.LOCKED, _AGAIN),
    "55P03": (SqlKind.LOCKED, _AGAIN),
    "25006": (SqlKind.READONLY, "use a token that may write"),
    "57014": (SqlKind.TIMEOUT, _CHEAPER),
    "25P04": (SqlKind.TIMEOUT, _CHEAPER),
    "54000": (SqlKind.TOO_LARGE, "make it smaller, or send it in parts"),
    "54001": (SqlKind.TOO_LARGE, "it is nested too deeply"),
    "53200": (SqlKind.TOO_LARGE, "it needs more memory than there is: make it smaller"),
    "53400": (SqlKind.TOO_LARGE, "it needs more temporary space than a statement may have: make it smaller"),
    "53100": (SqlKind.FULL, "the disk is full; delete rows, or tell the operator"),
    "42501": (SqlKind.DENIED, None),
    "3F000": (SqlKind.DENIED, None),
    "25001": (SqlKind.NOT_IN_TRANSACTION, None),
    "0A000": (SqlKind.INVALID, None),
}


def sql_error(result: Any) -> OncewardError:
    """The error for a failed statement of a tenant's; `result` is libpq's."""

    def field(which: DiagnosticField) -> str | None:
        found = result.error_field(which)
        return None if found is None else found.decode("utf-8", "replace")[:MESSAGE_MAX]

    code = field(DiagnosticField.SQLSTATE) or ""
    message = field(DiagnosticField.MESSAGE_PRIMARY) or "PostgreSQL refused the statement"
    if code.startswith(("57P", "08")) and code not in KINDS:
        return StoreUnavailable("the database server is shutting down; nothing was written", retry_after_seconds=1.0)
    kind, hint = KINDS.get(code, (SqlKind.INVALID, None))
    return SqlError(
        kind,
        message,
        table=field(DiagnosticField.TABLE_NAME),
        column=field(DiagnosticField.COLUMN_NAME),
        constraint=field(DiagnosticField.CONSTRAINT_NAME),
        hint=hint or field(DiagnosticField.MESSAGE_HINT),
        retry_after_seconds=1.0 if kind is SqlKind.LOCKED else None,
    )
