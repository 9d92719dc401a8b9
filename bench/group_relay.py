"""Relay: messages of an outbox delivered to a local receiver, against a bare HTTP client in a loop."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench import servers
from bench.interleave import Worker, WorkerFailed, interleave
from bench.report import Aim, as_json, measured, print_aims, print_table
from bench.settings import Settings

SECONDS = 0.5
LABELS = {
    "bare": "http.client in eight threads, unsigned, nothing written down",
    "endpoint": "HttpEndpoint in eight threads: signed, addresses checked, one deadline",
    "sqlite": "the relay, SQLite (synchronous FULL)",
    "postgres": "the relay, PostgreSQL",
}
CASE = "deliver"
TITLE = "messages delivered to a receiver on this machine (the bare loop = 1)"
AIMS = [
    Aim(CASE, "sqlite", 0.3, "messages relayed from SQLite, of a bare client's loop"),
    Aim(CASE, "postgres", 0.3, "messages relayed from PostgreSQL, of a bare client's loop"),
]


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print."""
    print(f"\n## relay: deliveries to a local receiver, eight at a time; slices of {SECONDS} s")
    broken: dict[str, str] = {}
    with servers.postgres(folder / "server") as postgres:
        workers = []
        for name in LABELS:
            where = (postgres.address("relay"),) if name == "postgres" else ()
            try:
                workers.append(
                    Worker(name, sys.executable, "bench.relay_slices:RelaySlices", folder / name, name, *where)
                )
            except WorkerFailed as error:
                broken[name] = str(error)
        try:
            tables = interleave(
                workers,
                {CASE: ("bare", list(LABELS))},
                rounds=settings.rounds,
                seconds=SECONDS,
                seed=settings.seed,
                broken=broken,
            )
        finally:
            for worker in workers:
                worker.quit()
    for table in tables:
        print_table(TITLE, table, LABELS)
    print()
    for name, why in broken.items():
        print(f"BROKEN: {name}: {why}")
    print_aims([(aim, measured(tables, aim.case, aim.name)) for aim in AIMS])
    return {"tables": as_json(tables), "broken": broken}
