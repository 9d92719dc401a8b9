"""
Runs a worker until it is killed, and another one until the queue has let go of the message; counts what happened.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from onceward import Gate
from onceward.gate import DeadLetter

HERE = Path(__file__).resolve().parent
PATIENCE = 180
"""Seconds; a limit for what hangs."""


class Case(NamedTuple):
    """One way to kill a worker."""

    point: str
    gated: bool = True
    kind: str = "blind"
    variant: str = ""

    def __str__(self) -> str:
        return "-".join(filter(None, (self.point, self.kind if self.gated else "off", self.variant)))


CASES = [
    Case("before"),
    Case("effect"),
    Case("answer"),
    Case("effect", kind="keyed"),
    Case("answer", kind="keyed"),
    Case("effect", gated=False),
    Case("answer", gated=False),
]


def expected(case: Case) -> dict[str, int]:
    """How often somebody is charged, as the provider sees it (one key, one charge), and how many dead letters."""
    if not case.gated:
        return {"charges": 2, "letters": 0}
    if case.kind == "blind":
        return {"charges": 0 if case.point == "before" else 1, "letters": 0 if case.point == "answer" else 1}
    return {"charges": 1, "letters": 0}


class Report(NamedTuple):
    """What came of it."""

    effects: list[tuple[str, str | None]]
    """Each with the key that was sent along."""
    letters: tuple[DeadLetter, ...]
    states: list[str]
    """Of the records."""

    def counted(self) -> dict[str, int]:
        """As the provider sees it: what comes again under its key is the same charge."""
        keys = {key for _, key in self.effects if key is not None}
        unkeyed = sum(1 for _, key in self.effects if key is None)
        return {"charges": len(keys) + unkeyed, "letters": len(self.letters)}


def kill(
    worker: str,
    case: Case,
    folder: Path,
    broker: str,
    *,
    over: Callable[[Path], bool],
    killed: Callable[[], None] | None = None,
) -> Report:
    """
    Send a message; let a worker be killed over it; let another one (or the same one's next child) see it to its end.

    `over` says that the queue has let go of it; `killed` is told when the first worker is gone.
    """
    store = f"sqlite:///{folder}/records.db"
    environment = {
        **os.environ,
        "QUEUE_FOLDER": str(folder),
        "QUEUE_STORE": store,
        "QUEUE_BROKER": broker,
        "QUEUE_POINT": case.point,
        "QUEUE_KIND": case.kind,
        "QUEUE_GATE": "on" if case.gated else "off",
        "QUEUE_VARIANT": case.variant,
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE / "workers"), *sys.path]),
    }
    command = [sys.executable, str(HERE / "workers" / f"{worker}.py")]
    subprocess.run([*command, "send"], env=environment, cwd=folder, timeout=PATIENCE, check=True)
    give_up = time.monotonic() + PATIENCE
    with (folder / "log").open("wb") as log:
        workers: list[subprocess.Popen[bytes]] = []
        try:
            while not (folder / "killed").exists() or not over(folder):
                if not workers or workers[-1].poll() is not None:
                    _check_end(workers, folder)
                    if workers and killed is not None:
                        killed()
                    streams: Any = {"stdout": log, "stderr": log, "start_new_session": True}
                    workers.append(subprocess.Popen([*command, "work"], env=environment, cwd=folder, **streams))
                if time.monotonic() > give_up:
                    raise AssertionError(f"{worker} {case} did not end:\n{_tail(folder)}")
                time.sleep(0.05)
        finally:
            for one in workers:
                _end(one)
    return _report(folder, store, case)


def _check_end(workers: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """Only a kill may end a worker, and only once."""
    if workers and (workers[-1].returncode != -signal.SIGKILL or len(workers) > 1):
        raise AssertionError(f"a worker ended by itself ({workers[-1].returncode}):\n{_tail(folder)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # It was killed over the message.
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)


def _tail(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")[-6000:]


def _report(folder: Path, store: str, case: Case) -> Report:
    effects: list[Any] = [tuple(json.loads(line)) for line in _lines(folder / "effects.jsonl")]
    if not case.gated:
        return Report(effects, (), [])
    with Gate(store, scope="test:queues") as gate:
        return Report(effects, gate.dead_letters().list(), [one.state for one in gate.records.list()])


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def ended(folder: Path) -> bool:
    """Whether the worker has noted that the queue let go of the message."""
    return (folder / "ended").exists()
