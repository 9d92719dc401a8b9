"""
Errors that the service answers with and the client raises. Each has a stable code.

    OncewardError
    +-- SqlError                the statement was not done; `kind` says why, and nothing was written
    +-- DatabaseUnknown, NameInvalid, EngineClosed
    +-- ReferenceReused, PeriodClosed, PeriodNotOpen, CustomerUnknown, DeltaUnknown, DeltaRefused,
    |   NothingToReceipt, VerificationPending       of the ledger
    +-- ResourceNotFound        the service has nothing at this address, or under this id

Which HTTP status goes with a code is in `service/web/problems.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from onceward._core.errors import Fault, OncewardError, RetryAdvice


class ResourceNotFound(OncewardError):
    """There is nothing at this address or under this id. Check both, and which environment the token is for."""

    code = "not_found"


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
    """SQLite refuses it for another reason, which the message gives."""


_PASSING = frozenset((SqlKind.LOCKED, SqlKind.TIMEOUT, SqlKind.FULL))
"""Kinds that may pass: the same statement with the same key may succeed later."""


_BEFORE = frozenset(
    (
        *(SqlKind.UNKNOWN_TABLE, SqlKind.UNKNOWN_COLUMN, SqlKind.SYNTAX, SqlKind.TOO_MANY_PARAMS),
        *(SqlKind.WRONG_PARAMS, SqlKind.READONLY, SqlKind.DENIED, SqlKind.NOT_IN_TRANSACTION, SqlKind.LOCKED),
    )
)
"""Kinds of what is refused before it is run: it cannot be compiled, is not allowed, or never had its turn."""


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
        self.began = kind not in _BEFORE
        """Whether something was run before it failed, as far as its kind says. What ran costs what it used."""
        if kind in _PASSING:
            self.retry = RetryAdvice.SAME_KEY
            self.fault = Fault.CALLER if kind is SqlKind.TIMEOUT else Fault.STORE

    def document(self) -> dict[str, Any]:
        """The members of its problem document."""
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


class EngineClosed(OncewardError):
    """The engine is closing and takes no more work. Nothing was run; send it again, with the same key, elsewhere."""

    code = "engine_closed"
    fault = Fault.STORE
    retry = RetryAdvice.SAME_KEY


class ReferenceReused(OncewardError):
    """This reference was booked before with something else. A different delta needs a reference of its own."""

    code = "reference_reused"
    retry = RetryAdvice.NEW_KEY


class PeriodClosed(OncewardError):
    """The period is closed by a checkpoint, and takes no more deltas."""

    code = "period_closed"


class PeriodNotOpen(OncewardError):
    """The running period was closed before its end, and the next one has not begun. Send it again then, unchanged."""

    code = "period_not_open"
    retry = RetryAdvice.SAME_KEY


class CustomerUnknown(OncewardError):
    """There is no such customer in this ledger."""

    code = "customer_unknown"


class DeltaUnknown(OncewardError):
    """There is no such delta in this ledger."""

    code = "delta_unknown"


class DeltaRefused(OncewardError):
    """The ledger's rule refuses this delta. Nothing was booked."""

    code = "delta_refused"


class NothingToReceipt(OncewardError):
    """There is nothing verified that a receipt could be for."""

    code = "receipt_unknown"


class VerificationPending(OncewardError):
    """Deltas of this period still wait for their verification. Ask again when the verifier has seen them."""

    code = "verification_pending"
    retry = RetryAdvice.SAME_KEY
