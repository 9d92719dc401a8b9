"""PostgreSQL: ours against the driver alone and against peers, and what each asks of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import adapters, servers, trips
from bench.comparing import Field, compare, conclude
from bench.settings import Settings

REFERENCES = dict.fromkeys(adapters.ALL, "raw")
TITLES = {
    "fresh_seq": "fresh, one blocking caller (raw claim-or-get and settle = 1)",
    "replay_seq": "replay, one blocking caller (raw claim-or-get, no fingerprint compared = 1)",
    "fresh_aseq": "fresh, one async caller (raw asyncpg pool = 1)",
    "fresh_thr": "fresh, 8 threads (raw, a connection each = 1)",
    "replay_thr": "replay, 8 threads (raw claim-or-get, a connection each, no fingerprint compared = 1)",
    "fresh_task": "fresh, 50 tasks (raw asyncpg pool of 20 = 1)",
    "replay_task": "replay, 50 tasks (raw asyncpg pool of 20, no fingerprint compared = 1)",
}


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print; everything measured, for the JSON file."""
    with servers.postgres(folder / "server") as server:
        print(f"\n## postgres: PostgreSQL {server.version} over TCP, fsync and synchronous_commit on")
        field = Field(adapters.POSTGRES, REFERENCES, TITLES, adapters.POSTGRES_NOTES, server.address)
        compared = compare(field, settings, folder)
        asked = trips.count(server, compared.working, folder, "statements")
        return {**conclude(field, compared), "server": server.version, "asked": asked}
