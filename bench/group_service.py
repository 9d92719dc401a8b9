"""The service: SQL over HTTP with keys, against a bare application on the same server with one durable write each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.comparing import OwnField, compare_own
from bench.settings import Settings

SECONDS = 0.5
"""Of a slice: a crowd of connections wants a while to be in step."""
LABELS = {
    "bare": "bare application, one durable write a request",
    "hand": "by hand: a token, a process of its own, key and row in one commit",
    "ours": "onceward serve",
    "ours-unnoted": "onceward serve --journal off",
    "empty": "bare application without a database, for orientation",
}
CASES = {
    "write": "keyed writes (bare application: a durable write without a key)",
    "replay": "replays of one of 200 keys (bare application: a durable write)",
    "plain": "writes without a key",
    "read": "reads without a key, one row",
}
KEYED = ("write", "replay")


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print."""
    print(
        f"\n## service: `onceward serve` as it comes, 32 connections, SQLite (synchronous FULL); slices of {SECONDS} s"
    )
    cases = {case: ("bare", [name for name in LABELS if name != "empty" or case in KEYED]) for case in CASES}
    field = OwnField("bench.service_slices:ServiceSlices", LABELS, CASES, cases, ())
    return compare_own(field, settings, folder, SECONDS)
