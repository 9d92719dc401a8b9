"""
How a command ends: the exit codes, and which error means which.

A script branches on the code; a person reads the message; a program that asked for --json reads `code` and `retry`.
"""

from __future__ import annotations

from onceward._core.errors import (
    ConfigurationError,
    KeyInvalid,
    OncewardError,
    RequestInvalid,
    ResultInvalid,
    SchemaMismatch,
    SourceUnknown,
    StoreUnavailable,
)

FINE = 0
NO = 1
USAGE = 2
REFUSED = 3
STORE = 4
INTERRUPTED = 130
"""128 and the number of the signal, as shells count: an interrupt (2)."""
PIPE_CLOSED = 141
"""Likewise (13): whoever read the output has seen enough."""

MEANINGS = {
    FINE: "fine",
    NO: "the answer is no: not found, not healthy, failed again, not as promised, or a key that has findings",
    USAGE: "the command or its configuration is wrong; nothing was done",
    REFUSED: "the record does not allow it; nothing was changed",
    STORE: "the store cannot be used (away, full, damaged, or of another version), or the target not reached",
    INTERRUPTED: "interrupted from the keyboard",
    PIPE_CLOSED: "whoever read the output closed it",
}


class UsageError(ConfigurationError):
    """The command was typed in a way that means nothing."""

    code = "usage"


class DigestAmbiguous(UsageError):
    """Several records begin with these digits."""

    code = "digest_ambiguous"


class NoSuchRecord(OncewardError):
    """There is no such record in this store."""

    code = "record_not_found"


class NoSuchTenant(OncewardError):
    """There is no tenant of that name."""

    code = "tenant_not_found"


class NoSuchToken(OncewardError):
    """There is no token of that id."""

    code = "token_not_found"


class NoSuchMessage(OncewardError):
    """There is no dead message of that id, or no disabled endpoint of that name."""

    code = "message_not_found"


class NoSuchRun(OncewardError):
    """There is no such run in this journal."""

    code = "run_not_found"


class RequeueFailed(OncewardError):
    """The handler raised again."""

    code = "requeue_failed"


def exit_code_of(error: OncewardError) -> int:
    """The exit code for an error."""
    from onceward.testing.http_suite import TargetUnreachable  # Here, so that a command does not wait for it.

    match error:
        case NoSuchRecord() | NoSuchTenant() | NoSuchToken() | NoSuchMessage() | NoSuchRun() | SourceUnknown():
            return NO
        case RequeueFailed():
            return NO
        case ConfigurationError() | KeyInvalid() | RequestInvalid() | ResultInvalid():
            # A result is invalid here only as an answer that was typed: looking works on unreadable records, too.
            return USAGE
        case StoreUnavailable() | SchemaMismatch() | TargetUnreachable():
            return STORE
    return REFUSED


def describe_exit_codes(codes: tuple[int, ...] = tuple(MEANINGS)) -> str:
    """The exit codes, for a help text."""
    return "exit codes:\n" + "\n".join(f"  {code:<5}{MEANINGS[code]}" for code in codes)
