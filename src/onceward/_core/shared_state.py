"""
Budgets and breakers that several processes share: one record each, changed by compare-and-swap like any other.

The record is of a kind of its own, so it can never be somebody's key. Its value is a little JSON; its times are
durations, counted from the writing on the store's clock (every write sets `first_at` anew, so a record's age is the
time since). Nothing here is needed for safety: a lost or unreadable record means a full bucket or a closed circuit.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from onceward._core.circuit import BreakerRule
from onceward._core.durations import SECOND
from onceward._core.errors import StoreContended
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.flow import MONOTONIC, RANDOM_BYTES, Flow, Load, Put
from onceward._core.keys import kind_family, record_id
from onceward._core.record import NOW, Guarantee, Record, State, Write, shown_state
from onceward._core.token_bucket import BudgetRule, TokenBucket

BUDGET, WINDOWED_BUDGET, BREAKER = "retry-budget", "retry-budget-window", "circuit-breaker"

CODEC = "json/1"

KEEP = 24 * 3_600 * SECOND
"""A day after the last write it is forgotten: whoever comes then begins anew."""

SPINS_MAX = 8
"""Writers that get in between. More at the same time, and deciding alone is better than waiting."""


class SharedRecord(NamedTuple):
    """The record that is shared."""

    id: bytes
    kind: str
    scope: str
    name: str


def shared_record(kind: str, scope: str, name: str) -> SharedRecord:
    """The record of that kind and name."""
    return SharedRecord(record_id(kind, scope, name), kind, scope, name)


class BudgetDraw(NamedTuple):
    """What a process brings to a shared budget: what it counted, and the retries it wants."""

    deposits: float
    failures: int
    wants: tuple[bool, ...]
    """Each: whether it was throttled."""


def draw_budget(shared: SharedRecord, rule: BudgetRule, brought: BudgetDraw) -> Flow[tuple[float | None, ...]]:
    """Hand in what was counted and pay for as many retries as there is for: what each cost, or None."""
    found = yield Load("shared.load", shared.id)
    for _ in range(SPINS_MAX):
        now: float = yield MONOTONIC
        value, age = value_of(found)
        bucket = TokenBucket.from_levels(rule, value, now, age)
        bucket.put(now, brought.deposits)
        for _ in range(brought.failures):
            bucket.failed(now, first=False)
        granted = tuple(bucket.withdraw(now, throttled=throttled) for throttled in brought.wants)
        if not brought.deposits and not brought.failures and not any(paid is not None for paid in granted):
            return granted
        put = yield Put(
            "shared", shared_write(shared, bucket.levels(now), found, (yield RANDOM_BYTES)), version_of(found)
        )
        if put.landed:
            return granted
        found = put.record
    raise StoreContended


class BreakerSnapshot(NamedTuple):
    """What stands in a shared breaker's record."""

    state: str
    """closed, open or probing."""
    failures: int
    """In a row, while closed."""
    left: float
    """Seconds until it may be probed: the recovery's, or a probe's that has not come back."""


CLOSED_SNAPSHOT = BreakerSnapshot("closed", 0, 0.0)


class ReportFailures(NamedTuple):
    """A process's failures since it last asked, and whether a success lay before them."""

    failures: int
    anew: bool


class TakeProbe(NamedTuple):
    """A process wants to try an open circuit."""


class SettleProbe(NamedTuple):
    """A probe came back: "succeeded", "failed" or "ended". `version` is what it was given."""

    version: bytes
    end: str


BreakerMove = ReportFailures | TakeProbe | SettleProbe


class BreakerUpdate(NamedTuple):
    """What a process learns: what stands there now, and its own probe if it was given one."""

    seen: BreakerSnapshot
    probe: bytes | None = None


def move_breaker(shared: SharedRecord, rule: BreakerRule, what: BreakerMove) -> Flow[BreakerUpdate]:
    """One move of a shared breaker. A probe that was overtaken (it lapsed, another has it) changes nothing."""
    found = yield Load("shared.load", shared.id)
    for _ in range(SPINS_MAX):
        seen = breaker_snapshot_of(found)
        upcoming = _moved(seen, rule, what, version_of(found))
        if upcoming is None:
            return BreakerUpdate(seen)
        value = {"state": upcoming.state, "failures": upcoming.failures, "left": upcoming.left}
        write = shared_write(shared, value, found, (yield RANDOM_BYTES))
        put = yield Put("shared", write, version_of(found))
        if put.landed:
            return BreakerUpdate(upcoming, write.version if upcoming.state == "probing" else None)
        found = put.record
    raise StoreContended


def _moved(
    seen: BreakerSnapshot, rule: BreakerRule, what: BreakerMove, version: bytes | None
) -> BreakerSnapshot | None:
    """What is to stand there next; None: nothing changes."""
    if isinstance(what, ReportFailures):
        if seen.state != "closed":
            return None
        failures = what.failures if what.anew else seen.failures + what.failures
        return (
            BreakerSnapshot("open", 0, rule.recovery)
            if failures >= rule.threshold
            else BreakerSnapshot("closed", failures, 0.0)
        )
    if isinstance(what, TakeProbe):
        return BreakerSnapshot("probing", 0, rule.lapse) if seen.state != "closed" and seen.left <= 0 else None
    if seen.state != "probing" or version != what.version:
        return None
    if what.end == "succeeded":
        return CLOSED_SNAPSHOT
    return BreakerSnapshot("open", 0, rule.recovery if what.end == "failed" else 0.0)


def breaker_snapshot_of(found: Record | None) -> BreakerSnapshot:
    """What a breaker's record says, aged to now. What cannot be read is a closed circuit."""
    value, age = value_of(found)
    try:
        state, failures, left = str(value["state"]), int(value["failures"]), float(value["left"])
    except (TypeError, KeyError, ValueError, OverflowError):
        return CLOSED_SNAPSHOT
    return BreakerSnapshot(state, failures, left - age) if state in ("closed", "open", "probing") else CLOSED_SNAPSHOT


def value_of(found: Record | None) -> tuple[Any, float]:
    """A record's value and how many seconds ago it was written; None if there is none that can be read."""
    if found is None or found.result is None or found.codec != CODEC or shown_state(found) != State.SETTLED:
        return None, 0.0
    try:
        return json.loads(found.result), max(0.0, found.age / SECOND)
    except (ValueError, RecursionError):
        return None, 0.0


def version_of(found: Record | None) -> bytes | None:
    """The version that a write replaces."""
    return None if found is None else found.version


def shared_write(
    shared: SharedRecord,
    value: Any,
    over: Record | None,
    chance: bytes,
    *,
    forget: int = KEEP,
    relaxed: bool = True,
) -> Write:
    """What is written in the place of `over`. Not `relaxed`: it must not be lost with the power."""
    return Write(
        id=shared.id,
        kind=shared.kind,
        scope=shared.scope,
        key=shared.name,
        operation=shared.kind,
        family=kind_family(shared.kind),
        state=State.SETTLED.value,
        guarantee=Guarantee.REPEATABLE.value,
        doubt=0,
        fingerprint=fingerprint_canonical(shared.name),
        version=chance[16:32],
        token=chance[:16],
        fence=1 if over is None else over.fence + 1,
        attempt=1,
        first_at=NOW,
        settled_at=NOW,
        lease=None,
        replay=None,
        forget=forget,
        codec=CODEC,
        result=json.dumps(value, separators=(",", ":")).encode(),
        error=None,
        rise=True,
        relaxed=relaxed,
    )
