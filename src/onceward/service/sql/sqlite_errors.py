"""
What SQLite's errors mean: one table from its result codes and messages to the kinds of `SqlError`.

Result codes decide where SQLite has one; for the many meanings of SQLITE_ERROR there is only the text. The tests run
each line against the real library, so that a new SQLite with other words is noticed.
"""

from __future__ import annotations

import re
import sqlite3
from typing import NamedTuple

from onceward._core.errors import OncewardError, StoreCorrupt, StoreUnavailable
from onceward.protocol.errors import SqlError, SqlKind

DRIVER_ERRORS = (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError, MemoryError, ValueError, TypeError)
"""What `sqlite3` raises for a statement: its own errors, and Python's."""

MESSAGE_MAX = 500
"""Characters of a message that are passed on; SQLite quotes the statement in some."""


class SqliteErrorRule(NamedTuple):
    """One line of the table: a pattern over SQLite's message, the kind, and what to do about it."""

    pattern: re.Pattern[str]
    kind: SqlKind
    hint: str | None = None


def _rule(pattern: str, kind: SqlKind, hint: str | None = None) -> SqliteErrorRule:
    return SqliteErrorRule(re.compile(pattern, re.DOTALL), kind, hint)


_ON_CONFLICT = (
    "a retry of the same row? INSERT ... ON CONFLICT DO NOTHING makes it harmless, DO UPDATE takes the new values"
)
_SMALLER = "make it smaller, or send it in parts"

BY_CODE: dict[int, SqliteErrorRule] = {
    sqlite3.SQLITE_TOOBIG: _rule("", SqlKind.TOO_LARGE, _SMALLER),
    sqlite3.SQLITE_INTERRUPT: _rule("", SqlKind.TIMEOUT, "make it cheaper: an index, a LIMIT, fewer rows at a time"),
    sqlite3.SQLITE_FULL: _rule("", SqlKind.FULL, "delete rows; the database has reached its size limit"),
    sqlite3.SQLITE_BUSY: _rule("", SqlKind.LOCKED, "send it again, with the same key"),
    sqlite3.SQLITE_LOCKED: _rule("", SqlKind.LOCKED, "send it again, with the same key"),
    sqlite3.SQLITE_READONLY: _rule("", SqlKind.READONLY),
    sqlite3.SQLITE_AUTH: _rule("", SqlKind.DENIED),
    sqlite3.SQLITE_MISMATCH: _rule("", SqlKind.TYPE, "a rowid is a whole number"),
    sqlite3.SQLITE_RANGE: _rule("", SqlKind.WRONG_PARAMS),
    sqlite3.SQLITE_NOMEM: _rule("", SqlKind.TOO_LARGE, "it needs more memory than a statement may have"),
}
"""By primary result code."""

