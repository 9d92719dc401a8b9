"""Tenants' SQL on PostgreSQL: keyed inserts and replays through the engine, against a bare INSERT in autocommit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from bench import servers
from bench.comparing import OwnField, compare_own
from bench.settings import Settings
from onceward.service.sql.postgres.preparation import ROLE, preparation_script

SECONDS = 0.5
"""Of a slice: a crowd of connections wants a while to be in step."""
LABELS = {
    "bare": "one prepared INSERT by psycopg, autocommit, a connection for each caller",
    "ours": "PostgresEngine, keyed",
    "ours-plain": "PostgresEngine, without a key",
    "hand": "by hand, pipelined: the statements of a keyed insert in one round trip, and nothing else",
}
CASES = {
    "write_one": "inserts, one caller",
    "write_many": "inserts, 32 callers (the engine: 8 tenants, 16 sessions)",
    "replay_one": "replays of one of 200 keys, one caller (bare: an insert)",
    "replay_many": "replays, 32 callers (bare: an insert)",
}


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print."""
    compared = {
        "write_one": ("bare", [*LABELS]),
        "write_many": ("bare", [*LABELS]),
        "replay_one": ("bare", ["bare", "ours"]),
        "replay_many": ("bare", ["bare", "ours"]),
    }
    field = OwnField("bench.sql_postgres:SqlPostgres", LABELS, CASES, compared, [])
    with servers.postgres(folder / "server") as server:
        print(f"\n## sql-postgres: tenants' databases on PostgreSQL {server.version}, fsync and synchronous_commit on")
        return compare_own(field, settings, folder, SECONDS, partial(_prepared, server))


def _prepared(server: servers.Postgres, name: str) -> str:
    """A database of its own; for the engine, as an administrator prepares one, and as the service's role."""
    url = server.address(name)
    if name == "bare":
        return url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(preparation_script(name.replace("-", "_")).encode())
    return url.replace("postgres@", f"{ROLE}@")
