"""Retry: what a policy and a breaker add to a call, as multiples of the bare call, beside peers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench import peers
from bench.interleave import Worker, WorkerFailed, interleave
from bench.report import Aim, as_json, measured, print_aims, print_table
from bench.retrying import ABREAKER, ASYNC, BREAKER, CASES, FAILURE, SYNC
from bench.settings import Settings

LABELS = {
    "plain": "the bare call (failure: a loop by hand)",
    "ours": "onceward, policy or breaker alone",
    "ours-full": "onceward, policy with key, budget and breaker",
    "tenacity": "tenacity",
    "stamina": "stamina",
    "backoff": "backoff",
    "redress": "redress",
    "pybreaker": "pybreaker",
    "circuitbreaker": "circuitbreaker",
    "interlock-cb": "interlock-cb",
}
TITLES = {
    SYNC: "a call that succeeds, blocking (the bare call = 1)",
    ASYNC: "a call that succeeds, awaiting (the bare await = 1)",
    FAILURE: "one failure, then success, no sleep (a loop by hand = 1)",
    BREAKER: "a breaker, blocking (the bare call = 1)",
    ABREAKER: "a breaker, awaiting (the bare await = 1)",
}
SECONDS = 0.1
AIMS = [
    Aim(SYNC, "ours-full", 77, "a whole policy around a blocking call that succeeds, of the bare call", at_most=True),
    Aim(ASYNC, "ours-full", 34, "a whole policy around an awaited call that succeeds, of the bare await", at_most=True),
    Aim(FAILURE, "ours", 12.5, "one failure and one success, of a loop by hand", at_most=True),
]


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure and print."""
    print("\n## retry: time of a call under a policy, against the bare call")
    wanted = [name for name in LABELS if settings.peers or name not in peers.RETRY]
    broken: dict[str, str] = peers.prepare(peers.RETRY) if settings.peers else {}
    workers = []
    for name in wanted:
        if name in broken:
            continue
        python = str(peers.PYTHON) if name in peers.RETRY else sys.executable
        try:
            workers.append(Worker(name, python, "bench.retrying:Retrying", folder / name, name))
        except WorkerFailed as error:
            broken[name] = str(error)
    cases = {case: ("plain", [name for name in wanted if case in CASES[name]]) for case in TITLES}
    try:
        tables = interleave(workers, cases, rounds=settings.rounds, seconds=SECONDS, seed=settings.seed, broken=broken)
    finally:
        for worker in workers:
            worker.quit()
    for table in tables:
        print_table(TITLES[table.case], table, LABELS, as_time=True, unit="us/op")
    print()
    for name, why in broken.items():
        print(f"BROKEN OR MISSING, so not compared: {name}: {why}")
    aims = [(aim, measured(tables, aim.case, aim.name, as_time=True)) for aim in AIMS]
    print_aims(aims)
    return {**as_json(tables, TITLES, LABELS, aims, as_time=True), "broken": broken}