BY_MESSAGE: tuple[SqliteErrorRule, ...] = (
    _rule(r"^UNIQUE constraint failed: index '(?P<constraint>.+)'$", SqlKind.UNIQUE_VIOLATION, _ON_CONFLICT),
    _rule(r"^UNIQUE constraint failed: (?P<columns>.+)$", SqlKind.UNIQUE_VIOLATION, _ON_CONFLICT),
    _rule(r"^NOT NULL constraint failed: (?P<columns>.+)$", SqlKind.NOT_NULL, "give the column a value"),
    _rule(r"^FOREIGN KEY constraint failed$", SqlKind.FOREIGN_KEY, "the row that it points to must be there"),
    _rule(r"^foreign key mismatch", SqlKind.FOREIGN_KEY, "the columns it points to need to be UNIQUE or a PRIMARY KEY"),
    _rule(r"^CHECK constraint failed: (?P<constraint>.+)$", SqlKind.CHECK),
    _rule(r"^cannot store \w+ value in \w+ column (?P<columns>.+)$", SqlKind.TYPE, "the table is STRICT"),
    _rule(
        r"^no such (?:table|view): (?P<table>.+)$",
        SqlKind.UNKNOWN_TABLE,
        "create it first; then the same key may be used again",
    ),
    _rule(
        r"^no such column: (?P<column>.+)$",
        SqlKind.UNKNOWN_COLUMN,
        "text goes into single quotes, or better into a parameter",
    ),
    _rule(r"^table (?P<table>.+) has no column named (?P<column>.+)$", SqlKind.UNKNOWN_COLUMN),
    _rule(r"syntax error$|^incomplete input$|^unrecognized token", SqlKind.SYNTAX),
    _rule(r"one statement at a time", SqlKind.SYNTAX, "one statement per call; a batch takes up to a hundred"),
    _rule(r"embedded null|null character", SqlKind.SYNTAX, "a NUL character cannot be part of SQL text"),
    _rule(r"^too many SQL variables$|^variable number must be between", SqlKind.TOO_MANY_PARAMS, _SMALLER),
    _rule(r"^Incorrect number of bindings supplied", SqlKind.WRONG_PARAMS),
    _rule(r"You did not supply a value for binding|^Binding \d+ has no name", SqlKind.WRONG_PARAMS),
    _rule(
        r"^too many (?:columns|terms|arguments|levels|FROM|attached)|^Expression tree is too large"
        r"|^parser stack overflow|^at most \d+ tables|pattern too complex$|query string is too large"
        r"|^out of memory$|too big$",
        SqlKind.TOO_LARGE,
        _SMALLER,
    ),
    _rule(r"(?:from within|inside) a transaction", SqlKind.NOT_IN_TRANSACTION),
    _rule(
        r"^not authorized|is prohibited$|^authorization denied|may not be (?:modified|altered|dropped|indexed)",
        SqlKind.DENIED,
    ),
    _rule(r"^object name reserved for internal use", SqlKind.DENIED, "names that begin with sqlite_ are SQLite's own"),
    _rule(r"^Could not decode to UTF-8", SqlKind.TYPE, "it is not valid text: select CAST(... AS BLOB)"),
)
"""By message, where the code says no more than SQLITE_ERROR or SQLITE_CONSTRAINT."""


def commit_was_refused(error: BaseException) -> bool:
    """Whether a commit that raised this has certainly not taken place."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
    return code in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_ERROR)


def translate_sqlite_error(error: BaseException, refusal: SqlError | None = None) -> OncewardError:
    """The error to raise for one of the driver's; `refusal` is what the authorizer had to say."""
    message = str(error)[:MESSAGE_MAX]
    if isinstance(error, MemoryError):
        return _made(BY_CODE[sqlite3.SQLITE_NOMEM], "out of memory", None)
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if refusal is not None and code in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_ERROR):
        return refusal
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreCorrupt("the database is damaged; it has to be restored from a backup")
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL):
        return StoreUnavailable("the database's file failed; nothing was written", retry_after_seconds=1.0)
    if code == sqlite3.SQLITE_INTERRUPT:
        message = "the statement was interrupted: it ran for too long"
    if code in BY_CODE:
        return _made(BY_CODE[code], message, None)
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
        return SqlError(SqlKind.CHECK, message)  # RAISE(ABORT, ...): the tenant's own words, whatever they look like.
    for meaning in BY_MESSAGE:
        found = meaning.pattern.search(message)
        if found is not None:
            return _made(meaning, message, found)
    if code == sqlite3.SQLITE_CONSTRAINT:
        return SqlError(SqlKind.CHECK, message)
    return SqlError(SqlKind.INVALID, message)


def _made(meaning: SqliteErrorRule, message: str, found: re.Match[str] | None) -> SqlError:
    known = found.groupdict() if found is not None else {}
    columns = known.get("columns")
    if columns is not None:
        # "t.a, t.b": the table once, the columns as a list.
        pairs = [name.rpartition(".") for name in columns.split(", ")]
        known = {"table": pairs[0][0] or None, "column": ", ".join(column for _, _, column in pairs)}
    return SqlError(
        meaning.kind,
        message or meaning.kind.value,
        table=known.get("table"),
        column=known.get("column"),
        constraint=known.get("constraint"),
        hint=meaning.hint,
        retry_after_seconds=1.0 if meaning.kind is SqlKind.LOCKED else None,
    )
