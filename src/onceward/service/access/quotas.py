"""
Quotas: how many records and bytes a tenant may hold, asked before anything runs and settled after it.

    room = reserve(...)     records are refused here (QuotaExceeded); bytes are set aside: a share of what is left
    ...                     it runs, and cannot grow by more than room.bytes: SQLite itself holds that, to the page
    settle(room, ...)       what it really made and grew counts; the rest is free again

Half of what is left is set aside for each request, so that those that run at once, on several databases of a tenant,
can use what is left together and no more. Who needs more than its share gets all that is free by then.

What tenants hold elsewhere (databases of the SQL service) is counted by whoever opened `Access` with `elsewhere`. The
records are not counted for a call. All of them are counted at once, by one process at a time, when the last count
is older than a minute (or twenty times what the count took, so that it never costs more than a twentieth of one core),
or than five seconds where somebody would be refused. In between, each process adds what it let through itself. So a
quota can be passed by what *other* processes let through since the last count, and by no more; a quota that was changed
is heeded after five seconds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from functools import partial
from typing import Any, NamedTuple

from onceward._core.errors import ConfigurationError, QuotaExceeded
from onceward.runtime.environment import Environment
from onceward.service.access.effects import CountUsage
from onceward.service.access.scopes import tenant_of
from onceward.stores.tables.sql_steps import Flow, Sql, SqlSteps, one_or_none, read_tables, transact

STALE_US = 60_000_000
"""How old a count may be."""
REFUSING_US = 5_000_000
"""How old a count may be that somebody is refused by."""
SHARE_MIN = 65_536
"""Bytes: smaller shares are not made of what is left."""
REST = 20
"""A count that took a second is made every twenty."""
RELOAD_SECONDS = 5.0
TENANTS_MAX = 10_000
BATCH = 100
"""Tenants written in one transaction: their rows are held meanwhile, and charges wait."""

_HOLDING = """SELECT quota_records, quota_bytes, used_records, used_bytes, since.value, :now - at.value, took.value,
    quota_databases, :now - since.value
    FROM onceward_tenants, onceward_access AS at, onceward_access AS took, onceward_access AS since
    WHERE onceward_tenants.name = :tenant AND at.name = 'counted_at' AND took.name = 'counted_us'
    AND since.name = 'counted_since'"""
_CLAIM = """UPDATE onceward_access SET value = :now
    WHERE name = 'counted_at' AND value <= :now - :stale RETURNING :now"""
_TOOK = "UPDATE onceward_access SET value = :took WHERE name = 'counted_us'"
_SINCE = "UPDATE onceward_access SET value = :since WHERE name = 'counted_since'"
_LIMITED = """SELECT name, used_records, used_bytes FROM onceward_tenants
    WHERE quota_records IS NOT NULL OR quota_bytes IS NOT NULL"""
_USED = "UPDATE onceward_tenants SET used_records = :records, used_bytes = :bytes WHERE name = :tenant"


class QuotaUsage(NamedTuple):
    """What a tenant may hold, and what it held when that was last counted."""

    quota_records: int | None
    quota_bytes: int | None
    used_records: int
    used_bytes: int
    counted_since: int
    """When the count began that these are of: what was made since may not be in them."""
    age: int
    """Microseconds since a count was last begun, by whomever."""
    took: int
    quota_databases: int | None = None
    since: int = 0
    """Microseconds since `counted_since`."""

    @property
    def is_limited(self) -> bool:
        """Whether there is a quota at all."""
        return self.quota_records is not None or self.quota_bytes is not None

    @property
    def is_stale(self) -> bool:
        """Whether it is time to count again."""
        return self.age >= stale_after(self.took)


class Room(NamedTuple):
    """What was set aside for one request."""

    tenant: str
    records: int
    bytes: int | None
    """How much it may grow; None: no quota limits it."""
    is_share: bool = False
    """Whether the bytes are set aside until it has ended; otherwise they count as made already."""
    bytes_left: int | None = None
    """What the quota leaves, before this request."""
    records_left: int | None = None
    """What the quota leaves when this request's are made."""


