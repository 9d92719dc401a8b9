"""
The relay's SQL: lease messages, write how each try ended, and delete what was delivered long ago.

    waiting ---- taken: due_at = the end of the lease, fence + 1 ----> a try ----> delivered
       ^                                                               |   |
       +------- failed: due_at = now + a wait;  or the lease ran out --+   +-----> dead

A message is taken if it is due and nothing older of its aggregate still waits. So one that fails, or is being tried,
holds back its own aggregate and nothing else. How a try ended is written only by the relay with the latest fence: one
that was away for longer than its lease changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from onceward.messaging.outbox.message import (
    Delivered,
    DeliveryFailed,
    DeliveryOutcome,
    DeliveryRefused,
    EndpointGone,
    Message,
)
from onceward.stores.tables.sql_steps import Row, Sql, SqlSteps, declare_failpoints

PURGE_LIMIT = 1000
"""Rows deleted in one transaction, as the stores do it."""

declare_failpoints(
    {
        "relay.turn": "outcomes are written and messages are taken",
        "relay.purge": "delivered messages are deleted",
        "relay.decide": "an operator's decision is written",
    }
)


class MessageLease(NamedTuple):
    """A message that this relay may try."""

    seq: int
    fence: int
    message: Message


class TryResult(NamedTuple):
    """How a try ended."""

    lease: MessageLease
    outcome: DeliveryOutcome | None
    """None: it was taken and never begun, so that the take does not count."""
    wait_us: int
    """Until the next try; nothing if there is to be none."""
    dead: bool
    """Whether it is given up."""


class LeaseRequest(NamedTuple):
    """How many messages of an endpoint to take, and for how long."""

    endpoint: str
    many: int
    lease_us: int


class LeaseBatch(NamedTuple):
    """The result of a turn of the relay."""

    taken: list[MessageLease]
    lost: list[TryResult]
    """Tries whose message had been taken by another relay meanwhile: their ends were not written."""
    given_up: list[MessageLease]
    """Taken so often without a result that they are dead now: they may be what kills the relays."""


class DeadMessage(NamedTuple):
    """A message that was given up."""

    id: str
    endpoint: str
    topic: str
    aggregate: str | None
    attempts: int
    reason: str
    created_us: int
    dead_us: int


class MessageCount(NamedTuple):
    """How many messages of an endpoint are in one state, and since when the oldest is there."""

    endpoint: str
    state: str
    messages: int
    oldest_us: int


class DisabledEndpoint(NamedTuple):
    """An endpoint that was disabled because it said that it is gone."""

    endpoint: str
    since_us: int
    reason: str


_DUE = """SELECT 1 FROM onceward_outbox_messages AS m WHERE m.endpoint = :endpoint AND m.state = 'waiting'
    AND m.due_at <= :now LIMIT 1"""
_TAKE = """WITH free AS MATERIALIZED (
        SELECT m.seq FROM onceward_outbox_messages AS m
        WHERE m.endpoint = :endpoint AND m.state = 'waiting' AND m.due_at <= :now
            AND NOT EXISTS (SELECT 1 FROM onceward_outbox_disabled AS d WHERE d.endpoint = :endpoint)
            AND (m.aggregate IS NULL OR NOT EXISTS (
                SELECT 1 FROM onceward_outbox_messages AS older WHERE older.endpoint = m.endpoint
                AND older.aggregate = m.aggregate AND older.state = 'waiting' AND older.seq < m.seq))
        ORDER BY m.seq LIMIT :many {free})
    UPDATE onceward_outbox_messages SET due_at = :now + :lease, attempts = attempts + 1, fence = fence + 1
    WHERE seq IN (SELECT seq FROM free)
    RETURNING seq, fence, id, endpoint, topic, payload, content_type, headers, aggregate, created_at, attempts"""
_MINE = """UPDATE onceward_outbox_messages SET {}, reason = :reason
    WHERE seq = :seq AND fence = :fence AND state = 'waiting' RETURNING seq"""
_DELIVERED = """UPDATE onceward_outbox_messages SET state = 'delivered', ended_at = :now, reason = :reason
    WHERE state = 'waiting' AND seq IN ({}) AND (seq, fence) IN (VALUES {}) RETURNING seq"""
"""Most tries end like this, so all of them are one statement. By pairs alone, SQLite would read all that waits."""
_DEAD = _MINE.format("state = 'dead', ended_at = :now")
_AGAIN = _MINE.format("due_at = :now + :wait")
_UNTRIED = _MINE.format("due_at = :now, attempts = attempts - 1")
_NOT_BEGUN = """UPDATE onceward_outbox_messages SET due_at = :now, attempts = attempts - 1
    WHERE seq = :seq AND fence = :fence AND state = 'waiting' RETURNING seq"""
_DISABLE = """INSERT INTO onceward_outbox_disabled (endpoint, disabled_at, reason) VALUES (:endpoint, :now, :reason)
    ON CONFLICT (endpoint) DO NOTHING"""
_PURGE = """DELETE FROM onceward_outbox_messages WHERE seq IN (
    SELECT seq FROM onceward_outbox_messages WHERE state = 'delivered' AND ended_at <= :now - :retain
    ORDER BY ended_at LIMIT :many {free}) RETURNING seq"""


def is_due(endpoints: Sequence[str]) -> SqlSteps[bool]:
    """Whether a message is due. It reads only, and blocks nobody."""
    for endpoint in endpoints:
        if (yield Sql(_DUE, {"endpoint": endpoint})):
            return True
    return False


def settle_and_lease(
    ended: Sequence[TryResult], wants: Sequence[LeaseRequest], attempts_max: int
) -> SqlSteps[LeaseBatch]:
    """Write how tries ended, and take as many messages as are wanted."""
    lost: list[TryResult] = []
    delivered: dict[str, list[TryResult]] = {}
    for one in ended:
        if isinstance(one.outcome, Delivered):
            delivered.setdefault(one.outcome.detail, []).append(one)
        else:
            is_mine = yield from _settle(one, one.outcome)
            lost += [] if is_mine else [one]
    for detail, those in delivered.items():
        mine = yield _delivered(detail, those)
        lost += [one for one in those if (one.lease.seq,) not in mine]
    taken: list[MessageLease] = []
    given_up: list[MessageLease] = []
    for want in wants:
        rows = yield Sql(_TAKE, {"endpoint": want.endpoint, "many": want.many, "lease": want.lease_us})
        for lease in sorted(map(_lease, rows)):
            if lease.message.attempt > attempts_max:
                reason = f"taken {attempts_max} times, and no relay reported how the last attempt ended"
                yield Sql(_DEAD, {"seq": lease.seq, "fence": lease.fence, "reason": reason})
                given_up.append(lease)
            else:
                taken.append(lease)
    return LeaseBatch(taken, lost, given_up)


def _delivered(detail: str, those: Sequence[TryResult]) -> Sql:
    numbers = range(len(those))
    seqs = ", ".join([f":seq_{number}" for number in numbers])
    pairs = ", ".join([f"(:seq_{number}, :fence_{number})" for number in numbers])
    values: dict[str, object] = {"reason": detail}
    for number, one in enumerate(those):
        values |= {f"seq_{number}": one.lease.seq, f"fence_{number}": one.lease.fence}
    return Sql(_DELIVERED.format(seqs, pairs), values)


def _settle(ended: TryResult, outcome: DeliveryFailed | DeliveryRefused | EndpointGone | None) -> SqlSteps[bool]:
    if outcome is None:
        rows = yield Sql(_NOT_BEGUN, {"seq": ended.lease.seq, "fence": ended.lease.fence})
        return bool(rows)
    values = {"seq": ended.lease.seq, "fence": ended.lease.fence, "reason": outcome.reason}
    if isinstance(outcome, EndpointGone):
        rows = yield Sql(_UNTRIED, values)
        if rows:
            yield Sql(_DISABLE, {"endpoint": ended.lease.message.to, "reason": values["reason"]})
    elif isinstance(outcome, DeliveryFailed) and not ended.dead:
        rows = yield Sql(_AGAIN, {**values, "wait": ended.wait_us})
    else:
        rows = yield Sql(_DEAD, values)
    return bool(rows)


def _lease(row: Row) -> MessageLease:
    seq, fence, id, to, topic, payload, content_type, headers, aggregate, created_us, attempt = row
    return MessageLease(
        seq,
        fence,
        Message(id, to, topic, bytes(payload), content_type, json.loads(headers), aggregate, created_us, attempt),
    )


def purge(retain_us: int) -> SqlSteps[int]:
    """Delete messages that were delivered so long ago; how many."""
    return len((yield Sql(_PURGE, {"retain": retain_us, "many": PURGE_LIMIT})))


# For operators.


def dead_messages(endpoint: str | None, after: str | None, limit: int) -> SqlSteps[list[DeadMessage]]:
    """Messages that were given up, the oldest first."""
    rows = yield Sql(
        """SELECT id, endpoint, topic, aggregate, attempts, reason, created_at, ended_at FROM onceward_outbox_messages
        WHERE state = 'dead' AND endpoint = coalesce(CAST(:endpoint AS text), endpoint)
            AND seq > coalesce((SELECT seq FROM onceward_outbox_messages WHERE id = :after), 0)
        ORDER BY seq LIMIT :limit""",
        {"endpoint": endpoint, "after": after, "limit": limit},
    )
    return [DeadMessage(*row) for row in rows]


def dead_message(id: str) -> SqlSteps[DeadMessage | None]:
    """One message that was given up; None if there is none."""
    rows = yield Sql(
        """SELECT id, endpoint, topic, aggregate, attempts, reason, created_at, ended_at FROM onceward_outbox_messages
        WHERE id = :id AND state = 'dead'""",
        {"id": id},
    )
    return DeadMessage(*rows[0]) if rows else None


def requeue(id: str) -> SqlSteps[bool]:
    """Make a dead message due again, under its own id and with all its attempts; False if there is none."""
    return bool(
        (
            yield Sql(
                """UPDATE onceward_outbox_messages SET state = 'waiting', due_at = :now, attempts = 0, ended_at = NULL
                WHERE id = :id AND state = 'dead' RETURNING seq""",
                {"id": id},
            )
        )
    )


def discard(id: str) -> SqlSteps[bool]:
    """Delete a dead message; False if there is none."""
    return bool(
        (yield Sql("DELETE FROM onceward_outbox_messages WHERE id = :id AND state = 'dead' RETURNING seq", {"id": id}))
    )


def enable(endpoint: str) -> SqlSteps[bool]:
    """Let an endpoint have its messages again; False if it was not disabled."""
    return bool(
        (
            yield Sql(
                "DELETE FROM onceward_outbox_disabled WHERE endpoint = :endpoint RETURNING endpoint",
                {"endpoint": endpoint},
            )
        )
    )


def message_counts() -> SqlSteps[list[MessageCount]]:
    """What there is, by endpoint and state."""
    rows = yield Sql(
        """SELECT endpoint, state, count(*), min(created_at) FROM onceward_outbox_messages
        GROUP BY endpoint, state ORDER BY endpoint, state""",
        {},
    )
    return [MessageCount(*row) for row in rows]


def disabled_endpoints() -> SqlSteps[list[DisabledEndpoint]]:
    """Which endpoints are disabled, and why."""
    rows = yield Sql("SELECT endpoint, disabled_at, reason FROM onceward_outbox_disabled ORDER BY endpoint", {})
    return [DisabledEndpoint(*row) for row in rows]
