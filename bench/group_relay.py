"""Relay: messages of an outbox delivered to a local receiver, against a bare HTTP client in a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import servers
from bench.comparing import OwnField, compare_own
from bench.settings import Settings

SECONDS = 0.5
LABELS = {
    "bare": "http.client in eight threads, a connection each time, unsigned, nothing written down",
    "bare-kept": "http.client in eight threads, connections kept, unsigned, nothing written down",
    "endpoint": "HttpEndpoint in eight threads: signed, addresses checked, one deadline",
    "sqlite": "the relay, SQLite (synchronous FULL)",
    "postgres": "the relay, PostgreSQL",
}
CASE = "deliver"
TITLE = "messages delivered to a receiver on this machine (the bare loop = 1)"


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print."""
    print(f"\n## relay: deliveries to a local receiver, eight at a time; slices of {SECONDS} s")
    field = OwnField("bench.relay_slices:RelaySlices", LABELS, {CASE: TITLE}, {CASE: ("bare", list(LABELS))}, ())
    with servers.postgres(folder / "server") as server:
        where = {"postgres": server.address("relay")}
        return compare_own(field, settings, folder, SECONDS, where.get)
