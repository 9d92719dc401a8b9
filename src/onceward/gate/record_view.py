"""
`RecordView`: a record as people and programs see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from onceward._core.codec import Encoded, decode, decode_failure
from onceward._core.errors import OncewardError
from onceward._core.holders import holder_of
from onceward._core.keys import digest_of
from onceward._core.operation import to_datetime
from onceward._core.record import Record, shown_state


@dataclass(frozen=True, slots=True)
class HolderView:
    """The process that made a claim."""

    host: str
    pid: int
    started_at: datetime | None
    """In UTC; None: not known (a system without /proc)."""


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record in the words of the glossary. Times are the store's, in UTC; durations are seconds."""

    id: str
    digest: str
    kind: str
    scope: str
    key: str
    operation: str
    state: str
    """claimed, settled, released, in_doubt; or derived: lapsed (may be claimed again), expired (a tombstone)."""
    guarantee: str
    doubt: bool
    attempt: int
    fence: int
    first_at: datetime
    settled_at: datetime | None
    lease_seconds_left: float | None
    replay_seconds_left: float | None
    forget_seconds_left: float | None
    codec: str | None
    result: Any
    """The stored result; None also if there is none, or it cannot be read (see `codec`)."""
    failure: str | None
    """The failure that was recorded, as `type: message`."""
    holder: HolderView | None
    """Which process runs it, or left it in doubt; None: nobody does, or it is not known."""


def view(record: Record) -> RecordView:
    """A record as people see it."""
    return RecordView(
        id=record.id.hex(),
        digest=digest_of(record.id),
        kind=record.kind,
        scope=record.scope,
        key=record.key,
        operation=record.operation,
        state=shown_state(record),
        guarantee=record.guarantee,
        doubt=bool(record.doubt),
        attempt=record.attempt,
        fence=record.fence,
        first_at=to_datetime(record.first_at),
        settled_at=to_datetime(record.settled_at) if record.settled_at is not None else None,
        lease_seconds_left=_seconds(record.lease_left),
        replay_seconds_left=_seconds(record.replay_left),
        forget_seconds_left=_seconds(record.forget_left),
        codec=record.codec,
        result=_result(record),
        failure=_failure(record),
        holder=_holder(record),
    )


def _holder(record: Record) -> HolderView | None:
    process = holder_of(record)
    if process is None:
        return None
    return HolderView(process.host, process.pid, process.started_at)


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


def _result(record: Record) -> Any:
    try:
        return decode(Encoded(record.codec, record.result)) if record.codec is not None else None
    except OncewardError:
        return None  # Looking must work on what cannot be read, too: the codec is shown beside it.


def _failure(record: Record) -> str | None:
    if record.error is None:
        return None
    try:
        failure = decode_failure(record.error)
    except OncewardError:
        return "unreadable"
    return f"{failure.type}: {failure.message}"
