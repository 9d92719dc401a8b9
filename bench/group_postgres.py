"""PostgreSQL: ours against the driver alone and against peers, and what each asks of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import adapters, servers, trips
from bench.comparing import Field, compare, conclude
from bench.report import Aim, as_json
from bench.settings import Settings

REFERENCES = dict.fromkeys(adapters.ALL, "raw")
TITLES = {
    "fresh_seq": "fresh, one blocking caller (raw two durable statements = 1)",
    "replay_seq": "replay, one blocking caller (raw SELECT = 1)",
    "fresh_aseq": "fresh, one async caller (raw asyncpg pool = 1)",
    "fresh_thr": "fresh, 8 threads (raw, a connection each = 1)",
    "replay_thr": "replay, 8 threads (raw SELECT, a connection each = 1)",
    "fresh_task": "fresh, 50 tasks (raw asyncpg pool of 10 = 1)",
    "replay_task": "replay, 50 tasks (raw asyncpg pool of 10 = 1)",
}
AIMS = [
    Aim("fresh_seq", "ours", 0.9, "PostgreSQL fresh, one caller, of raw"),
    Aim("replay_seq", "ours", 0.8, "PostgreSQL replay, one caller, of raw"),
    Aim("fresh_thr", "ours", 0.85, "PostgreSQL fresh, 8 threads, of raw"),
    Aim("fresh_task", "ours", 3, "PostgreSQL fresh, 50 tasks, of a raw asyncpg pool"),
    Aim("replay_task", "ours", 4, "PostgreSQL replay, 50 tasks, of a raw asyncpg pool"),
]


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print; everything measured, for the JSON file."""
    with servers.postgres(folder / "server") as server:
        print(f"\n## postgres: PostgreSQL {server.version} over TCP, fsync and synchronous_commit on")
        field = Field(adapters.POSTGRES, REFERENCES, TITLES, AIMS, adapters.POSTGRES_NOTES, server.address)
        compared = compare(field, settings, folder)
        asked = trips.count(server, compared.working, folder, "statements")
        conclude(field, compared)
    return {"tables": as_json(compared.tables), "asked": asked, "broken": compared.broken}
