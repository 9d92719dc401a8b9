"""Agents: CPU time of a gated tool call beyond the gate's own, in memory, where nothing else is seen."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from bench.interleave import Table, Worker, WorkerFailed, interleave
from bench.report import Aim, as_json, print_aims, print_table
from bench.settings import Settings

LABELS = {
    "gate": "gate.call",
    "agents": "AgentGate.call",
    "langchain": "LangChain's middleware, with its messages made",
}
CASES = {
    "fresh": "a fresh call",
    "replay": "a replay",
    "afresh": "a fresh call, awaited",
    "areplay": "a replay, awaited",
}
MICROSECONDS_MAX = 100
"""Beyond the gate's own call: the aim."""


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print."""
    print("\n## agents: CPU time of a tool call against the gate's own, on the memory store")
    broken: dict[str, str] = {}
    workers = []
    for name in LABELS:
        try:
            workers.append(Worker(name, sys.executable, "bench.agents:Agents", folder / name, name))
        except WorkerFailed as error:
            broken[f"ours {name}"] = str(error)
    try:
        tables = interleave(
            workers,
            {case: ("gate", [worker.name for worker in workers]) for case in CASES},
            rounds=settings.rounds,
            seconds=settings.seconds,
            seed=settings.seed,
            broken=broken,
        )
    finally:
        for worker in workers:
            worker.quit()
    for table in tables:
        print_table(CASES[table.case], table, LABELS, as_time=True, unit="us/op")
    print()
    for name, why in broken.items():
        print(f"BROKEN OR MISSING, so not compared: {name}: {why}")
    aims = [_aim(table, name) for table in tables for name in LABELS if name != "gate" and table.complete(name)]
    print_aims(aims)
    return {**as_json(tables, CASES, LABELS, aims, as_time=True), "broken": broken}


def _aim(table: Table, name: str) -> tuple[Aim, float]:
    """How many microseconds of CPU a call takes beyond the gate's, in the median of the rounds."""
    pairs = zip(table.slices[name], table.slices["gate"], strict=True)
    beyond = statistics.median((one.cpu / one.operations - gate.cpu / gate.operations) * 1e6 for one, gate in pairs)
    what = f"{LABELS[name]}, {CASES[table.case]}: microseconds of CPU beyond the gate's own"
    return Aim(table.case, name, MICROSECONDS_MAX, what, at_most=True), beyond
