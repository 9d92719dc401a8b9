"""HTTP: ours in front of an application, against the application alone and against peers on the same stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import adapters, crowd, fsyncs, peers, servers, trips
from bench.adapters import Known
from bench.comparing import Field, arguments_of, compare, conclude, python_of
from bench.interleave import WorkerFailed
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
            adapters.HTTP_NOTES,
            stores.address,
            PLACE,
            peers.http(),
        )
        compared = compare(field, settings._replace(seconds=SECONDS), folder)
        asked = stores.asked(compared.working, folder)
        crowds = crowd.run({name: stores.address(f"{name}-crowd") for name in crowd.STORES}, folder / "crowd")
        return {
            **conclude(field, compared),
            "server": f"PostgreSQL {stores.postgres.version}, Redis {stores.redis.version}",
            "asked": asked,
            "crowd": crowds,
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
