"""Keys: canonical form and hash, against `json.dumps(sort_keys=True)` and SHA-256."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from bench.interleave import Worker, WorkerFailed, interleave
from bench.report import Aim, as_json, measured, print_aims, print_table
from bench.settings import Settings

LABELS = {
    "json": "json.dumps(sort_keys=True) + sha256",
    "ours": "onceward fingerprint, with orjson",
    "ours-pure": "onceward fingerprint, without orjson",
    "rfc8785": "rfc8785 + sha256",
}
CASES = {"200B": "200 bytes", "2KB": "2 KB", "2KB_floats": "2 KB with floats", "50KB": "50 KB"}
SECONDS = 0.1
"""Nothing here waits, so short slices say as much."""
AIMS = [
    Aim("200B", "ours", 0.5, "canonical form + hash of 200 bytes, of json + sha256", at_most=True),
    Aim("2KB", "ours", 0.5, "canonical form + hash of 2 KB, of json + sha256", at_most=True),
    Aim("2KB_floats", "ours", 1.0, "canonical form + hash of 2 KB with floats, of json + sha256", at_most=True),
]


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print."""
    print("\n## keys: canonical form and hash, time against json + sha256")
    broken: dict[str, str] = {}
    if importlib.util.find_spec("orjson") is None:
        broken["ours"] = "orjson is not installed, so there is no speed-up to measure (pip install orjson)"
    workers = []
    for name in LABELS:
        if name in broken:
            continue
        try:
            workers.append(Worker(name, sys.executable, "bench.keys:Keys", folder / name, name))
        except WorkerFailed as error:
            broken[name] = str(error)
    try:
        tables = interleave(
            workers,
            {case: ("json", list(LABELS)) for case in CASES},
            rounds=settings.rounds,
            seconds=SECONDS,
            seed=settings.seed,
            broken=broken,
        )
    finally:
        for worker in workers:
            worker.quit()
    for table in tables:
        print_table(CASES[table.case], table, LABELS, as_time=True, unit="us/op")
    print()
    for name, why in broken.items():
        print(f"BROKEN OR MISSING, so not compared: {name}: {why}")
    print("note: json.dumps is not RFC 8785: it spells floats and orders some names otherwise.")
    aims = [(aim, measured(tables, aim.case, aim.name, as_time=True)) for aim in AIMS]
    print_aims(aims)
    return {**as_json(tables, CASES, LABELS, aims, as_time=True), "broken": broken}
