"""
`look_over`: everything about a store that may need a person, in one look.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import NamedTuple

from onceward._core.store_protocols import Store
from onceward.overview.findings import Level, StatusFinding, findings_of
from onceward.overview.message_overview import InboxOverview, OutboxOverview, look_at_inbox, look_at_outbox
from onceward.overview.record_overview import RecordOverview, look_at_records
from onceward.overview.record_walk import Progress, silent
from onceward.overview.schema_overview import SchemaOverview, look_at_schema
from onceward.runtime.environment import REAL, Environment
from onceward.stores import open_store


class Overview(NamedTuple):
    """What was seen of a store, its outbox and its inbox."""

    records: RecordOverview
    outbox: OutboxOverview | None
    """None: the store's database has no outbox."""
    inbox: InboxOverview | None
    schema: SchemaOverview | None = None
    """None: the schema is that of this version."""

    @property
    def findings(self) -> tuple[StatusFinding, ...]:
        """The findings, in the order in which they are shown."""
        return findings_of(self.records, self.outbox, self.inbox, self.schema)

    @property
    def needs_somebody(self) -> bool:
        """Whether anything waits for a person."""
        return any(one.level is Level.NEEDED for one in self.findings)


def look_over(
    url: str, *, store: Store | None = None, progress: Progress = silent, environment: Environment = REAL
) -> Overview:
    """
    Look over the store that a URL names. It blocks: on an event loop, call it in a thread.

    `store` is one that is open already; it is not closed here.
    """
    with ExitStack() as stack:
        if store is None:
            store = open_store(url, environment=environment)
            stack.callback(store.close)
        return Overview(
            look_at_records(store, progress=progress),
            look_at_outbox(url, environment),
            look_at_inbox(url, environment),
            look_at_schema(url),
        )