class _Entry:
    """What this process knows of one tenant."""

    __slots__ = ("bytes", "holding", "loaded_at", "noted", "records")

    def __init__(self, holding: QuotaUsage) -> None:
        self.holding = holding
        self.loaded_at = 0.0
        self.noted: deque[list[int]] = deque()
        """What was let through since the count began, by seconds of this process's clock: second, records, bytes."""
        self.records = 0
        """The sum of it."""
        self.bytes = 0

    def note(self, now: float, records: int, bytes: int) -> None:
        """So much was let through, or taken back."""
        if not (records or bytes):
            return
        second, noted = int(now), self.noted
        if noted and noted[-1][0] == second:
            last = noted[-1]
            last[1] += records
            last[2] += bytes
        else:
            noted.append([second, records, bytes])
        self.records += records
        self.bytes += bytes

    def drop_before(self, instant: float) -> None:
        """Forget what a count has seen: it was made before that began."""
        while self.noted and self.noted[0][0] + 1 < instant:
            _, records, size = self.noted.popleft()
            self.records, self.bytes = self.records - records, self.bytes - size

    def left(self, quota: int | None, used: int) -> int | None:
        """Of a quota; None: there is none."""
        return None if quota is None else max(quota - used, 0)


class QuotaMeter:
    """What this process has let through, and what it has set aside for requests that run. Safe for threads."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._reserved: dict[str, int] = {}
        self._guard = threading.Lock()
        self.counts = True
        """Whether this process counts. One that cannot see all that tenants hold leaves it to those that can."""

    def monotonic(self) -> float:
        """This process's clock."""
        return self._environment.monotonic()

    def recall(self, tenant: str) -> _Entry | None:
        """What is known of a tenant, if that is fresh."""
        found = self._entries.get(tenant)
        return found if found is not None and self.monotonic() < found.loaded_at + RELOAD_SECONDS else None

    def learn(self, tenant: str, holding: QuotaUsage) -> _Entry:
        """Take in what the database says; what was let through before the last count began is in it."""
        with self._guard:
            entry, now = self._entries.get(tenant), self.monotonic()
            if entry is None:
                entry = self._entries[tenant] = _Entry(holding)
                if len(self._entries) > TENANTS_MAX:
                    self._entries.pop(next(iter(self._entries)), None)
            if entry.holding.counted_since != holding.counted_since:
                entry.drop_before(now - holding.since / 1_000_000)
            entry.holding, entry.loaded_at = holding, now
            return entry

    def take(self, tenant: str, entry: _Entry, records: int, bytes: int | None, *, all_of_it: bool = False) -> Room:
        """
        Let records through, and bytes: so many, or (None) as many as one request may grow by.

        `QuotaExceeded` if there is no room for so many. A request that may grow is not refused here for bytes: what
        fits into pages that it has is still written, and SQLite refuses the rest.
        """
        holding = entry.holding
        with self._guard:
            if bytes is None and not holding.is_limited:
                entry.note(self.monotonic(), records, 0)
                return Room(tenant, records, None)
            _check(holding.quota_records, holding.used_records + entry.records, records, "records")
            reserved = self._reserved.get(tenant, 0)
            left = entry.left(holding.quota_bytes, holding.used_bytes + entry.bytes + reserved)
            made_left = entry.left(holding.quota_records, holding.used_records + entry.records + records)
            if bytes is not None:
                _check(holding.quota_bytes, holding.used_bytes + entry.bytes + reserved, bytes, "bytes")
                entry.note(self.monotonic(), records, bytes)
                return Room(tenant, records, bytes, bytes_left=left, records_left=made_left)
            entry.note(self.monotonic(), records, 0)
            if left is None:
                return Room(tenant, records, None, records_left=made_left)
            share = left if all_of_it else max(left // 2, min(left, SHARE_MIN))
            self._reserved[tenant] = reserved + share
            return Room(tenant, records, share, is_share=True, bytes_left=left, records_left=made_left)

    def take_at_once(self, tenant: str, records: int) -> Room | None:
        """What `reserve` gives to a request that may grow, if what is known is fresh and leaves room; None: ask."""
        entry = self.recall(tenant)
        if entry is None:
            return None
        try:
            return self.take(tenant, entry, records, None)
        except QuotaExceeded:
            return None  # By what was known; `reserve` looks again before that is said.

    def settle(self, room: Room, records: int, bytes: int) -> None:
        """A request has ended, and made so many records and bytes of what was let through or set aside for it."""
        with self._guard:
            if room.is_share:
                left = self._reserved.pop(room.tenant, 0) - (room.bytes or 0)
                if left > 0:
                    self._reserved[room.tenant] = left
            entry = self._entries.get(room.tenant)
            if entry is not None:
                before = 0 if room.is_share else room.bytes or 0
                # Pages that were freed stay in their file, and are filled again there: the quota is of files.
                entry.note(self.monotonic(), records - room.records, max(bytes, 0) - before)

    def forget(self, tenant: str) -> None:
        """Ask again next time; what was let through still counts."""
        entry = self._entries.get(tenant)
        if entry is not None:
            entry.loaded_at = float("-inf")


def stale_after(took: int, stale: int = STALE_US) -> int:
    """After how many microseconds to count again, if counting takes so many."""
    return max(stale, REST * took)


def reserve(meter: QuotaMeter, tenant: str, records: int, bytes: int | None, *, all_of_it: bool = False) -> Flow[Room]:
    """
    Set room aside for a request, or refuse with `QuotaExceeded`: by a count that is fresh.

    `all_of_it` is for a request whose share was too small: it is given everything that is free.
    """
    entry = meter.recall(tenant)
    if entry is None:
        entry = yield from _learn(meter, tenant)
    if not all_of_it:
        try:
            return meter.take(tenant, entry, records, bytes)
        except QuotaExceeded:
            pass  # By what was known; look again before that is said.
    if (yield from count_usage(meter, REFUSING_US)):
        entry = yield from _learn(meter, tenant)
    return meter.take(tenant, entry, records, bytes, all_of_it=all_of_it)


def quota_of(meter: QuotaMeter, tenant: str) -> Flow[QuotaUsage]:
    """What a tenant may hold, and held at the last count."""
    entry = meter.recall(tenant)
    return entry.holding if entry is not None else (yield from _learn(meter, tenant)).holding


def count_usage(meter: QuotaMeter, stale: int = STALE_US) -> Flow[bool]:
    """Count what all tenants hold, if it is time and no other process does; whether it was done."""
    if not meter.counts:
        return False
    since = yield from transact("access.count", partial(_claim, stale))
    if since is None:
        return False
    began = meter.monotonic()
    sums: dict[str, tuple[int, int]] = {}
    limited = yield from read_tables(_limited)
    for scope, records, size in (yield CountUsage(tuple(name for name, *_ in limited))):
        tenant = tenant_of(scope)
        if tenant is not None:
            before = sums.get(tenant, (0, 0))
            sums[tenant] = (before[0] + int(records), before[1] + int(size))
    changed = [(name, *sums.get(name, (0, 0))) for name, *used in limited if tuple(used) != sums.get(name, (0, 0))]
    for start in range(0, len(changed), BATCH):
        yield from transact("access.count", partial(_write, changed[start : start + BATCH]))
    took = round((meter.monotonic() - began) * 1_000_000)
    yield from transact("access.count", partial(_note, took, since))
    return True


def _check(limit: int | None, held: int, more: int, what: str) -> None:
    if limit is not None and held + more > limit:
        raise QuotaExceeded(
            f"this tenant holds {held} of the {limit} {what} that its quota allows, and this needs {more} more; "
            "nothing was made. Delete what is not needed, or ask for a higher quota (onceward tenant quota), then send "
            "it again with the same key",
            limit=limit,
            held=held,
        )


def _learn(meter: QuotaMeter, tenant: str) -> Flow[_Entry]:
    holding = yield from _holding(tenant)
    if holding.is_limited and holding.is_stale and (yield from count_usage(meter)):
        holding = yield from _holding(tenant)
    return meter.learn(tenant, holding)


def _holding(tenant: str) -> Flow[QuotaUsage]:
    row = yield from read_tables(partial(_find, tenant))
    if row is None:
        raise ConfigurationError("there is no such tenant to hold records: it was never created, or it is erased")
    return QuotaUsage(*row)


def _find(tenant: str) -> SqlSteps[tuple[Any, ...] | None]:
    return one_or_none((yield Sql(_HOLDING, {"tenant": tenant})))


def _claim(stale: int) -> SqlSteps[int | None]:
    """When this count began, if it is this process's turn."""
    [(took,)] = yield Sql("SELECT value FROM onceward_access WHERE name = 'counted_us'", {})
    row = one_or_none((yield Sql(_CLAIM, {"stale": stale_after(took, stale)})))
    return None if row is None else int(row[0])


def _limited() -> SqlSteps[list[tuple[Any, ...]]]:
    return (yield Sql(_LIMITED, {}))


def _write(changed: list[tuple[str, int, int]]) -> SqlSteps[None]:
    for tenant, records, size in sorted(changed):
        yield Sql(_USED, {"tenant": tenant, "records": records, "bytes": size})


def _note(took: int, since: int) -> SqlSteps[None]:
    """All is written: from now on it counts from when this count began."""
    yield Sql(_TOOK, {"took": took})
    yield Sql(_SINCE, {"since": since})
