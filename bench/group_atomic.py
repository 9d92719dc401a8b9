"""Atomic mode on PostgreSQL against the same statements by hand: next to the server, and two milliseconds away."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg

from bench import adapters, servers, trips
from bench.comparing import Field, compare, conclude
from bench.delay import delayed
from bench.settings import Settings
from onceward._core.terms import Options

EACH_WAY_SECONDS = 0.001
REFERENCES = {"fresh_seq": "bare", "replay_seq": "hand", "fresh_thr": "bare"}
TITLES = {
    "fresh_seq": "fresh, one caller (the bare transaction, without a key = 1)",
    "replay_seq": "replay, one caller (SELECT in a transaction by hand, no fingerprint compared = 1)",
    "fresh_thr": "fresh, 8 threads (the bare transaction, without a key, a connection each = 1)",
}


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print; everything measured, for the JSON file."""
    with servers.postgres(folder / "server") as server:
        print(f"\n## atomic: PostgreSQL {server.version}, the record in the caller's own transaction")
        found = {"near": _run(settings, folder / "near", server, server.port)}
        with delayed(server.port, EACH_WAY_SECONDS) as port:
            trip = 1e3 * _trip(server.address("measured", port))
            print(f"\n## atomic, with a delay of {2e3 * EACH_WAY_SECONDS:g} ms (one SELECT took {trip:.1f} ms)")
            found["far"] = _run(settings, folder / "far", server, port)
        found["near"]["server"] = server.version
    return {**found, "broken": {name: why for one in found.values() for name, why in one["broken"].items()}}


def _run(settings: Settings, folder: Path, server: servers.Postgres, port: int) -> dict[str, Any]:
    place = folder.name
    known = {**adapters.ATOMIC, **(adapters.ATOMIC_LAST if "claim" in Options.__annotations__ else {})}
    field = Field(known, REFERENCES, TITLES, address=lambda name: server.address(f"{place}_{name}", port))
    compared = compare(field, settings, folder)
    asked = trips.count(server, compared.working, folder, "statements") if port == server.port else {}
    return {**conclude(field, compared), "asked": asked}


def _trip(url: str) -> float:
    with psycopg.connect(url, autocommit=True) as connection:
        took = []
        for _ in range(10):
            begin = time.perf_counter()
            connection.execute("SELECT 1")
            took.append(time.perf_counter() - begin)
    return sorted(took)[len(took) // 2]
