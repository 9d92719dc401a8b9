"""Tenants' SQL: keyed writes through the engine's processes, against BEGIN IMMEDIATE; INSERT; COMMIT by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.interleave import Worker, WorkerFailed, interleave
from bench.report import Aim, as_json, measured, print_aims, print_table
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
    broken: dict[str, str] = {}
    workers = []
    for name in LABELS:
        try:
            workers.append(Worker(name, sys.executable, "bench.sql:Sql", folder / name, name))
        except WorkerFailed as error:
            broken[name] = str(error)
    try:
        tables = interleave(
            workers,
            {case: ("hand", list(LABELS)) for case in CASES},
            rounds=settings.rounds,
            seconds=settings.seconds,
            seed=settings.seed,
            broken=broken,
        )
    finally:
        for worker in workers:
            worker.quit()
    for table in tables:
        print_table(CASES[table.case], table, LABELS)
    for name, why in broken.items():
        print(f"BROKEN: {name}: {why}")
    print_aims([(aim, measured(tables, aim.case, aim.name)) for aim in AIMS])
    return {"tables": as_json(tables), "broken": broken}
