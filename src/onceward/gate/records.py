"""
Looking at records: what people and programs see of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from onceward._core.codec import Encoded, decode, decode_failure
from onceward._core.erasing import mark_scope
from onceward._core.errors import OncewardError
from onceward._core.flow import Flow
from onceward._core.holders import holder_of
from onceward._core.keys import digest_of, record_id
from onceward._core.operation import instant
from onceward._core.record import Record, shown_state
from onceward._core.register import AsyncStore, Selection, Store
from onceward.drive import running_loop
from onceward.environment import Environment
from onceward.gate.asking import KEY, SCAN_PAGE, Asking
from onceward.gate.operating import operate, operate_async


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
        first_at=instant(record.first_at),
        settled_at=instant(record.settled_at) if record.settled_at is not None else None,
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


class _Lookup:
    """What both colours share."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def id_of(self, key: str) -> bytes:
        return record_id(KEY, self._asking.scope, self._asking.stored_key(key))

    def selection(self, unsettled: bool) -> Selection:
        return Selection(scope=self._asking.scope, unsettled=unsettled)

    def mark(self) -> Flow[None]:
        return mark_scope(self._asking.scope)

    @property
    def environment(self) -> Environment:
        return self._asking.environment


class Records:
    """The records of one scope."""

    def __init__(self, store: Store, asking: Asking) -> None:
        self._store = store
        self._lookup = _Lookup(asking)

    def get(self, key: str) -> RecordView | None:
        """The record of a key, or None."""
        found = self._store.load(self._lookup.id_of(key))
        return view(found) if found is not None else None

    def list(self, *, after: str = "", limit: int = SCAN_PAGE, unsettled: bool = False) -> tuple[RecordView, ...]:
        """One page of records in order of id, beginning after an id; `unsettled` leaves settled ones out."""
        found = self._store.scan(bytes.fromhex(after), min(limit, SCAN_PAGE), self._lookup.selection(unsettled))
        return tuple(view(record) for record in found)

    def in_doubt(self, *, after: str = "", limit: int = SCAN_PAGE) -> tuple[RecordView, ...]:
        """One page of the records that wait for somebody to decide."""
        page = self.list(after=after, limit=limit, unsettled=True)
        return tuple(one for one in page if one.state == "in_doubt")

    def erase(self) -> int:
        """
        Erase every record of this scope, whatever its state, dead letters and waiting items among them; how many.

        There is no way back. Whoever holds a claim of the scope just now cannot put it back: a mark is left for as
        long as one can be held. A new claim of the same key begins anew.
        """
        lookup = self._lookup
        operate(self._store, lookup.mark(), environment=lookup.environment)
        erased, after = 0, b""
        while page := self._store.scan(after, SCAN_PAGE, lookup.selection(unsettled=False)):
            erased += self._store.erase([one.id for one in page])
            after = page[-1].id
        return erased


class AsyncRecords:
    """Same as `Records`, but awaits."""

    def __init__(self, store: AsyncStore, asking: Asking) -> None:
        self._store = store
        self._lookup = _Lookup(asking)

    async def get(self, key: str) -> RecordView | None:
        """Same as `Records.get`, but awaits."""
        running_loop()
        found = await self._store.load(self._lookup.id_of(key))
        return view(found) if found is not None else None

    async def list(self, *, after: str = "", limit: int = SCAN_PAGE, unsettled: bool = False) -> tuple[RecordView, ...]:
        """Same as `Records.list`, but awaits."""
        running_loop()
        found = await self._store.scan(bytes.fromhex(after), min(limit, SCAN_PAGE), self._lookup.selection(unsettled))
        return tuple(view(record) for record in found)

    async def in_doubt(self, *, after: str = "", limit: int = SCAN_PAGE) -> tuple[RecordView, ...]:
        """Same as `Records.in_doubt`, but awaits."""
        return tuple(
            one for one in await self.list(after=after, limit=limit, unsettled=True) if one.state == "in_doubt"
        )

    async def erase(self) -> int:
        """Same as `Records.erase`, but awaits."""
        lookup = self._lookup
        await operate_async(self._store, lookup.mark(), environment=lookup.environment)
        erased, after = 0, b""
        while page := await self._store.scan(after, SCAN_PAGE, lookup.selection(unsettled=False)):
            erased += await self._store.erase([one.id for one in page])
            after = page[-1].id
        return erased
