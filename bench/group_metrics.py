"""
What listening costs: the gate on SQLite with a listener, `Metrics` or a journal registered, by CPU time.

A listener that only counts may cost 15 % more, and so may `Metrics`. So may a journal, but it writes a row for each
attempt into a table with four indexes, and the row alone may cost as much: the same rows by hand are its limit, and
then it may cost a ninth more than that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import adapters
from bench.comparing import Field, compare, conclude
from bench.settings import Settings

TITLES = {
    "fresh_seq": "fresh, one blocking caller (nobody listens = 1)",
    "replay_seq": "replay, one blocking caller (nobody listens = 1)",
    "fresh_task": "fresh, 50 tasks (nobody listens = 1)",
    "replay_task": "replay, 50 tasks (nobody listens = 1)",
}


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print; everything measured, for the JSON file."""
    print("\n## metrics: a gate on SQLite that somebody listens to, against one that nobody does")
    field = Field(adapters.METRICS, dict.fromkeys(TITLES, "ours"), TITLES)
    return conclude(field, compare(field, settings, folder))
