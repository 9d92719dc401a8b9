"""
Rates and pictures from the latest attempts in a journal: what ran, what was replayed, what was refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from onceward.journal.notes import CallOutcome
from onceward.journal.views import CallView

BUCKETS = 36
WIDTHS = (10, 60, 300, 1_200, 3_600, 14_400, 86_400)
"""Seconds of a bar: from six minutes in all to five weeks."""
RATE_SECONDS = 300
"""Rates are those of the last five minutes."""


class Activity(NamedTuple):
    """What the latest attempts show."""

    rates: dict[str, float]
    """Attempts in a minute, by outcome, over the last five minutes."""
    width: int
    """Seconds of a bar."""
    since: datetime
    until: datetime
    counts: dict[str, list[int]]
    """By outcome, for each bar."""
    total: Counter[str]
    covers: float
    """Seconds that the rates are about."""


def summarize(calls: Sequence[CallView], now: datetime) -> Activity:
    """What these attempts (the latest first) show."""
    ended = [one for one in calls if one.outcome is not None]
    oldest = calls[-1].started_at if calls else now
    span = max((now - oldest).total_seconds(), 1.0)
    width = next((one for one in WIDTHS if one * BUCKETS >= span), WIDTHS[-1])
    since = now - timedelta(seconds=width * BUCKETS)
    counts = {outcome.value: [0] * BUCKETS for outcome in CallOutcome}
    total: Counter[str] = Counter()
    for one in ended:
        place = int((one.started_at - since).total_seconds() // width)
        if 0 <= place < BUCKETS and one.outcome in counts:
            counts[one.outcome][place] += 1
            total[one.outcome] += 1
    covered = min(RATE_SECONDS, span)
    recent = Counter(one.outcome for one in ended if (now - one.started_at).total_seconds() <= RATE_SECONDS)
    return Activity(
        rates={outcome.value: recent[outcome.value] / covered * 60 for outcome in CallOutcome},
        width=width,
        since=since,
        until=now,
        counts=counts,
        total=total,
        covers=covered,
    )
