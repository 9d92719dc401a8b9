"""Tenants' SQL: keyed writes through the engine's processes, against BEGIN IMMEDIATE; INSERT; COMMIT by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.comparing import OwnField, compare_own
from bench.settings import Settings

LABELS = {
    "hand": "BEGIN IMMEDIATE; INSERT; COMMIT by hand, no key",
    "hand-process": "by hand in a process of its own: key, answer and row in one commit",
    "rules-process": "LocalDatabase in a process of its own, keyed, nothing else between",
    "ours-local": "LocalDatabase, keyed",
    "ours": "Engine, keyed",
    "ours-plain": "Engine, without a key",
}
CASES = {"one_caller": "one caller", "fifty_callers": "fifty callers of one database (by hand: one after the other)"}


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print."""
    print("\n## sql: durable writes to a tenant's SQLite database (CPU: of the caller's process only)")
    cases = {case: ("hand", list(LABELS)) for case in CASES}
    return compare_own(OwnField("bench.sql:Sql", LABELS, CASES, cases, []), settings, folder, settings.seconds)
