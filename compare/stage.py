"""Where a question is asked: starts the asked processes, waits for what they do, kills them, counts effects."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.peers import PYTHON

from compare.peers import ROOT, Peer
from compare.place import Place

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.02
LOG_MAX = 400

Outcome = dict[str, Any]


class NoAnswer(Exception):
    """The asked process broke, or nothing came of it in time."""


class Asked:
    """One process of a peer."""

    def __init__(self, stage: Stage, spec: dict[str, Any]) -> None:
        self._name = spec["work"]["name"]
        self._stage = stage
        self._log = stage.folder / f"stderr-{self._name}.txt"
        command = [stage.python, "-m", "compare.asked", json.dumps(spec)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
                env=stage.environment(),
            )  # fmt: skip

    def held(self) -> None:
        """Wait until its effect has happened and it goes no further."""
        until = time.monotonic() + PATIENCE_SECONDS
        marker = self._stage.folder / f"held-{self._name}"
        while not marker.exists():
            if self._process.poll() is not None or time.monotonic() > until:
                raise NoAnswer(f"{self._name} never came to its effect: {self.log()}")
            time.sleep(PAUSE_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Stop it, let it go on, or kill it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL: it can do nothing about it."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def answers(self) -> list[Outcome]:
        """What its callers got."""
        try:
            out, _ = self._process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            out, _ = self._process.communicate()
            return [*_read(out), {"raised": "nothing came", "message": f"in {PATIENCE_SECONDS:.0f} s"}]
        if self._process.returncode != 0:
            raise NoAnswer(f"{self._name} ended with {self._process.returncode}: {self.log()}")
        return _read(out)

    def log(self) -> str:
        """The last lines that it wrote to stderr."""
        return " | ".join(self._log.read_text(errors="replace").strip().splitlines()[-3:])[-LOG_MAX:]


def _read(printed: str) -> list[Outcome]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


class Stage:
    """One question, asked of one peer, in a folder of its own."""

    def __init__(self, peer: Peer, folder: Path, url: str, *, server: Any = None) -> None:
        self.peer, self.folder, self.url, self.server = peer, folder, url, server
        self.python = sys.executable if peer.ours else str(PYTHON)
        self._running: list[Asked] = []
        folder.mkdir(parents=True, mode=0o700)

    def ask(
        self,
        *calls: tuple[str | None, dict[str, Any]],
        then: str = "return",
        name: str = "first",
        how: str = "plainly",
        lease: float | None = None,
        repeatable: bool = False,
        compared: bool = False,
        together: int = 0,
        seconds: float = 0.0,
        times: int = 0,
        code: Path | None = None,
    ) -> Asked:
        """Start a process of the peer that makes these calls."""
        place = Place(self.folder, self.url, lease, repeatable, compared)
        spec = {
            "adapter": self.peer.adapter, "code": str(code or ""), "place": place.plain(),
            "work": {"then": then, "name": name},
            "calls": calls, "how": how, "together": together, "seconds": seconds, "times": times,
        }  # fmt: skip
        asked = Asked(self, spec)
        self._running.append(asked)
        return asked

    def answers(self, *calls: tuple[str | None, dict[str, Any]], **options: Any) -> list[Outcome]:
        """Start one, and wait for what its callers get."""
        return self.ask(*calls, **options).answers()

    def inside(self, question: str) -> dict[str, Any]:
        """Run the inner half of a question in the peer's interpreter; what it saw."""
        module = question.replace("-", "_")
        done = self.run("-m", "compare.inside", module, self.peer.adapter, str(self.folder), self.url)
        if done.returncode != 0:
            raise NoAnswer(" | ".join(done.stderr.strip().splitlines()[-3:])[-LOG_MAX:])
        seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return seen

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run something with the interpreter that has the peer."""
        return subprocess.run(
            [self.python, *arguments], cwd=ROOT, env=self.environment(), capture_output=True, text=True, check=False,
            timeout=2 * PATIENCE_SECONDS,
        )  # fmt: skip

    def environment(self) -> dict[str, str]:
        """What its processes are started with."""
        path = os.pathsep.join((str(ROOT), str(ROOT / "src"), self.peer.environment.get("PYTHONPATH", "")))
        return {**os.environ, "PYTHONWARNINGS": "ignore", **self.peer.environment, "PYTHONPATH": path}

    def go(self) -> None:
        """Let whoever holds go on."""
        (self.folder / "go").touch()

    def effects(self) -> Counter[str]:
        """How often each key had its effect, counted in the file."""
        path = self.folder / "effects.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(line.split()[0] for line in lines)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for asked in self._running:
            if asked._process.poll() is None:
                asked.signal(signal.SIGCONT)
                asked.kill()
