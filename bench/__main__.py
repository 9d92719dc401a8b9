"""
Ratios against the raw store and against peers.

    python -m bench                      everything, about twenty minutes
    python -m bench --quick --only keys  three rounds of one group
    python -m bench --json out.json      with every slice, for programs
    python -m bench --save kept.json     medians and spreads, put into a file group by group

See docs/reference/benchmarks.md for what is measured and how.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import (
    group_agents,
    group_atomic,
    group_growth,
    group_http,
    group_inbox,
    group_keys,
    group_ledger,
    group_metrics,
    group_postgres,
    group_redis,
    group_relay,
    group_retry,
    group_service,
    group_sql,
    group_sql_postgres,
    group_sqlite,
    summary,
    table,
)
from bench.interleave import ROOT
from bench.settings import parse

BUILD = ROOT / "build"
RUNS = {
    "sqlite": group_sqlite.run,
    "postgres": group_postgres.run,
    "atomic": group_atomic.run,
    "redis": group_redis.run,
    "metrics": group_metrics.run,
    "keys": group_keys.run,
    "growth": group_growth.run,
    "retry": group_retry.run,
    "http": group_http.run,
    "sql": group_sql.run,
    "sql-postgres": group_sql_postgres.run,
    "inbox": group_inbox.run,
    "service": group_service.run,
    "ledger": group_ledger.run,
    "relay": group_relay.run,
    "agents": group_agents.run,
}


def main() -> int:
    """Run the chosen groups; 1 if something of ours is broken."""
    settings = parse()
    begin = time.monotonic()
    print(f"# onceward benchmarks: {settings.rounds} rounds of {settings.seconds} s slices, seed {settings.seed}\n")
    print(
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}. Only ratios are claims."
    )
    measured: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    # Next to the project and not in the system's temporary folder, which may be in memory, where a sync costs nothing.
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as folder:
        for group in settings.groups:
            began = time.monotonic()
            with summary.watched() as load:
                measured[group] = RUNS[group](settings, Path(folder) / group)
            kept[group] = summary.of_group(measured[group], settings, load, time.monotonic() - began)
            if settings.save is not None:  # Group by group: what was measured stays, whatever comes after it.
                summary.save(settings.save, {group: kept[group]})
    print_all(kept)
    print(f"\n{time.monotonic() - begin:.0f} seconds in all, load {os.getloadavg()[0]:.1f} at the end")
    if settings.json is not None:
        settings.json.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    broken = {name for group in measured.values() for name in group["broken"]}
    return 1 if any(name.startswith("ours") for name in broken) else 0


def print_all(kept: dict[str, Any]) -> None:
    """The cases of the whole run in one table, as far as they were measured."""
    rows = table.lines(kept)
    if not rows:
        return
    print("\n## the table: each case against its reference, the best raw way and the best peer\n")
    print("\n".join(rows), end="\n\n")
    for note in table.NOTES:
        print(f"note: {note}")


if __name__ == "__main__":
    sys.exit(main())
