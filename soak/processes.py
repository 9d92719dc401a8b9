"""
The processes that are killed: started, killed with `kill -9`, started again on the same folder and the same port.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
STOP_SECONDS = 60


class StartFailed(Exception):
    """A process did not come up."""


class Memory(NamedTuple):
    """Resident memory in megabytes."""

    parent: float
    workers: float


class Managed:
    """
    One process of ours. It says on stdout, in one line of JSON, that it is ready: `{"address": ...}`.

    The first start takes any free port, the others the same one: clients do not notice but by errors.
    """

    def __init__(self, name: str, command: Callable[[], Sequence[str]], folder: Path) -> None:
        self.name = name
        self.folder = folder
        self._command = command
        """Asked for at every start: it may say where another process is."""
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self.token = ""
        self.kills = 0

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Its process; 0 if there is none."""
        return 0 if self._process is None else self._process.pid

    @property
    def log(self) -> Path:
        """What it has said, over all its lives."""
        return self.folder / f"{self.name}.log"

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        command = [sys.executable, *self._command(), "--port", str(self._port)]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        self._process = process
        told = b""
        if process.stdout is not None:
            while b"}" not in told and (piece := process.stdout.read1(4096)):  # type: ignore[attr-defined]
                told += piece
        if b"}" not in told:
            raise StartFailed(f"{self.name} did not start: {self.log.read_text(errors='replace')[-2000:]}")
        document = json.loads(told)
        self._port = urlsplit(document["address"]).port or 0
        self.token = self.token or document.get("token") or ""

    def kill(self) -> None:
        """`kill -9`, in the middle of whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._gone(self._process)
            self.kills += 1

    def stop(self) -> int | None:
        """Ask it to end; its exit code."""
        if self._process is None:
            return None
        process = self._process
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        self._gone(process)
        return process.returncode

    def workers(self) -> list[int]:
        """The processes that it has started itself."""
        if self._process is None:
            return []
        found: list[int] = []
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{self._process.pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    found += map(int, (task / "children").read_text().split())
        return sorted(found)

    def memory(self) -> Memory | None:
        """What it and its workers hold now; None if it is not there."""
        if self._process is None:
            return None
        parent = _resident(self._process.pid)
        return Memory(parent, sum(map(_resident, self.workers()))) if parent else None

    def _gone(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._process = None


class Victim(NamedTuple):
    """What may be killed: a process, or one of the workers that it has started."""

    process: Managed
    worker: bool = False

    @property
    def name(self) -> str:
        """For the count."""
        return f"{self.process.name}'s worker" if self.worker else self.process.name

    def kill(self, number: int) -> None:
        """Kill it. A worker is replaced by its parent; a process by us."""
        if not self.worker:
            self.process.kill()
            self.process.start()
            return
        workers = self.process.workers()
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(workers[number % len(workers)], 9)


def _resident(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0
