"""The ledger: deltas beside a two-table transaction by hand; balances of a million deltas beside those of a few."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.interleave import Table, Worker, WorkerFailed, interleave
from bench.report import Aim, as_json, measured, print_aims, print_table
from bench.settings import Settings

EMITS = {"hand": "a record and a row in one transaction by hand", "ours": "the ledger: keyed, chained, verified"}
DERIVES = {
    "few": "100 deltas",
    "ours-checkpoint": "a million deltas, a checkpoint, and 100 since",
    "ours-all": "a million deltas and 100, no checkpoint",
}
CASES = {
    "alone": "durable deltas, one a transaction",
    "batches": "durable deltas, a hundred a transaction",
    "derive": "balances derived",
}
AIMS = [
    Aim("alone", "ours", 0.3, "deltas one by one, of the two-table transaction by hand"),
    Aim("derive", "ours-checkpoint", 0.8, "balances of a million deltas before a checkpoint, of those of a hundred"),
]
FILL_SECONDS = 600.0
"""A million rows, on a slow and busy disk."""


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print."""
    print("\n## ledger: deltas and balances on SQLite")
    broken: dict[str, str] = {}
    tables = _measured(settings, folder, "bench.ledger:Emits", EMITS, {"alone": "hand", "batches": "hand"}, broken)
    tables += _measured(settings, folder, "bench.ledger:Derives", DERIVES, {"derive": "few"}, broken)
    for table in tables:
        print_table(CASES[table.case], table, {**EMITS, **DERIVES})
    for name, why in broken.items():
        print(f"BROKEN: {name}: {why}")
    aims = [(aim, measured(tables, aim.case, aim.name)) for aim in AIMS]
    print_aims(aims)
    return {**as_json(tables, CASES, {**EMITS, **DERIVES}, aims), "broken": broken}


def _measured(
    settings: Settings, folder: Path, place: str, labels: dict[str, str], cases: dict[str, str], broken: dict[str, str]
) -> list[Table]:
    workers = []
    for name in labels:
        try:
            workers.append(Worker(name, sys.executable, place, folder / name, name, patience=FILL_SECONDS))
        except WorkerFailed as error:
            broken[name] = str(error)
    try:
        return interleave(
            workers,
            {case: (reference, list(labels)) for case, reference in cases.items()},
            rounds=settings.rounds,
            seconds=settings.seconds,
            seed=settings.seed,
            broken=broken,
        )
    finally:
        for worker in workers:
            worker.quit()
