"""
Events of an inbox as operators see them: what was given up, source by source.
"""

from __future__ import annotations

from typing import NamedTuple

from onceward.stores.tables import Sql, SqlSteps

_DEAD = """SELECT scope, source, id, attempts, deliveries, received_at, failure FROM onceward_inbox_events
    WHERE scope = :scope AND source = :source AND state = 'dead' AND id > :after ORDER BY id LIMIT :limit"""


class DeadEvent(NamedTuple):
    """An event that was given up. Its body is not here."""

    scope: str
    source: str
    id: str
    attempts: int
    deliveries: int
    received_at: int
    """Microseconds since 1970 on the host's clock."""
    failure: str | None


def dead_events(scope: str, source: str, after: str, limit: int) -> SqlSteps[list[DeadEvent]]:
    """One page of the events of a source that were given up, in order of id."""
    values = {"scope": scope, "source": source, "after": after, "limit": limit}
    return [DeadEvent._make(row) for row in (yield Sql(_DEAD, values))]
