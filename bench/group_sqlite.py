"""SQLite: ours against the raw limits and against peers, and how often each waits for the disk."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench import adapters, fsyncs, peers
from bench.adapters import Known
from bench.interleave import Worker, WorkerFailed, interleave, progress
from bench.report import Aim, as_json, measured, print_aims, print_table
from bench.settings import Settings

PLACE = "bench.slices:Slices"
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
    "replay_seq": "replay, one blocking caller (raw SELECT = 1)",
    "fresh_aseq": "fresh, one async caller (raw two durable writes, blocking = 1)",
    "fresh_thr": "fresh, 8 threads (raw two durable writes = 1)",
    "replay_thr": "replay, 8 threads (raw SELECT = 1)",
    "fresh_task": "fresh, 50 tasks (raw group commit = 1)",
    "replay_task": "replay, 50 tasks (raw SELECT on the event loop = 1)",
}
AIMS = [
    Aim("fresh_seq", "ours", 0.95, "fresh, one blocking caller, of raw two durable writes"),
    Aim("fresh_aseq", "ours", 0.5, "fresh, one async caller, of raw two durable writes"),
    Aim("replay_seq", "ours", 0.65, "replay, one blocking caller, of a raw SELECT"),
    Aim("fresh_thr", "ours", 1.5, "fresh, 8 threads, of raw two durable writes"),
    Aim("fresh_task", "ours", 0.7, "fresh, 50 tasks, of the raw group commit"),
]


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print; everything measured, for the JSON file."""
    print("\n## sqlite: synchronous FULL, WAL, one file per adapter")
    broken = _missing_peers(settings)
    known = {name: one for name, one in adapters.SQLITE.items() if settings.peers or not one.peer}
    workers = _start({name: one for name, one in known.items() if name not in broken}, folder, broken)
    cases = {
        case: (reference, [name for name, one in known.items() if case in one.cases])
        for case, reference in REFERENCES.items()
    }
    try:
        tables = interleave(
            workers, cases, rounds=settings.rounds, seconds=settings.seconds, seed=settings.seed, broken=broken
        )
    finally:
        for worker in workers:
            worker.quit()
    for table in tables:
        print_table(TITLES[table.case], table, {name: one.label for name, one in known.items()})
    counts = _count_syncs({name: one for name, one in known.items() if name not in broken}, folder)
    print()
    for name, why in broken.items():
        print(f"BROKEN OR MISSING, so not compared: {name}: {why}")
    for note in adapters.NOTES:
        print(f"note: {note}")
    print_aims([(aim, measured(tables, aim.case, aim.name)) for aim in AIMS])
    return {"tables": as_json(tables), "fsyncs": counts, "broken": broken}


def _missing_peers(settings: Settings) -> dict[str, str]:
    if not settings.peers:
        print("\npeers: left out (--no-peers)")
        return {}
    missing = peers.prepare()
    return {
        name: missing[package]
        for name, one in adapters.SQLITE.items()
        if one.peer and (package := peers.package_of(name)) in missing
    }


def _start(known: dict[str, Known], folder: Path, broken: dict[str, str]) -> list[Worker]:
    workers = []
    for name, one in known.items():
        progress(f"starting {one.label}")
        try:
            workers.append(Worker(name, _python(one), PLACE, folder / name, *_arguments(one)))
        except WorkerFailed as error:
            broken[name] = str(error)
    return workers


def _python(one: Known) -> str:
    return str(peers.PYTHON) if one.peer else sys.executable


def _arguments(one: Known) -> list[str]:
    return [one.place, "separate" if one.separate else "shared"]


def _count_syncs(known: dict[str, Known], folder: Path) -> dict[str, dict[str, float]]:
    print("\n### fsync and fdatasync per operation\n")
    if not fsyncs.available():
        print("fsync counts: strace not installed")
        return {}
    print(f"| | {' | '.join(fsyncs.CASES)} |\n|---|{'---|' * len(fsyncs.CASES)}")
    counts: dict[str, dict[str, float]] = {}
    for name, one in known.items():
        progress(f"counting syncs of {one.label}")
        cases = [case for case in fsyncs.CASES if case in one.cases]
        try:
            counts[name] = fsyncs.count(name, _python(one), folder / f"{name}-traced", PLACE, _arguments(one), cases)
        except (WorkerFailed, OSError) as error:
            print(f"| {one.label} | could not be counted: {error} |")
            continue
        shown = [f"{counts[name][case]:.2f}" if case in counts[name] else "-" for case in fsyncs.CASES]
        print(f"| {one.label} | {' | '.join(shown)} |")
    return counts
