"""
What can go wrong with a tenant's SQL, in words that a program and a person can act on.

    OncewardError
    +-- SqlError            the statement was not done; `kind` says why, and nothing was written
    +-- DatabaseUnknown     there is no such database
    +-- NameInvalid         that cannot be the name of a namespace or a database
    +-- EngineClosed        the engine takes no more work

Errors cross from a worker process to the engine as data (`to_wire`, `from_wire`); the classes they may become again
are listed here, and nothing is looked up by a name that somebody sent.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from onceward._core import errors as core_errors
from onceward._core.errors import Fault, OncewardError, RetryAdvice


class SqlKind(StrEnum):
    """Why a statement was not done."""

    UNIQUE_VIOLATION = "uniqueViolation"
    NOT_NULL = "notNull"
    FOREIGN_KEY = "foreignKey"
    CHECK = "check"
    UNKNOWN_TABLE = "unknownTable"
    UNKNOWN_COLUMN = "unknownColumn"
    SYNTAX = "syntax"
    TYPE = "type"
    LOCKED = "locked"
    TOO_MANY_PARAMS = "tooManyParams"
    WRONG_PARAMS = "wrongParams"
    READONLY = "readonly"
    TIMEOUT = "timeout"
    TOO_LARGE = "tooLarge"
    DENIED = "denied"
    NOT_IN_TRANSACTION = "notInTransaction"
    FULL = "full"
    INVALID = "invalid"
    """SQLite refuses it for a reason of its own, which the message gives."""


_PASSING = frozenset((SqlKind.LOCKED, SqlKind.TIMEOUT, SqlKind.FULL))
"""What may be otherwise the next time, with the same statement and the same key."""


class SqlError(OncewardError):
    """
    The statement was not done, and nothing of its request was written. The key, if there was one, is free.

    `kind` says why; `table`, `column` and `constraint` where SQLite names them; `hint` says what to do next;
    `statement` is the number of the statement in its batch, from 0.
    """

    code = "sql_error"

    def __init__(
        self,
        kind: SqlKind,
        message: str,
        *,
        table: str | None = None,
        column: str | None = None,
        constraint: str | None = None,
        hint: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds)
        self.kind = kind
        self.table = table
        self.column = column
        self.constraint = constraint
        self.hint = hint
        self.statement: int | None = None
        if kind in _PASSING:
            self.retry = RetryAdvice.SAME_KEY
            self.fault = Fault.CALLER if kind is SqlKind.TIMEOUT else Fault.STORE

    def document(self) -> dict[str, Any]:
        """What is known, as the HTTP answers spell it."""
        known = {
            "kind": self.kind.value,
            "message": str(self),
            "table": self.table,
            "column": self.column,
            "constraint": self.constraint,
            "hint": self.hint,
            "statement": self.statement,
        }
        return {name: value for name, value in known.items() if value is not None}


class DatabaseUnknown(OncewardError):
    """There is no such database. Create it first."""

    code = "database_unknown"


class NameInvalid(OncewardError):
    """A name is 1 to 63 characters: small letters, digits, - and _; it begins with a letter or a digit."""

    code = "name_invalid"


class NotReplayed(OncewardError):
    """Nothing ran under this key yet, and nothing new may run."""

    code = "not_replayed"


class EngineClosed(OncewardError):
    """The engine is closing and takes no more work. Nothing was run; send it again, with the same key, elsewhere."""

    code = "engine_closed"
    fault = Fault.STORE
    retry = RetryAdvice.SAME_KEY


_PLAIN: dict[str, type[OncewardError]] = {
    error.__name__: error
    for error in (
        *(core_errors.ConfigurationError, core_errors.ScopeMissing, core_errors.KeyInvalid, core_errors.KeyMissing),
        *(
            core_errors.RequestInvalid,
            core_errors.ResultInvalid,
            core_errors.KeyReused,
            core_errors.InFlight,
            core_errors.InDoubt,
        ),
        *(core_errors.Expired, core_errors.NotReplayable, core_errors.IllegalMove, core_errors.RetryTransaction),
        *(core_errors.StoreUnavailable, core_errors.StoreContended, core_errors.StoreFull, core_errors.StoreCorrupt),
        *(core_errors.RecordRefused, core_errors.SchemaMismatch, core_errors.OutcomeUnknown),
        *(DatabaseUnknown, NameInvalid, NotReplayed, EngineClosed),
    )
}
"""Errors that are made anew from their message and their wait."""


def to_wire(error: OncewardError) -> dict[str, Any]:
    """An error as data."""
    if isinstance(error, SqlError):
        return {"sql": error.document(), "wait": error.retry_after_seconds}
    name = next((base.__name__ for base in type(error).__mro__ if base.__name__ in _PLAIN), "StoreUnavailable")
    return {"name": name, "message": str(error), "wait": error.retry_after_seconds}


def from_wire(document: dict[str, Any]) -> OncewardError:
    """The error that `to_wire` made data of."""
    wait = document.get("wait")
    if "sql" in document:
        known = dict(document["sql"])
        statement = known.pop("statement", None)
        error = SqlError(SqlKind(known.pop("kind")), known.pop("message"), **known, retry_after_seconds=wait)
        error.statement = statement
        return error
    return _PLAIN[document["name"]](document["message"], retry_after_seconds=wait)
