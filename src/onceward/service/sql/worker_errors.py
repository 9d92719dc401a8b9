"""
Errors on their way from a worker process to the engine: as data, and as errors again.

Only the classes listed here can be made again; nothing is looked up by a name that somebody sent.
"""

from __future__ import annotations

from typing import Any

from onceward._core import errors as core_errors
from onceward._core.errors import OncewardError
from onceward.protocol.errors import DatabaseUnknown, EngineClosed, NameInvalid, SqlError, SqlKind

TEXT_MAX = 500
"""Characters of each text of an error that leaves a worker."""


class NotReplayed(OncewardError):
    """Nothing ran under this key yet, and nothing new may run."""

    code = "not_replayed"


class SliceUsed(OncewardError):
    """The request needs more time than it gets at once; it was undone, and is to run where that harms nobody."""

    code = "slice_used"


class NotRun(OncewardError):
    """The time of its group was over before the request's turn; it is to be sent again."""

    code = "not_run"


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
        *(core_errors.SealBroken, core_errors.SealKeyMissing),
        *(DatabaseUnknown, NameInvalid, NotReplayed, EngineClosed),
    )
}
"""Errors that are made anew from their message and their wait."""


def to_wire(error: OncewardError) -> dict[str, Any]:
    """An error as data."""
    if isinstance(error, SqlError):
        return {"sql": _bounded(error.document()), "wait": error.retry_after_seconds}
    name = next((base.__name__ for base in type(error).__mro__ if base.__name__ in _PLAIN), "StoreUnavailable")
    return {"name": name, "message": str(error)[: 4 * TEXT_MAX], "wait": error.retry_after_seconds}


def _bounded(document: dict[str, Any]) -> dict[str, Any]:
    """An error is not a way to read rows: SQLite quotes values in some, and names can be as long as a statement."""
    return {name: one[:TEXT_MAX] if isinstance(one, str) else one for name, one in document.items()}


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
