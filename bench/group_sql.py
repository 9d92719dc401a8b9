"""Tenants' SQL: keyed writes through the engine's processes, against BEGIN IMMEDIATE; INSERT; COMMIT by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.comparing import OwnField, compare_own
from bench.report import Aim
from bench.settings import Settings

LABELS = {
    "hand": "BEGIN IMMEDIATE; INSERT; COMMIT by hand, no key",
    "ours-local": "LocalDatabase, keyed",
    "ours": "Engine, keyed",
    "ours-plain": "Engine, without a key",
}
CASES = {"one_caller": "one caller", "fifty_callers": "fifty callers of one database (by hand: one after the other)"}
AIMS = [
    Aim("one_caller", "ours", 0.5, "keyed writes through the engine, one caller, of the same by hand without a key"),
    Aim("fifty_callers", "ours", 1.0, "keyed writes through the engine, fifty callers, of the same by hand"),
]


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print."""
    print("\n## sql: durable writes to a tenant's SQLite database (CPU: of the caller's process only)")
    cases = {case: ("hand", list(LABELS)) for case in CASES}
    return compare_own(OwnField("bench.sql:Sql", LABELS, CASES, cases, AIMS), settings, folder, settings.seconds)
