"""HTTP: ours in front of an application, against the application alone and against peers on the same stores."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import adapters, crowd, fsyncs, peers, servers, trips
from bench.adapters import Known
from bench.comparing import Compared, Field, arguments_of, compare, conclude, python_of
from bench.interleave import Table, WorkerFailed
from bench.report import Aim, as_json
from bench.settings import Settings

PLACE = "bench.http_slices:HttpSlices"
SECONDS = 0.5
"""Of a slice: a slow peer answers a few hundred requests in that time."""
COUNTED = {"fresh_http": 1_000, "replay_http": 1_000}
TRACED = {"fresh_http": 320, "replay_http": 320}
"""Few: each is traced."""
TITLES = {
    "fresh_http": "HTTP, fresh: a new key with every request (bare application = 1)",
    "replay_http": "HTTP, replay: one of 200 keys (bare application = 1)",
}
AIMS = [
    Aim("fresh_http", "ours-sqlite", 0.3, "HTTP on SQLite, fresh, of the bare application"),
    Aim("replay_http", "ours-sqlite", 0.9, "HTTP on SQLite, replay, of the bare application"),
    Aim("fresh_http", "ours-postgres", 0.3, "HTTP on PostgreSQL, fresh, of the bare application"),
    Aim("replay_http", "ours-postgres", 1.2, "HTTP on PostgreSQL, replay, of the bare application"),
]


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print; everything measured, for the JSON file."""
    with _stores(folder) as stores:
        print(
            f"\n## http: one worker, 32 connections; PostgreSQL {stores.postgres.version}, Redis "
            f"{stores.redis.version} (appendfsync always), SQLite (synchronous FULL); slices of {SECONDS} s"
        )
        field = Field(
            adapters.HTTP,
            dict.fromkeys(TITLES, "bare"),
            TITLES,
            AIMS,
            adapters.HTTP_NOTES,
            stores.address,
            PLACE,
            peers.http(),
        )
        compared = compare(field, settings._replace(seconds=SECONDS), folder)
        asked = stores.asked(compared.working, folder)
        crowds = crowd.run({name: stores.address(f"{name}-crowd") for name in crowd.STORES}, folder / "crowd")
        conclude(field, compared)
        overheads = _against_peers(compared)
    return {
        "tables": as_json(compared.tables),
        "asked": asked,
        "overhead": overheads,
        "crowd": crowds,
        "broken": compared.broken,
    }


class _Stores:
    """Where each adapter keeps its records."""

    def __init__(self, postgres: servers.Postgres, redis: servers.Redis) -> None:
        self.postgres, self.redis = postgres, redis

    def address(self, name: str) -> str:
        """By what is in its name."""
        if "postgres" in name:
            return self.postgres.address(name)
        if "redis" in name:
            return self.redis.address(name)
        return "sqlite:///{folder}/ours.db" if "sqlite" in name else "memory://"

    def asked(self, working: dict[str, Known], folder: Path) -> dict[str, Any]:
        """What a request asks of its store: statements or commands, round trips, syncs of the disk."""
        on = {store: {name: one for name, one in working.items() if store in name} for store in ("postgres", "redis")}
        return {
            "postgres": trips.count(self.postgres, on["postgres"], folder, "statements", COUNTED, PLACE),
            "redis": trips.count(self.redis, on["redis"], folder, "commands", COUNTED, PLACE),
            "sqlite": self._syncs(working.get("ours-sqlite"), folder / "traced"),
        }

    def _syncs(self, one: Known | None, folder: Path) -> dict[str, float]:
        print("\n### fsync and fdatasync per request on SQLite\n")
        if one is None or not fsyncs.available():
            print("not counted: strace is not installed, or the adapter is broken")
            return {}
        arguments = [*arguments_of(one), self.address("ours-sqlite")]
        try:
            found = fsyncs.count("ours-sqlite", python_of(one), folder, PLACE, arguments, TRACED)
        except (WorkerFailed, OSError) as error:
            print(f"could not be counted: {error}")
            return {}
        print(", ".join(f"{case} {number:.2f}" for case, number in found.items()))
        return found


@contextmanager
def _stores(folder: Path) -> Iterator[_Stores]:
    with servers.postgres(folder / "postgres") as postgres, servers.redis(folder / "redis", "always") as redis:
        yield _Stores(postgres, redis)


def _against_peers(compared: Compared) -> dict[str, float]:
    """What a request costs beyond the bare application, ours as a share of the best peer's on the same store."""
    found: dict[str, float] = {}
    print()
    for table in compared.tables:
        for store in ("postgres", "redis"):
            for what, cost_of in (("CPU time", _cpu_overhead), ("wall time", _wall_overhead)):
                costs = {
                    name: cost_of(table, name) for name in table.slices if name.endswith(store) and table.complete(name)
                }
                title = f"{table.case} on {store}, {what} beyond the bare application's, below the best peer's"
                mine = costs.pop(f"ours-{store}", None)
                if mine is None or not costs:
                    print(f"aim  NOT MEASURED  {title}")
                    continue
                best = min(costs, key=lambda name: costs[name])
                found[f"{table.case} {store} {what}"] = mine / costs[best]
                met = "met   " if mine < costs[best] else "MISSED"
                print(f"aim  {met}  {title}: {mine:.0f} us a request against {costs[best]:.0f} ({best})")
    return found


def _wall_overhead(table: Table, name: str) -> float:
    """Microseconds per request beyond the bare application's of the same round (median)."""
    pairs = zip(table.slices[name], table.slices[table.reference], strict=True)
    return statistics.median(1e6 / one.rate - 1e6 / bare.rate for one, bare in pairs)


def _cpu_overhead(table: Table, name: str) -> float:
    """The same of the server's CPU time, which a busy machine disturbs less."""
    pairs = zip(table.slices[name], table.slices[table.reference], strict=True)
    return statistics.median(1e6 * (one.cpu / one.operations - bare.cpu / bare.operations) for one, bare in pairs)
