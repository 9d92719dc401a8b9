"""
What waits for a person: doubt, dead letters, messages, events, breakers, a purge that is behind, a store that forgot,
a migration that stopped half-way.

`onceward status`, `onceward store check` and the dashboard show it; each finding has a level and the command to type.
Everything is read through an index or in bounded pieces, so it also works on a store with millions of records. Large
counts are shown as "10,000 or more", or as an estimate that says so. Nothing is changed.

May import stores, gate and messaging; the service and the command line import it. Start with `look_over` in
`overview.py`, then `record_overview.py` and `message_overview.py`.
"""

from onceward._core.advice import DecideCommands, decide_commands
from onceward.overview.count import COUNT_MAX, Count
from onceward.overview.findings import Level, StatusFinding, age_text, findings_of
from onceward.overview.message_overview import EndpointOverview, InboxOverview, OutboxOverview
from onceward.overview.overview import Overview, look_over
from onceward.overview.record_overview import (
    BreakerOverview,
    DeadLetterOverview,
    PurgeOverview,
    RecordOverview,
)
from onceward.overview.record_walk import Progress, dead_letters, unsettled_records
from onceward.overview.schema_overview import SchemaOverview

__all__ = [
    "COUNT_MAX",
    "BreakerOverview",
    "Count",
    "DeadLetterOverview",
    "DecideCommands",
    "EndpointOverview",
    "InboxOverview",
    "Level",
    "OutboxOverview",
    "Overview",
    "Progress",
    "PurgeOverview",
    "RecordOverview",
    "SchemaOverview",
    "StatusFinding",
    "age_text",
    "dead_letters",
    "decide_commands",
    "findings_of",
    "look_over",
    "unsettled_records",
]
