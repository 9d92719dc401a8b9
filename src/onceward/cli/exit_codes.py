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
    SealBroken,
    SealKeyMissing,
    SourceUnknown,
    StoreUnavailable,
)

FINE = 0
NO = 1
USAGE = 2
REFUSED = 3
STORE = 4
INTERRUPTED = 130
"""128 plus the number of the signal, as shells count: an interrupt (2)."""
PIPE_CLOSED = 141
"""Likewise a broken pipe (13): the reader of the output has closed it, as `head` does."""

TO_LIST = (FINE, USAGE, STORE)
"""How a command ends that looks at whatever there is."""
TO_FIND = (FINE, NO, USAGE, STORE)
"""How a command ends that is about one thing, which may not be there."""
TO_DECIDE = (FINE, NO, USAGE, REFUSED, STORE)
"""How a command ends that changes one thing, which may not allow it."""

MEANINGS = {
    FINE: "fine",
    NO: "no: not found, not healthy, failed again, not as promised, or there are findings",
    USAGE: "the command or its configuration is wrong; nothing was done",
    REFUSED: "the record does not allow it; nothing was changed",
    STORE: "the store cannot be used (unreachable, full, damaged, another version), or the target cannot be reached",
    INTERRUPTED: "interrupted from the keyboard",
    PIPE_CLOSED: "the reader of the output closed it",
}


class UsageError(ConfigurationError):
    """The command cannot be run as it was typed."""

    code = "usage"


class DigestAmbiguous(UsageError):
    """The ids of several records begin with these digits."""

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
    match error:
        case NoSuchRecord() | NoSuchTenant() | NoSuchToken() | NoSuchMessage() | NoSuchRun() | SourceUnknown():
            return NO
        case RequeueFailed():
            return NO
        case OncewardError(code="database_unknown"):  # By their codes, all three: their modules take long to import.
            return NO
        case OncewardError(code="name_invalid"):
            return USAGE
        case OncewardError(code="target_unreachable"):
            return STORE
        case ConfigurationError() | KeyInvalid() | RequestInvalid() | ResultInvalid():
            # A result is invalid here only if it was typed: commands that look also show unreadable records.
            return USAGE
        case StoreUnavailable() | SchemaMismatch() | SealBroken() | SealKeyMissing():
            return STORE
    return REFUSED


def describe_exit_codes(codes: tuple[int, ...] = tuple(MEANINGS), no: str = "") -> str:
    """The exit codes, for a help text; `no` is what 1 means there."""
    meanings = MEANINGS | ({NO: no} if no else {})
    return "exit codes:\n" + "\n".join(f"  {code:<5}{meanings[code]}" for code in codes)
