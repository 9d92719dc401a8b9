"""
`StatusFinding`: one fact about a store, whether it needs a person, and the command to type.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from onceward._core.durations import SECOND
from onceward.overview.count import Count
from onceward.overview.message_overview import InboxOverview, OutboxOverview
from onceward.overview.record_overview import (
    BreakerOverview,
    DeadLetterOverview,
    OldestRecords,
    PurgeOverview,
    PutBackOverview,
    RecordOverview,
)
from onceward.overview.schema_overview import SchemaOverview

LONG_IN_FLIGHT_SECONDS = 3_600.0
"""An operation that runs for an hour is worth a look, although its lease is renewed."""
FORGOT_SECONDS = 24 * 3_600.0
"""For this long someone should find out why the store forgot; after that it is only noted."""


class Level(StrEnum):
    """How much a finding matters."""

    FINE = "fine"
    WATCH = "watch"
    """Nothing has to be done, but it may be worth knowing."""
    NEEDED = "needed"
    """It waits for a person."""


class StatusFinding(NamedTuple):
    """One fact about a store."""

    subject: str
    level: Level
    text: str
    commands: tuple[str, ...] = ()
    """The commands to type, without the name of the store."""


def findings_of(
    records: RecordOverview,
    outbox: OutboxOverview | None,
    inbox: InboxOverview | None,
    schema: SchemaOverview | None = None,
) -> tuple[StatusFinding, ...]:
    """Everything there is to say, a line each."""
    return (
        _in_doubt(records.in_doubt),
        _dead_letters(records.dead_letters, outbox),
        *(() if outbox is None else _relay(outbox)),
        *(() if inbox is None else (_inbox(inbox),)),
        _in_flight(records.in_flight, records.lapsed),
        *_breakers(records.breakers),
        _purge(records.purge),
        _memory(records.put_back),
        *(() if schema is None else (schema_finding(schema),)),
    )


def age_text(seconds: float) -> str:
    """A duration for people: its two largest units."""
    left = int(seconds)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    parts: list[str] = []
    for name, size in units:
        if left >= size or (name == "s" and not parts):
            parts.append(f"{left // size} {name}")
            left %= size
    return " ".join(parts[:2])


def _in_doubt(found: OldestRecords) -> StatusFinding:
    if not found.oldest:
        return StatusFinding("in doubt", Level.FINE, "none")
    oldest = age_text(found.oldest[0].age / SECOND)
    return StatusFinding(
        "in doubt",
        Level.NEEDED,
        f"{found.total} {'waits' if found.total.number == 1 else 'wait'} for a decision, the oldest for {oldest}",
        ("onceward records list --in-doubt",),
    )


def _dead_letters(found: DeadLetterOverview, outbox: OutboxOverview | None) -> StatusFinding:
    messages = Count(0) if outbox is None else outbox.dead_letters
    parts = [
        f"{count} {one if str(count) == '1' else many}"
        for count, one, many in (
            (found.operations, "operation", "operations"),
            (messages, "message", "messages"),
            (found.events, "event", "events"),
        )
        if count
    ]
    if not parts:
        return StatusFinding("dead letters", Level.FINE, "none")
    return StatusFinding("dead letters", Level.NEEDED, f"{', '.join(parts)} given up", ("onceward dead list",))


def _relay(outbox: OutboxOverview) -> Iterator[StatusFinding]:
    waiting = f"{outbox.waiting} waiting"
    for late in outbox.late:
        yield StatusFinding(
            "relay",
            Level.NEEDED,
            f"messages for {late.endpoint} have been due for {age_text(late.late_seconds)}, and no relay is "
            f"delivering them",
            ("onceward relay run --config FILE",),
        )
    for name, since, reason in outbox.disabled:
        yield StatusFinding(
            "relay",
            Level.NEEDED,
            f"{name} has been disabled since {since.isoformat(timespec='seconds')}: {reason}",
            (f"onceward relay enable {name}",),
        )
    if not outbox.late and not outbox.disabled:
        yield StatusFinding("relay", Level.FINE, waiting)


def _inbox(inbox: InboxOverview) -> StatusFinding:
    if inbox.is_late:
        return StatusFinding(
            "inbox",
            Level.NEEDED,
            f"events have been due for {age_text(inbox.late_seconds)}, and nothing is processing them ({inbox.waiting} "
            "waiting). Is the service that has their handlers running?",
            ("onceward hooks list",),
        )
    return StatusFinding("inbox", Level.FINE, f"{inbox.waiting} waiting")


def _in_flight(running: OldestRecords, lapsed: Count) -> StatusFinding:
    gone = f"; {lapsed} left by processes that have ended, may run again" if lapsed else ""
    if not running.oldest:
        return StatusFinding("in flight", Level.FINE, f"none{gone}")
    seconds = running.oldest[0].age / SECOND
    level = Level.WATCH if seconds > LONG_IN_FLIGHT_SECONDS else Level.FINE
    commands = ("onceward records list --state claimed",) if level is Level.WATCH else ()
    return StatusFinding("in flight", level, f"{running.total}, the oldest for {age_text(seconds)}{gone}", commands)


def _breakers(breakers: tuple[BreakerOverview, ...]) -> Iterator[StatusFinding]:
    for one in breakers:
        wait = timedelta(seconds=round(one.seconds_left))
        tried = f"tried again in {wait}" if one.seconds_left else "about to be tried"
        yield StatusFinding("breakers", Level.WATCH, f"{one.name} ({one.scope}) is {one.state}, {tried}")
    if not breakers:
        yield StatusFinding("breakers", Level.FINE, "none open")


def _purge(purge: PurgeOverview) -> StatusFinding:
    about = "" if purge.records.exact else "about "
    size = f"{about}{purge.records.number:,} records"
    if purge.is_behind:
        share = f"{purge.overdue} of {purge.sampled} records in a sample should have been deleted a day ago"
        return StatusFinding("purge", Level.NEEDED, f"behind: {share} ({size})", ("onceward records purge --all",))
    return StatusFinding("purge", Level.FINE, f"keeps up ({size})")


def _memory(put_back: PutBackOverview) -> StatusFinding:
    if put_back.seconds_ago is None:
        return StatusFinding("store's memory", Level.FINE, "no lost records were noticed")
    level = Level.NEEDED if put_back.seconds_ago < FORGOT_SECONDS else Level.WATCH
    last = age_text(put_back.seconds_ago)
    alone = str(put_back.total) == "1"
    gone = "1 claim while it was held" if alone else f"{put_back.total} claims while they were held"
    back = "It was" if alone else "They were"
    return StatusFinding(
        "store's memory",
        level,
        f"the store forgot {gone}, the last {last} ago. {back} restored; "
        "others may be lost. Find out why: a failover to a lagging replica, an old backup, or eviction",
        ("onceward store check",),
    )


def schema_finding(schema: SchemaOverview) -> StatusFinding:
    """What there is to say of a schema that is not that of this version."""
    command = ("onceward store migrate",)
    if not schema.begun:
        text = f"version {schema.before}; this version of Onceward uses {schema.after}"
        return StatusFinding("schema", Level.WATCH, text, command)
    more = f", and {len(schema.left) - 1} more" if len(schema.left) > 1 else ""
    return StatusFinding(
        "schema",
        Level.NEEDED,
        f"the migration to version {schema.after} has not finished: {schema.left[0]}{more} still to be run. The store "
        "works in the meantime; run it again, and it continues where it stopped",
        command,
    )
