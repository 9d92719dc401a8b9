"""
What the outbox and the inbox say: what waits and for how long, dead letters, endpoints that are disabled.

Statements go by the partial indexes of what waits and of what has ended, and stop where counting ends to be useful.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from onceward._core.errors import ConfigurationError
from onceward._core.operation import to_datetime
from onceward.messaging.inbox.event_table import SCHEMA as INBOX
from onceward.messaging.outbox.message_queue import disabled_endpoints
from onceward.messaging.outbox.tables import open_outbox
from onceward.overview.count import COUNT_MAX, Count
from onceward.runtime.environment import Environment
from onceward.stores import tables_url
from onceward.stores.tables import Sql, SqlSteps, TablesDriver, open_tables

T = TypeVar("T")

ENDPOINTS_MAX = 100
FRONT = 100
"""Messages of an endpoint that are looked at: the first to go."""
LATE_SECONDS = 300.0
"""What has been due for longer than this is taken by nobody: relays and workers look every second or so."""

_ENDPOINTS = """WITH RECURSIVE waiting(endpoint) AS (
        SELECT min(endpoint) FROM onceward_outbox_messages WHERE state = 'waiting'
        UNION ALL
        SELECT (SELECT min(m.endpoint) FROM onceward_outbox_messages AS m
            WHERE m.state = 'waiting' AND m.endpoint > waiting.endpoint)
        FROM waiting WHERE waiting.endpoint IS NOT NULL)
    SELECT endpoint FROM waiting WHERE endpoint IS NOT NULL LIMIT :limit"""
"""From one endpoint to the next in the index, however many messages lie between them."""
_WAITING = """SELECT count(*) FROM (SELECT 1 FROM onceward_outbox_messages
    WHERE endpoint = :endpoint AND state = 'waiting' LIMIT :limit) AS some"""
_FRONT = """SELECT min(created_at), min(due_at), :now FROM (SELECT created_at, due_at FROM onceward_outbox_messages
    WHERE endpoint = :endpoint AND state = 'waiting' ORDER BY seq LIMIT :front) AS some"""
_DEAD = """SELECT count(*), min(ended_at) FROM (SELECT ended_at FROM onceward_outbox_messages
    WHERE state = 'dead' AND state <> 'waiting' ORDER BY ended_at LIMIT :limit) AS some"""
_EVENTS = """SELECT count(*), min(due_at), :now FROM (SELECT due_at FROM onceward_inbox_events
    WHERE state = 'waiting' ORDER BY due_at LIMIT :limit) AS some"""


class EndpointOverview(NamedTuple):
    """The messages that wait for one endpoint."""

    endpoint: str
    waiting: Count
    oldest: datetime
    late_seconds: float
    """For how long the first of them has been due without being taken."""


class OutboxOverview(NamedTuple):
    """The messages of an outbox."""

    endpoints: tuple[EndpointOverview, ...]
    """Those for which messages wait."""
    dead_letters: Count
    oldest_dead_letter: datetime | None
    disabled: tuple[tuple[str, datetime, str], ...]
    """Endpoints that said that they are gone: name, since when, why."""

    @property
    def waiting(self) -> Count:
        """Messages that wait, for all endpoints."""
        return Count(
            sum(one.waiting.number for one in self.endpoints),
            all(one.waiting.exact for one in self.endpoints) and len(self.endpoints) < ENDPOINTS_MAX,
        )

    @property
    def late(self) -> tuple[EndpointOverview, ...]:
        """Endpoints whose messages are due, while no relay takes them."""
        disabled = {name for name, _, _ in self.disabled}
        return tuple(one for one in self.endpoints if one.late_seconds > LATE_SECONDS and one.endpoint not in disabled)


class InboxOverview(NamedTuple):
    """The events of an inbox that wait. Those that were given up are dead letters in the store."""

    waiting: Count
    late_seconds: float

    @property
    def is_late(self) -> bool:
        """Whether events are due, while nothing processes them."""
        return self.late_seconds > LATE_SECONDS


def look_at_outbox(url: str, environment: Environment) -> OutboxOverview | None:
    """The outbox in the database that a store's URL names; None if there is none."""
    return None if tables_url(url) is None else _look(lambda: open_outbox(url, environment, create=False), _outbox())


def look_at_inbox(url: str, environment: Environment) -> InboxOverview | None:
    """The inbox beside a store; None if there is none."""
    if tables_url(url) is None:
        return None
    return _look(lambda: open_tables(url, INBOX, environment, create=False), _inbox())


def _look(open_driver: Any, steps: SqlSteps[T]) -> T | None:
    try:
        driver: TablesDriver = open_driver()
    except ConfigurationError:
        return None  # No tables: nobody has used it yet.
    try:
        return driver.look(lambda: steps)
    finally:
        driver.close()


def _outbox() -> SqlSteps[OutboxOverview]:
    endpoints: list[EndpointOverview] = []
    for (endpoint,) in (yield Sql(_ENDPOINTS, {"limit": ENDPOINTS_MAX})):
        [(number,)] = yield Sql(_WAITING, {"endpoint": endpoint, "limit": COUNT_MAX + 1})
        [(created, due, now)] = yield Sql(_FRONT, {"endpoint": endpoint, "front": FRONT})
        if number and created is not None:  # They may have gone in between.
            late = max(0.0, (now - due) / 1e6)
            endpoints.append(EndpointOverview(endpoint, Count.up_to_limit(number), to_datetime(created), late))
    [(dead, oldest)] = yield Sql(_DEAD, {"limit": COUNT_MAX + 1})
    disabled = yield from disabled_endpoints()
    return OutboxOverview(
        tuple(endpoints),
        Count.up_to_limit(dead),
        None if oldest is None else to_datetime(oldest),
        tuple((one.endpoint, to_datetime(one.since_us), one.reason) for one in disabled),
    )


def _inbox() -> SqlSteps[InboxOverview]:
    [(waiting, due, now)] = yield Sql(_EVENTS, {"limit": COUNT_MAX + 1})
    return InboxOverview(Count.up_to_limit(waiting), 0.0 if due is None else max(0.0, (now - due) / 1e6))
