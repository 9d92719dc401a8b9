"""SQLite: ours against the raw limits and against peers, and how often each waits for the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import adapters, fsyncs
from bench.adapters import Known
from bench.comparing import PLACE, Field, arguments_of, compare, conclude, python_of
from bench.interleave import WorkerFailed, progress
from bench.settings import Settings

REFERENCES = {
    "fresh_seq": "raw",
    "replay_seq": "raw",
    "fresh_aseq": "raw",
    "fresh_thr": "raw",
    "replay_thr": "raw",
    "fresh_task": "raw-group",
    "replay_task": "raw-group",
}
TITLES = {
    "fresh_seq": "fresh, one blocking caller (raw two durable writes = 1)",
    "replay_seq": "replay, one blocking caller (raw SELECT, no fingerprint compared = 1)",
    "fresh_aseq": "fresh, one async caller (raw two durable writes, blocking = 1)",
    "fresh_thr": "fresh, 8 threads (raw two durable writes = 1)",
    "replay_thr": "replay, 8 threads (raw SELECT, no fingerprint compared = 1)",
    "fresh_task": "fresh, 50 tasks (raw group commit = 1)",
    "replay_task": "replay, 50 tasks (raw SELECT on the event loop, no fingerprint compared = 1)",
}


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print; everything measured, for the JSON file."""
    print("\n## sqlite: synchronous FULL, WAL, one file per adapter")
    field = Field(adapters.SQLITE, REFERENCES, TITLES, adapters.SQLITE_NOTES)
    compared = compare(field, settings, folder)
    counts = _count_syncs(compared.working, folder)
    return {**conclude(field, compared), "fsyncs": counts}


def _count_syncs(known: dict[str, Known], folder: Path) -> dict[str, dict[str, float]]:
    print("\n### fsync and fdatasync per operation\n")
    if not fsyncs.available():
        print("fsync counts: strace not installed")
        return {}
    print(f"| | {' | '.join(fsyncs.CASES)} |\n|---|{'---|' * len(fsyncs.CASES)}")
    counts: dict[str, dict[str, float]] = {}
    for name, one in known.items():
        progress(f"counting syncs of {one.label}")
        cases = {case: number for case, number in fsyncs.CASES.items() if case in one.cases}
        try:
            counts[name] = fsyncs.count(
                name, python_of(one), folder / f"{name}-traced", PLACE, arguments_of(one), cases
            )
        except (WorkerFailed, OSError) as error:
            print(f"| {one.label} | could not be counted: {error} |")
            continue
        shown = [f"{counts[name][case]:.2f}" if case in counts[name] else "-" for case in fsyncs.CASES]
        print(f"| {one.label} | {' | '.join(shown)} |")
    return counts
