"""
How often an operation waits for the disk: fsync and fdatasync, counted by strace in a process of its own.

The worker makes a system call of no consequence before and after each batch of operations; what is counted is what
stands between two such marks in strace's log, so that opening, settling and closing do not count.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from bench.interleave import Worker, WorkerFailed

CASES = {"fresh_seq": 20, "replay_seq": 20, "fresh_thr": 80, "fresh_task": 200}
"""Few operations: each is traced."""
_CALL = re.compile(r"^\d+\s+(fsync|fdatasync|getsid)\(")


def available() -> bool:
    """Whether strace is there."""
    return shutil.which("strace") is not None


def count(
    name: str, python: str, folder: Path, place: str, arguments: list[str], cases: Mapping[str, int]
) -> dict[str, float]:
    """Syncs per operation, by case; `cases` says how many operations of each."""
    log = folder / "strace.txt"
    folder.mkdir(parents=True, exist_ok=True)
    tracer = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,getsid", "-e", "signal=none", "-o", str(log)]
    worker = Worker(name, python, place, folder, *arguments, tracer=tracer)
    try:
        done = [(case, worker.ask(f"count {case} {operations}")["operations"]) for case, operations in cases.items()]
    finally:
        worker.quit()
    between = syncs_between_marks(log.read_text(errors="replace"))
    if len(between) != len(done):
        raise WorkerFailed(f"{len(between)} marked batches in strace's log, and {len(done)} were run")
    return {case: syncs / operations for (case, operations), syncs in zip(done, between, strict=True)}


def syncs_between_marks(log: str) -> list[int]:
    """The number of syncs in each marked batch of a log."""
    batches: list[int] = []
    inside = False
    for line in log.splitlines():
        call = _CALL.match(line)
        if call is None:
            continue
        if call[1] == "getsid":
            inside = not inside
            if inside:
                batches.append(0)
        elif inside:
            batches[-1] += 1
    return batches
