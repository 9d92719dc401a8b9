"""
Translates errors of PostgreSQL and psycopg into ours, and says which are worth another try.

The SQLSTATE decides, never the text of a message; only while connecting does libpq give no SQLSTATE, and there the text
is all there is. No exception of the driver leaves the store.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Any

import psycopg

from onceward._core.errors import (
    ConfigurationError,
    OncewardError,
    RecordRefused,
    SchemaMismatch,
    StoreCorrupt,
    StoreFull,
    StoreUnavailable,
)

DRIVER_ERRORS = (psycopg.Error, OverflowError, UnicodeError, struct.error)
"""What psycopg raises: its own, and Python's for a value that has no place in a column."""


class NotConnected(Exception):
    """No connection could be had, and nothing was sent; `meaning` is the error to raise."""

    def __init__(self, meaning: OncewardError, *, final: bool = False) -> None:
        super().__init__(str(meaning))
        self.meaning = meaning
        self.final = final
        """Whether another try is not worth it: the wait was long enough already, or no connection will ever be had."""


class ServerSilent(psycopg.OperationalError):
    """The server was silent for too long. What was sent may still be carried out; nobody waits for the response."""


class CommitUnconfirmed(ServerSilent):
    """The server committed without waiting for its synchronous standby, so a failover may lose the commit."""


_WARNING, _WARNED = "WARNING", frozenset(("01000", "57P01"))
_WAITS_FOR_STANDBY = "SyncRep"
"""What PostgreSQL's functions that wait for a standby begin with; they say where a warning comes from."""


class NoticeListener:
    """
    Listens to the notices of a connection, for one warning.

    If the wait for the synchronous standby is cancelled (by an administrator, by a time limit), PostgreSQL reports the
    commit as a success, with a warning: it is committed on this server only. The warning's text is translated, so we
    recognise it by its code and its source function. The code alone is not enough: any trigger may warn with it.
    """

    __slots__ = ("unconfirmed",)

    def __init__(self) -> None:
        self.unconfirmed = False

    def __call__(self, notice: Any) -> None:
        """A notice of psycopg's (its Diagnostic)."""
        self.hear(notice.severity_nonlocalized or notice.severity, notice.sqlstate, notice.source_function)

    def hear(self, severity: str | None, code: str | None, source: str | None) -> None:
        """Take a notice of any driver. If the driver does not give the source function, the code alone decides."""
        if severity == _WARNING and code in _WARNED and (source is None or source.startswith(_WAITS_FOR_STANDBY)):
            self.unconfirmed = True

    def check(self) -> None:
        """Raise if a commit since the last check did not wait for its standby."""
        if self.unconfirmed:
            self.unconfirmed = False
            raise CommitUnconfirmed("did not wait for its synchronous standby")


class RetryDecision(Enum):
    """What to do about an error."""

    AGAIN = "nothing was written; the same statement may well succeed"
    LOST = "the connection was lost, and the response with it: ask on another one"
    FINAL = "trying again now would not help"


_AGAIN = frozenset(("40001", "40P01"))
"""Serialization failure, deadlock: the transaction was rolled back whole."""
_LOST = frozenset(("57P01", "57P02", "57P05", "25P04", "0A000", "26000", "42P05", "25006"))
"""
Shut down, crashed, idle or busy for too long; a prepared statement that is not what it was (a new connection has none);
a server that became read-only under us (a new connection finds the writer).
"""
_OF_THE_SERVER = frozenset(("08", "25", "3B", "40", "53", "54", "55", "57", "58", "F0", "XX"))
"""Classes of codes: connections, transactions and their state, resources, limits, operators, the system."""
_WRONG_AT_CONNECTING = ("password", "authentication", "no pg_hba.conf entry", "does not exist")
"""In libpq's messages when no patience would help."""
READ_ONLY = "25006"
BAD_VALUE = "22000"
"""Data exception: also what Python's own errors about a value amount to."""


def retry_decision(error: BaseException) -> RetryDecision:
    """Whether an error is worth another try."""
    if not isinstance(error, psycopg.Error):
        return RetryDecision.FINAL
    code = error.sqlstate
    if code in _AGAIN:
        return RetryDecision.AGAIN
    if code in _LOST or (code or "").startswith("08"):
        return RetryDecision.LOST
    # Without a code it is libpq that speaks: the socket was closed, reset or timed out.
    return RetryDecision.LOST if code is None and isinstance(error, psycopg.OperationalError) else RetryDecision.FINAL


def is_server_error(code: str | None) -> bool:
    """Whether an error at a commit is the server's own; all others come from deferred constraints and triggers."""
    return code is None or code[:2] in _OF_THE_SERVER


def table_exists(error: BaseException | None) -> bool:
    """Whether a table could not be created because it is there."""
    return isinstance(error, psycopg.Error) and error.sqlstate == "42P07"


def is_locked(error: BaseException | None) -> bool:
    """Whether a statement gave up waiting for a lock."""
    return isinstance(error, psycopg.Error) and error.sqlstate == "55P03"


def translate_error(error: BaseException, name: str) -> OncewardError:
    """The error to raise for one of the driver's."""
    if isinstance(error, OncewardError):
        return error
    if isinstance(error, CommitUnconfirmed):
        return unconfirmed_error(name)
    if isinstance(error, ServerSilent):
        return StoreUnavailable(
            f"{name} {first_line(error)}; it may be frozen, or wait for a synchronous standby that is away. The "
            "connection was closed, and what was sent may have landed: retry with the same key",
            retry_after_seconds=1.0,
        )
    speaks = isinstance(error, psycopg.Error) and not isinstance(error, psycopg.DataError)
    code = error.sqlstate if speaks else BAD_VALUE  # type: ignore[attr-defined]
    return translate_sqlstate(code, first_line(error), name)


