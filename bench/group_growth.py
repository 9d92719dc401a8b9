"""Growth: a claim among a million records against one among ten thousand, and what a purge costs those who claim."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import servers
from bench.interleave import Table, Worker, WorkerFailed, interleave, progress
from bench.report import Aim, aims_as_json, as_json, measured, print_aims, print_table
from bench.settings import Settings

ROWS = {"ten thousand": 10_000, "a million": 1_000_000}
STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}
PURGES_MAX = 30
HELD = 5
"""Batches of a purge while somebody claims: half of what is due among a million."""
BUILD_SECONDS_MAX = 900.0


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """For each store: build both tables, interleave claims, then purge."""
    found = {}
    aims: list[tuple[Aim, float | None]] = []
    for store, label in STORES.items():
        print(f"\n## growth, {label}: durable claims through our store, time against a table of ten thousand records")
        tables, found[store] = _run(settings, folder / store, store)
        aim = Aim(
            "claim",
            "a million",
            1.25,
            f"a claim among a million records on {label}, of one among ten thousand",
            at_most=True,
        )
        aims.append((aim, measured(tables, "claim", "a million", as_time=True)))
    print("\nnote: a purge deletes at most 1000 records and shrinks at most 1000 more.")
    print_aims(aims)
    broken = {name: why for one in found.values() for name, why in one["broken"].items()}
    return {**found, "aims": aims_as_json(aims), "broken": broken}


def _run(settings: Settings, folder: Path, store: str) -> tuple[list[Table], dict[str, Any]]:
    broken: dict[str, str] = {}
    workers: list[Worker] = []
    with ExitStack() as stack:
        address = _address(stack, folder, store)
        stack.callback(_quit, workers)
        for name, rows in ROWS.items():
            progress(f"building {name} records on {STORES[store]}")
            arguments = [address(f"rows_{rows}"), str(rows)]
            try:
                place = folder / str(rows)
                workers.append(
                    Worker(name, sys.executable, "bench.growth:Growth", place, *arguments, patience=BUILD_SECONDS_MAX)
                )
            except WorkerFailed as error:
                broken[f"ours: {store}: {name}"] = str(error)
        tables = interleave(
            workers,
            {"claim": ("ten thousand", list(ROWS))},
            rounds=settings.rounds,
            seconds=settings.seconds,
            seed=settings.seed,
            broken=broken,
        )
        held = _asked(workers[-1:], f"count held {HELD}", store, broken).get("a million")
        purges = _asked(workers, f"count purge {PURGES_MAX}", store, broken)
    labels = {name: f"{name} records" for name in ROWS}
    for table in tables:
        print_table("one claim", table, labels, as_time=True, unit="us/op")
    purged = {name: _purged(name, answer) for name, answer in purges.items()}
    _print_purges(purged)
    if held is not None:
        _print_held(held)
    for name, why in broken.items():
        print(f"BROKEN: {name}: {why}")
    kept = as_json(tables, {"claim": "one claim"}, labels, as_time=True)
    return tables, {**kept, "purges": purges, "purged": purged, "held": held, "broken": broken}


def _quit(workers: list[Worker]) -> None:
    for worker in workers:
        worker.quit()


def _address(stack: ExitStack, folder: Path, store: str) -> Callable[[str], str]:
    if store == "postgres":
        return stack.enter_context(servers.postgres(folder / "server")).address
    if store == "redis":
        return stack.enter_context(servers.redis(folder / "server", "everysec")).address
    return lambda name: "sqlite:///{folder}/growth.db"


def _asked(workers: list[Worker], command: str, store: str, broken: dict[str, str]) -> dict[str, dict[str, Any]]:
    answers = {}
    for worker in workers:
        progress(f"{command}: {worker.name}")
        try:
            answers[worker.name] = worker.ask(command)
        except (WorkerFailed, OSError) as error:
            broken[f"ours: {store}: {worker.name}"] = str(error)
    return answers


def _purged(name: str, answer: dict[str, Any]) -> dict[str, float]:
    """What a purge of a table took, in milliseconds, and what a record takes up."""
    times = [1e3 * took for took in answer["purges"]]
    return {
        "bytes": answer["bytes"] / ROWS[name],
        "median_ms": statistics.median(times),
        "greatest_ms": max(times),
        "idle_ms": 1e3 * answer["idle"],
    }


def _print_purges(purged: dict[str, dict[str, float]]) -> None:
    print("\n| records | bytes per record | purge of 1000, ms (median) | ms (greatest) | nothing due, ms |")
    print("|---|---|---|---|---|")
    for name, one in purged.items():
        shown = f"{one['median_ms']:.1f} | {one['greatest_ms']:.1f} | {one['idle_ms']:.2f}"
        print(f"| {name} | {one['bytes']:.0f} | {shown} |")


def _print_held(held: dict[str, Any]) -> None:
    print("\n| claims among a million records, ms | how many | median | 99 of 100 | longest |\n|---|---|---|---|---|")
    for name, label in (("quiet", "while nobody purges"), ("during", "while somebody purges")):
        one = held[name]
        times = " | ".join(f"{1e3 * one[which]:.2f}" for which in ("median", "p99", "longest"))
        print(f"| {label} | {one['claims']:.0f} | {times} |")
    batch, extra = 1e3 * max(held["batches"]), 1e3 * (held["during"]["longest"] - held["quiet"]["longest"])
    verdict = "no longer than a batch" if extra <= batch else "LONGER THAN A BATCH"
    print(f"the longest batch took {batch:.1f} ms, and the longest claim {max(0.0, extra):.1f} ms more: {verdict}")
