"""
What the records say: doubt, what is in flight, dead letters, breakers, whether the purge keeps up, what was put back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from onceward._core.circuit import CircuitState
from onceward._core.dead_letters import DeadLetter
from onceward._core.durations import SECOND
from onceward._core.finish_flow import PUT_BACK
from onceward._core.keys import kind_family
from onceward._core.operation import to_datetime
from onceward._core.record import Record, is_in_doubt, shown_state
from onceward._core.shared_state import BREAKER, breaker_snapshot_of
from onceward._core.store_protocols import Selection, Store
from onceward.overview.count import COUNT_MAX, Count
from onceward.overview.record_walk import (
    Progress,
    dead_letters,
    records_of_family,
    share_before,
    silent,
    unsettled_records,
)

SHOWN = 10
"""Of the oldest ones: what fits a screen."""
SAMPLE = 500
SAMPLE_PAGE = 20
"""Records are read with their results, which may have a megabyte each."""
OVERDUE_SECONDS = 24 * 3_600.0
"""A record that should have been deleted a day ago: purges come with calls, so an hour without calls is no backlog."""
BEHIND_SHARE, BEHIND_LEAST = 0.1, 10
"""Of the sample: fewer would be chance."""
EVENT_PREFIX = "hooks:"
"""What the dead letters of the inbox begin with; their source follows."""


class OldestRecords(NamedTuple):
    """How many records there are, and the oldest of them."""

    total: Count
    oldest: tuple[Record, ...]


class DeadLetterOverview(NamedTuple):
    """Operations and events that were given up."""

    operations: Count
    events: Count
    oldest: tuple[DeadLetter, ...]
    """Of both, by when they were first given up."""
    unreadable: tuple[str, ...]
    """The digests of those that are damaged, sealed, or of another version."""


class BreakerOverview(NamedTuple):
    """A shared breaker that lets nothing through. Those within a process are known to it alone."""

    name: str
    scope: str
    state: str
    """open, or probing: one call tests whether the dependency has recovered."""
    seconds_left: float
    """Until it may be tried."""


class PurgeOverview(NamedTuple):
    """Whether purges keep up, as a sample says."""

    sampled: int
    overdue: int
    """Of these, what should have been deleted or shrunk a day ago or earlier."""
    records: Count
    """How many records there are: counted if the sample has all of them, otherwise estimated."""
    due_sampled: int = 0
    """Of the sample, what a purge would delete or shrink now."""

    @property
    def due(self) -> int:
        """About how many records a purge would delete or shrink now."""
        return round(self.records.number * self.due_sampled / self.sampled) if self.sampled else 0

    @property
    def is_behind(self) -> bool:
        """Whether someone should run `onceward records purge --all`."""
        return self.overdue >= BEHIND_LEAST and self.overdue >= BEHIND_SHARE * self.sampled


class PutBackOverview(NamedTuple):
    """Operations that the store had forgotten while they ran, and that were put back."""

    total: Count
    latest: datetime | None
    seconds_ago: float | None
    """Since the latest one."""


class RecordOverview(NamedTuple):
    """What the records say."""

    in_doubt: OldestRecords
    in_flight: OldestRecords
    """Claimed, with a lease that holds."""
    lapsed: Count
    """Claims whose holder is gone: they may run again at the next request."""
    dead_letters: DeadLetterOverview
    breakers: tuple[BreakerOverview, ...]
    purge: PurgeOverview
    put_back: PutBackOverview


def look_at_records(store: Store, *, scope: str | None = None, progress: Progress = silent) -> RecordOverview:
    """Look at a store's records. With a scope: at those of this scope, without breakers and purge."""
    doubtful: list[Record] = []
    running: list[Record] = []
    lapsed = seen = 0
    for record in islice(unsettled_records(store, scope, progress), COUNT_MAX + 1):
        seen += 1
        state = shown_state(record)
        if is_in_doubt(record):
            doubtful.append(record)
        elif state == "claimed":
            running.append(record)
        else:
            lapsed += state == "lapsed"
    exact = seen <= COUNT_MAX
    return RecordOverview(
        _oldest(doubtful, exact=exact),
        _oldest(running, exact=exact),
        Count(lapsed, exact),
        _dead_letters(store, scope),
        () if scope is not None else tuple(_breakers(store)),
        PurgeOverview(0, 0, Count(0)) if scope is not None else look_at_purge(store),
        _put_back(store, scope),
    )


def oldest_first(records: Iterable[Record]) -> list[Record]:
    """Records by their age, the oldest first."""
    return sorted(records, key=_age)


def _age(record: Record) -> tuple[int, bytes]:
    return record.first_at, record.id


def _oldest(records: list[Record], *, exact: bool) -> OldestRecords:
    return OldestRecords(Count(len(records), exact), tuple(heapq.nsmallest(SHOWN, records, key=_age)))


def _dead_letters(store: Store, scope: str | None) -> DeadLetterOverview:
    letters, unreadable = dead_letters(store, scope, COUNT_MAX + 1)
    exact = len(letters) <= COUNT_MAX
    events = sum(one.name.startswith(EVENT_PREFIX) for one in letters)
    oldest = tuple(heapq.nsmallest(SHOWN, letters, key=lambda one: (one.first_at, one.id)))
    operations = len(letters) + len(unreadable) - events
    return DeadLetterOverview(
        Count(operations, exact=exact), Count(events, exact=exact), oldest, tuple(unreadable[:SHOWN])
    )


def _breakers(store: Store) -> Iterable[BreakerOverview]:
    for record in islice(records_of_family(store, kind_family(BREAKER)), COUNT_MAX):
        seen = breaker_snapshot_of(record)
        if seen.state != CircuitState.CLOSED.value:
            yield BreakerOverview(record.key, record.scope, seen.state, max(0.0, seen.left))


def look_at_purge(store: Store) -> PurgeOverview:
    """Look at the first records in order of id, which are a sample of all."""
    sampled = overdue = due = 0
    after = b""
    is_all = False
    while sampled < SAMPLE and not is_all:
        page = store.scan(after, SAMPLE_PAGE, Selection())
        sampled += len(page)
        overdue += sum(_is_due(one, OVERDUE_SECONDS) for one in page)
        due += sum(_is_due(one, 0.0) for one in page)
        is_all = len(page) < SAMPLE_PAGE
        after = page[-1].id if page else after
    records = Count(sampled) if is_all else Count(round(sampled / max(share_before(after), 1e-9)), exact=False)
    return PurgeOverview(sampled, overdue, records, due)


def _is_due(record: Record, since: float) -> bool:
    """Whether a purge should have seen to it so many seconds ago."""
    late = -since * SECOND
    if record.forget_left is not None and record.forget_left <= late:
        return True
    has_something = record.codec is not None or record.error is not None
    return has_something and record.replay_left is not None and record.replay_left <= late


def _put_back(store: Store, scope: str | None) -> PutBackOverview:
    found = list(islice(records_of_family(store, PUT_BACK, scope), COUNT_MAX + 1))
    if not found:
        return PutBackOverview(Count(0), None, None)
    latest = max(found, key=lambda one: one.first_at)
    return PutBackOverview(Count.up_to_limit(len(found)), to_datetime(latest.first_at), max(0.0, latest.age / SECOND))
