"""Growth: a claim in a table of a million rows, against one of ten thousand."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from bench.interleave import Worker, WorkerFailed, interleave, progress
from bench.report import Aim, as_json, measured, print_aims, print_table
from bench.settings import Settings

ROWS = {"ten thousand": 10_000, "a million": 1_000_000}
AIMS = [
    Aim("claim", "a million", 1.25, "a durable claim among a million rows, of one among ten thousand", at_most=True)
]
PURGES_MAX = 30


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Build both tables, interleave claims, then purge."""
    print("\n## growth: durable claims through our store, time against a table of ten thousand rows")
    broken: dict[str, str] = {}
    workers = []
    for name, rows in ROWS.items():
        progress(f"building a table of {name} rows")
        try:
            workers.append(Worker(name, sys.executable, "bench.growth:Growth", folder / str(rows), str(rows)))
        except WorkerFailed as error:
            broken[f"ours: {name}"] = str(error)
    try:
        tables = interleave(
            workers,
            {"claim": ("ten thousand", list(ROWS))},
            rounds=settings.rounds,
            seconds=settings.seconds,
            seed=settings.seed,
            broken=broken,
        )
        purges = {worker.name: _purge(worker, broken) for worker in workers if worker.name not in broken}
    finally:
        for worker in workers:
            worker.quit()
    for table in tables:
        print_table("one claim", table, {name: f"{name} rows" for name in ROWS}, as_time=True, unit="us/op")
    print("\n| rows | bytes per row | purge of 1000 rows, ms (median) | ms (greatest) | nothing due, ms |")
    print("|---|---|---|---|---|")
    for name, answer in purges.items():
        times = [1e3 * took for took in answer["purges"]]
        per_row = answer["bytes"] / ROWS[name]
        shown = f"{statistics.median(times):.1f} | {max(times):.1f} | {1e3 * answer['idle']:.2f}"
        print(f"| {name} | {per_row:.0f} | {shown} |")
    for name, why in broken.items():
        print(f"BROKEN: {name}: {why}")
    print("note: a purge deletes and shrinks at most 1000 records together, in one commit.")
    print_aims([(aim, measured(tables, aim.case, aim.name, as_time=True)) for aim in AIMS])
    return {"tables": as_json(tables), "purges": purges, "broken": broken}


def _purge(worker: Worker, broken: dict[str, str]) -> dict[str, Any]:
    progress(f"purging {worker.name}")
    try:
        return worker.ask(f"count purge {PURGES_MAX}")
    except (WorkerFailed, OSError) as error:
        broken[f"ours: {worker.name}"] = str(error)
        return {"purges": [0.0], "bytes": 0, "idle": 0.0}
