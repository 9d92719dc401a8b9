"""
The table of events, in SQL: write, claim, put off, mark as done or dead, requeue, forget. Each is one transaction.

A claim is a lease and a fence: the event is due again when the lease is over, and a worker that was overtaken by then
finds another fence and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from onceward.messaging.inbox.event_numbers import NumberAnomaly, record_number
from onceward.stores.tables.schema import Schema
from onceward.stores.tables.sql_steps import Sql, SqlSteps, declare_failpoints, one_or_none

SCHEMA = Schema("inbox", "onceward.messaging.inbox", 2, "`onceward hooks add` adds the first source")
TABLES = {
    "onceward_inbox_messages": "scope, source, digest",
    "onceward_inbox_events": "scope, source, id",
    "onceward_inbox_marks": "scope, source",
    "onceward_inbox_gaps": "scope, source, first",
    "onceward_inbox_sources": "name",
}
"""What there is by scope, with the columns of its key; one that refers to another comes before it."""
FORGET_BATCH = 500

declare_failpoints(
    {
        "inbox.receive": "an event is written",
        "inbox.claim": "an event is claimed by a worker",
        "inbox.settle": "an event is marked as done",
        "inbox.put_off": "an event is put off until its next try",
        "inbox.bury": "an event is marked as given up",
        "inbox.requeue": "an event that was given up is made due again",
        "inbox.source": "a source is written",
        "inbox.forget": "old events are forgotten",
        "inbox.erase": "a batch of a tenant's events is erased",
    }
)

EVENT_BYTES = 300
"""What an event takes besides its body and headers, also when it is done: its id, its digest, its times."""

_RECEIVE = """INSERT INTO onceward_inbox_events
    (scope, source, id, digest, body, headers, signed_at, number, received_at, state, due_at)
    VALUES (:scope, :source, :id, :digest, :body, :headers, :signed_at, :number, :now, 'waiting', :now)
    ON CONFLICT (scope, source, id) DO NOTHING RETURNING 1"""
_AGAIN = """UPDATE onceward_inbox_events SET deliveries = deliveries + 1,
    altered = altered + CASE WHEN digest = :digest THEN 0 ELSE 1 END
    WHERE scope = :scope AND source = :source AND id = :id RETURNING CASE WHEN digest = :digest THEN 0 ELSE 1 END"""
_MESSAGE = """INSERT INTO onceward_inbox_messages (scope, source, digest, id) VALUES (:scope, :source, :message, :id)
    ON CONFLICT (scope, source, digest) DO NOTHING RETURNING 1"""
_MESSAGE_OF = "SELECT id FROM onceward_inbox_messages WHERE scope = :scope AND source = :source AND digest = :message"
_UNBOUND = "DELETE FROM onceward_inbox_messages WHERE scope = :scope AND source = :source AND digest = :message"
_RENAMED = """UPDATE onceward_inbox_events SET deliveries = deliveries + 1, renamed = renamed + 1
    WHERE scope = :scope AND source = :source AND id = :first"""
_DUE = "SELECT {columns} FROM onceward_inbox_events WHERE state = 'waiting' AND due_at <= :now AND ({known}) {end}"
_COUNT = """SELECT scope, count(*), coalesce(sum(coalesce(length(body), 0) + coalesce(length(headers), 0)), 0)
    FROM onceward_inbox_events GROUP BY scope"""
_COLUMNS = "scope, source, id, digest, body, headers, signed_at, number, received_at, fence, attempts, buried"
_CLAIM = """UPDATE onceward_inbox_events SET fence = fence + 1, attempts = attempts + 1, due_at = :now + :lease
    WHERE scope = :scope AND source = :source AND id = :id"""
_DONE = """UPDATE onceward_inbox_events SET state = 'done', done_at = :now, forget_at = :now + :keep, body = NULL,
    headers = NULL, failure = NULL
    WHERE scope = :scope AND source = :source AND id = :id AND fence = :fence AND state = 'waiting' RETURNING 1"""
_PUT_OFF = """UPDATE onceward_inbox_events SET due_at = :now + :wait, attempts = attempts - :uncounted,
    failure = :failure
    WHERE scope = :scope AND source = :source AND id = :id AND fence = :fence AND state = 'waiting' RETURNING 1"""
_BURY = """UPDATE onceward_inbox_events SET state = 'dead', buried = 1, failure = :failure
    WHERE scope = :scope AND source = :source AND id = :id AND fence = :fence AND state = 'waiting' RETURNING 1"""
_REQUEUE = """UPDATE onceward_inbox_events SET state = 'waiting', due_at = :now, attempts = 0
    WHERE scope = :scope AND source = :source AND id = :id AND state = 'dead' RETURNING 1"""
_FORGET = """DELETE FROM onceward_inbox_events WHERE (scope, source, id) IN (
    SELECT scope, source, id FROM onceward_inbox_events WHERE forget_at <= :now ORDER BY forget_at LIMIT :most)
    RETURNING 1"""


class NewEvent(NamedTuple):
    """A verified event, to be written."""

    scope: str
    source: str
    id: str
    digest: bytes
    body: bytes
    headers: str
    signed_at: int | None
    number: int | None
    message: bytes | None
    """SHA-256 of what is signed, if the id is not a part of it."""


class WriteResult(NamedTuple):
    """The result of writing an event."""

    duplicate: bool
    altered: bool = False
    """The same id came with another body; the first one is kept."""
    anomaly: NumberAnomaly | None = None
    first_id: str | None = None
    """The same signed message came before, with this other id."""


class ClaimedEvent(NamedTuple):
    """An event that this worker holds, until the lease is over."""

    scope: str
    source: str
    id: str
    digest: bytes
    body: bytes
    headers: dict[str, str]
    signed_at: int | None
    number: int | None
    received_at: int
    fence: int
    attempt: int
    buried: bool

    @property
    def named(self) -> dict[str, Any]:
        """The values that find its row, if this claim still holds it."""
        return {"scope": self.scope, "source": self.source, "id": self.id, "fence": self.fence}


def write_event(event: NewEvent) -> SqlSteps[WriteResult]:
    """Write an event, unless it is there: the unique constraints decide."""
    mine = event._asdict()
    binds = False
    if event.message is not None:
        binds = bool((yield Sql(_MESSAGE, mine)))
        first = None if binds else one_or_none((yield Sql(_MESSAGE_OF, mine)))
        if first is not None and first[0] != event.id:
            yield Sql(_RENAMED, {**mine, "first": first[0]})
            return WriteResult(True, first_id=first[0])
    if not (yield Sql(_RECEIVE, mine)):
        again = one_or_none((yield Sql(_AGAIN, mine)))
        altered = again is not None and bool(again[0])
        if binds and (altered or again is None):
            # Another message under a known id. It stays unbound, or whoever puts a known id on a message that they have
            # seen would keep it from being processed under its own.
            yield Sql(_UNBOUND, mine)
        return WriteResult(True, altered)
    if event.number is None:
        return WriteResult(False)
    return WriteResult(False, anomaly=(yield from record_number(event.scope, event.source, event.number)))


def _due(columns: str, known: Iterable[tuple[str, str]], end: str) -> Sql:
    values: dict[str, Any] = {}
    parts = []
    for number, (scope, source) in enumerate(known):
        values |= {f"scope{number}": scope, f"source{number}": source}
        parts.append(f"(scope = :scope{number} AND source = :source{number})")
    text = _DUE.replace("{columns}", columns).replace("{known}", " OR ".join(parts)).replace("{end}", end)
    return Sql(text, values)


def count_events() -> SqlSteps[list[tuple[str, int, int]]]:
    """What each scope holds: (scope, events, bytes)."""
    rows = yield Sql(_COUNT, {})
    return [(scope, int(number), int(size) + EVENT_BYTES * int(number)) for scope, number, size in rows]


def is_any_due(known: Iterable[tuple[str, str]]) -> SqlSteps[bool]:
    """Whether an event is due. It reads only, so that idle workers block nobody."""
    return bool((yield _due("1", known, "LIMIT 1")))


def claim_event(known: Iterable[tuple[str, str]], lease: int) -> SqlSteps[ClaimedEvent | None]:
    """Take the event that has been due for longest, of the sources that this worker has handlers for."""
    row = one_or_none((yield _due(_COLUMNS, known, "ORDER BY due_at LIMIT 1 {free}")))
    if row is None:
        return None
    found = ClaimedEvent._make(row)
    claimed = found._replace(
        digest=bytes(found.digest),
        body=bytes(found.body or b""),
        headers=json.loads(row[5] or "{}"),
        fence=found.fence + 1,
        attempt=found.attempt + 1,
        buried=bool(found.buried),
    )
    yield Sql(_CLAIM, {**claimed.named, "lease": lease})
    return claimed


def mark_done(claim: ClaimedEvent, keep: int | None) -> SqlSteps[bool]:
    """Mark an event as processed: its id is kept, its content deleted. False if this worker was overtaken."""
    # NULL plus a number is NULL: kept for ever.
    return bool((yield Sql(_DONE, {**claim.named, "keep": keep})))


def put_off(claim: ClaimedEvent, wait: int, failure: str, *, counted: bool) -> SqlSteps[bool]:
    """Make an event due again after a wait. An attempt that never began does not count."""
    values = {**claim.named, "wait": wait, "failure": failure, "uncounted": 0 if counted else 1}
    return bool((yield Sql(_PUT_OFF, values)))


def mark_dead(claim: ClaimedEvent, failure: str) -> SqlSteps[bool]:
    """Mark an event as given up, after its dead letter has been put."""
    return bool((yield Sql(_BURY, {**claim.named, "failure": failure})))


def requeue_event(scope: str, source: str, id: str) -> SqlSteps[bool]:
    """Make an event due again that was given up; False if there is none."""
    return bool((yield Sql(_REQUEUE, {"scope": scope, "source": source, "id": id})))


def forget_old_events() -> SqlSteps[int]:
    """Delete a batch of processed events whose time is over; how many."""
    return len((yield Sql(_FORGET, {"most": FORGET_BATCH})))
