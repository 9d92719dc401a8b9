"""Agents: CPU time of a gated tool call beyond the gate's own, in memory, where nothing else is seen."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from bench.interleave import Table, Worker, WorkerFailed, interleave
from bench.report import as_json, print_table
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
    for table in tables:
        for name in LABELS:
            if name != "gate" and table.complete(name):
                _print_aim(table, name)
    return {"tables": as_json(tables), "broken": broken}


def _print_aim(table: Table, name: str) -> None:
    """How many microseconds of CPU a call takes beyond the gate's, in the median of the rounds."""
    pairs = zip(table.slices[name], table.slices["gate"], strict=True)
    beyond = statistics.median((one.cpu / one.operations - gate.cpu / gate.operations) * 1e6 for one, gate in pairs)
    verdict = "met   " if beyond <= MICROSECONDS_MAX else "MISSED"
    print(f"aim  {verdict}  {LABELS[name]}, {CASES[table.case]}: at most {MICROSECONDS_MAX} us more, "
          f"measured {beyond:.0f}")  # fmt: skip
