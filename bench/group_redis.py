"""Redis: ours against the driver alone and against peers, and what each asks of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import adapters, servers, trips
from bench.comparing import Field, compare, conclude
from bench.settings import Settings

REFERENCES = dict.fromkeys(adapters.ALL, "raw")
TITLES = {
    "fresh_seq": "fresh, one blocking caller (raw SET NX GET + SET = 1)",
    "replay_seq": "replay, one blocking caller (raw SET NX GET, no fingerprint compared = 1)",
    "fresh_aseq": "fresh, one async caller (raw redis.asyncio = 1)",
    "fresh_thr": "fresh, 8 threads (raw SET NX GET + SET = 1)",
    "replay_thr": "replay, 8 threads (raw SET NX GET, no fingerprint compared = 1)",
    "fresh_task": "fresh, 50 tasks (raw redis.asyncio = 1)",
    "replay_task": "replay, 50 tasks (raw redis.asyncio, no fingerprint compared = 1)",
}
FSYNC = ("everysec", "always")
"""As Redis comes, and with every write on the disk before it is answered, which is what the other stores do."""


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print for both kinds of server; everything measured, for the JSON file."""
    found = {fsync: _run(settings, folder / fsync, fsync) for fsync in FSYNC}
    return {**found, "broken": {name: why for one in found.values() for name, why in one["broken"].items()}}


def _run(settings: Settings, folder: Path, fsync: str) -> dict[str, Any]:
    with servers.redis(folder / "server", fsync) as server:
        print(f"\n## redis: Redis {server.version} over TCP, append-only file, appendfsync {fsync}")
        field = Field(adapters.REDIS, REFERENCES, TITLES, adapters.REDIS_NOTES, server.address)
        compared = compare(field, settings, folder)
        asked = {} if fsync == FSYNC[1] else trips.count(server, compared.working, folder, "commands")
        return {**conclude(field, compared), "server": server.version, "asked": asked}