def unconfirmed_error(name: str) -> StoreUnavailable:
    """The error to raise for a commit that did not wait for its standby."""
    return StoreUnavailable(
        f"{name} committed without its synchronous standby, because the wait for it was cancelled: what was sent may "
        "have landed, and a failover may lose it. Retry with the same key, and find out why the standby does "
        "not answer",
        retry_after_seconds=1.0,
    )


def translate_sqlstate(code: str | None, message: str, name: str) -> OncewardError:
    """The error to raise for a SQLSTATE of any driver; `message` is the first line of what the driver said."""
    if "statement pooling" in message:
        return ConfigurationError(
            f"{name}: {message}. A pooler that pools statements can neither make the tables nor join transactions: set "
            "its pool_mode to transaction, or open the store once without the pooler"
        )
    match code or "":
        case str() as data if data.startswith("22"):
            return RecordRefused(
                f"{name} cannot hold this record: {message}; PostgreSQL's text takes no NUL character and no "
                "surrogate, and its numbers end at 64 bits"
            )
        case "55P03":
            return StoreUnavailable(
                f"{name}: another transaction held this record longer than onceward_lock_timeout; retry with the "
                "same key",
                retry_after_seconds=1.0,
            )
        case "25006":  # READ_ONLY
            return _read_only(name)
        case "57014":
            return StoreUnavailable(
                f"{name}: a time limit of the server ended our statement ({message}); nothing was written. Give this "
                "role a statement_timeout above onceward_lock_timeout, or none",
                retry_after_seconds=1.0,
            )
        case "54000":
            return RecordRefused(
                f"{name} cannot hold this record: {message}; PostgreSQL's limit is 1 GB for a field and for a statement"
            )
        case "42501":
            return StoreUnavailable(
                f"{name}: this role lacks a privilege ({message}); it needs SELECT, INSERT, UPDATE and DELETE on "
                "onceward_records, SELECT and UPDATE on onceward_meta, and the first time CREATE on the schema. "
                "`onceward store init --sql` prints it all, with the GRANTs, for the owner of the database"
            )
        case "42P01" | "42703" | "3F000":
            return SchemaMismatch(f"{name}: the tables are missing, or not as expected ({message}); reopen the store")
        case "42P10":
            return SchemaMismatch(
                f"{name}: the primary key of onceward_records is missing, so two callers could both claim a key; "
                "nothing was written. Add it: ALTER TABLE onceward_records "
                "ADD CONSTRAINT onceward_records_pkey PRIMARY KEY (id)"
            )
        case "53100":
            return StoreFull(f"no room left at {name} ({message}); free some space, then retry with the same key")
        case "XX001" | "XX002":
            return StoreCorrupt(f"{name} is damaged ({message}); restore a backup")
        case "40001" | "40P01":
            return StoreUnavailable(
                f"{name}: conflicts with other transactions did not end ({message}); retry", retry_after_seconds=0.1
            )
        case other:
            return StoreUnavailable(
                f"{name} did not answer: {message} ({other or 'connection lost'})", retry_after_seconds=1.0
            )


def translate_connect_error(error: BaseException, name: str, *, ever_connected: bool) -> OncewardError:
    """
    The error to raise when no connection could be opened.

    A wrong setting is a `ConfigurationError` as long as no connection ever worked. After that it counts as an outage:
    work under way has to be finished when the outage is over.
    """
    message = first_line(error)
    if "session is read-only" in message or "server is in hot standby" in message:
        return _read_only(name)
    if "startup parameter" in message and not ever_connected:
        return ConfigurationError(
            f"{name} refuses the connection: {message}; with a pooler such as PgBouncer in between, add "
            "onceward_bouncer=1 to the URL"
        )
    if not ever_connected and any(words in message for words in _WRONG_AT_CONNECTING):
        return ConfigurationError(
            f"{name} refuses the connection: {message}; check user, password and database in the URL"
        )
    return StoreUnavailable(
        f"{name} cannot be reached: {message}. Check that it is running, then retry with the same key",
        retry_after_seconds=1.0,
    )


def connect_failure(error: BaseException, name: str, *, ever_connected: bool) -> NotConnected:
    """What to raise when no connection could be opened. After a timeout, another try is not worth the wait."""
    meaning = translate_connect_error(error, name, ever_connected=ever_connected)
    return NotConnected(meaning, final=isinstance(error, (psycopg.errors.ConnectionTimeout, ServerSilent)))


def _read_only(name: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{name} is read-only, like a standby; connect to the primary (or list "
        "several hosts in the URL, and the primary is found)",
        retry_after_seconds=1.0,
    )


def read_only_transaction(name: str) -> str:
    """What to say if it is the caller's transaction that cannot write."""
    return (
        f"your transaction on {name} is read-only, so no record can join it: begin it READ WRITE (psycopg: "
        "connection.read_only = False). If it is, the server is a standby: connect to the writer"
    )


def no_free_connection(name: str, size: int, seconds: float) -> StoreUnavailable:
    """The error to raise when all connections stayed in use."""
    return StoreUnavailable(
        f"all {size} connections to {name} were in use for {seconds:g} s; nothing was sent. If that happens "
        "often, raise onceward_pool",
        retry_after_seconds=1.0,
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message. Neither libpq nor the server repeats a password in it."""
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return error.diag.message_primary
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
