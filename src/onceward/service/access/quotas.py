"""
Quotas: how many records and bytes a tenant may hold, refused before anything runs.

What tenants hold elsewhere (databases of the SQL service) is counted by whoever opened `Access` with `elsewhere`. The
records are not counted for a call. All of them are counted at once, by one process at a time, when the last count
is older than a minute (or twenty times what the count took, so that it never costs more than a twentieth of one core).
In between, each process adds what it let through itself. So a quota can be passed by what *other* processes let
through since the last count, and by no more; a quota that was changed is heeded after five seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any, NamedTuple

from onceward._core.errors import ConfigurationError, QuotaExceeded
from onceward.runtime.environment import Environment
from onceward.service.access.effects import CountUsage
from onceward.service.access.scopes import tenant_of
from onceward.stores.tables.sql_steps import Flow, Sql, SqlSteps, one_or_none, read_tables, transact

STALE_US = 60_000_000
"""How old a count may be."""
REST = 20
"""A count that took a second is made every twenty."""
RELOAD_SECONDS = 5.0
TENANTS_MAX = 10_000
BATCH = 100
"""Tenants written in one transaction: their rows are held meanwhile, and charges wait."""

_HOLDING = """SELECT quota_records, quota_bytes, used_records, used_bytes, at.value, :now - at.value, took.value
    FROM onceward_tenants, onceward_access AS at, onceward_access AS took
    WHERE onceward_tenants.name = :tenant AND at.name = 'counted_at' AND took.name = 'counted_us'"""
_CLAIM = """UPDATE onceward_access SET value = :now
    WHERE name = 'counted_at' AND value <= :now - :stale RETURNING value"""
_TOOK = "UPDATE onceward_access SET value = :took WHERE name = 'counted_us'"
_LIMITED = """SELECT name, used_records, used_bytes FROM onceward_tenants
    WHERE quota_records IS NOT NULL OR quota_bytes IS NOT NULL"""
_USED = "UPDATE onceward_tenants SET used_records = :records, used_bytes = :bytes WHERE name = :tenant"


class QuotaUsage(NamedTuple):
    """What a tenant may hold, and what it held when that was last counted."""

    quota_records: int | None
    quota_bytes: int | None
    used_records: int
    used_bytes: int
    counted_at: int
    age: int
    """Of the count, in microseconds."""
    took: int

    @property
    def is_limited(self) -> bool:
        """Whether there is a quota at all."""
        return self.quota_records is not None or self.quota_bytes is not None

    @property
    def is_stale(self) -> bool:
        """Whether it is time to count again."""
        return self.age >= stale_after(self.took)


class _Entry:
    """What this process knows of one tenant."""

    __slots__ = ("bytes", "holding", "loaded_at", "records")

    def __init__(self, holding: QuotaUsage, loaded_at: float) -> None:
        self.holding = holding
        self.loaded_at = loaded_at
        self.records = 0
        """Let through since the count."""
        self.bytes = 0


class QuotaMeter:
    """What this process has let through. Safe for threads, as far as bounded staleness allows."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def monotonic(self) -> float:
        """This process's clock."""
        return self._environment.monotonic()

    def recall(self, tenant: str) -> _Entry | None:
        """What is known of a tenant, if that is fresh."""
        found = self._entries.get(tenant)
        return found if found is not None and self.monotonic() < found.loaded_at + RELOAD_SECONDS else None

    def learn(self, tenant: str, holding: QuotaUsage) -> _Entry:
        """Take in what the database says; what was let through before the last count is in it."""
        entry = self._entries.get(tenant)
        if entry is None or entry.holding.counted_at != holding.counted_at:
            entry = self._entries[tenant] = _Entry(holding, 0.0)
            if len(self._entries) > TENANTS_MAX:
                self._entries.pop(next(iter(self._entries)), None)
        entry.holding, entry.loaded_at = holding, self.monotonic()
        return entry

    def lower(self, tenant: str, records: int, bytes: int) -> None:
        """Take back what was let through, because nothing came of it."""
        entry = self._entries.get(tenant)
        if entry is not None:
            entry.records, entry.bytes = max(entry.records - records, 0), max(entry.bytes - bytes, 0)

    def forget(self, tenant: str) -> None:
        """Ask again next time."""
        self._entries.pop(tenant, None)


def stale_after(took: int) -> int:
    """After how many microseconds to count again, if counting takes so many."""
    return max(STALE_US, REST * took)


def admit(meter: QuotaMeter, tenant: str, records: int, bytes: int) -> Flow[None]:
    """Let so many new records and bytes through, or refuse with `QuotaExceeded`."""
    entry = meter.recall(tenant)
    if entry is None:
        holding = yield from _holding(tenant)
        if holding.is_limited and holding.is_stale and (yield from count_usage(meter)):
            holding = yield from _holding(tenant)
        entry = meter.learn(tenant, holding)
    _check(entry.holding.quota_records, entry.holding.used_records + entry.records, records, "records")
    _check(entry.holding.quota_bytes, entry.holding.used_bytes + entry.bytes, bytes, "bytes")
    entry.records += records
    entry.bytes += bytes


def withdraw(meter: QuotaMeter, tenant: str, records: int, bytes: int) -> None:
    """Take back what was let through and made nothing: a replay, a failure. What a count took in is the count's."""
    meter.lower(tenant, records, bytes)


def count_usage(meter: QuotaMeter) -> Flow[bool]:
    """Count the records of all tenants, if it is time and no other process does; whether it was done."""
    if not (yield from transact("access.count", _claim)):
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
    yield from transact("access.count", partial(_note, took))
    return True


def _check(limit: int | None, held: int, more: int, what: str) -> None:
    if limit is not None and held + more > limit:
        raise QuotaExceeded(
            f"this tenant holds {held} of the {limit} {what} that its quota allows, and this needs {more} more; "
            "nothing ran. Records are forgotten with time; `onceward tenant quota` raises the limit",
            limit=limit,
            held=held,
        )


def _holding(tenant: str) -> Flow[QuotaUsage]:
    row = yield from read_tables(partial(_find, tenant))
    if row is None:
        raise ConfigurationError("there is no such tenant to hold records: it was never created, or it is erased")
    return QuotaUsage(*row)


def _find(tenant: str) -> SqlSteps[tuple[Any, ...] | None]:
    return one_or_none((yield Sql(_HOLDING, {"tenant": tenant})))


def _claim() -> SqlSteps[bool]:
    [(took,)] = yield Sql("SELECT value FROM onceward_access WHERE name = 'counted_us'", {})
    return bool((yield Sql(_CLAIM, {"stale": stale_after(took)})))


def _limited() -> SqlSteps[list[tuple[Any, ...]]]:
    return (yield Sql(_LIMITED, {}))


def _write(changed: list[tuple[str, int, int]]) -> SqlSteps[None]:
    for tenant, records, size in sorted(changed):
        yield Sql(_USED, {"tenant": tenant, "records": records, "bytes": size})


def _note(took: int) -> SqlSteps[None]:
    yield Sql(_TOOK, {"took": took})
