"""
The method: a process per adapter, short slices, shuffled order, ratios within a round.

A shared machine and its disk drift by the second, so two numbers taken a minute apart compare nothing. In each round
every adapter gets one slice, in an order shuffled anew; its ratio is taken against the reference's slice of the same
round; of the rounds' ratios the median is shown, with the least and the greatest. While one process has its slice the
others are stopped (SIGSTOP), so that a peer's background threads cost the others nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ANSWER_SECONDS_MAX = 120.0


class WorkerFailed(Exception):
    """A worker is broken, or gave no answer."""


class Worker:
    """A running worker."""

    def __init__(
        self,
        name: str,
        python: str,
        place: str,
        folder: Path,
        *arguments: str,
        tracer: Sequence[str] = (),
        patience: float = ANSWER_SECONDS_MAX,
    ) -> None:
        self.name = name
        self._patience = patience
        folder.mkdir(0o700, parents=True, exist_ok=True)  # A service takes no folder that others can look into.
        self._log = folder / "stderr.txt"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*tracer, python, "-m", "bench.worker", place, str(folder), *arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._traced = bool(tracer)
        try:
            self._answer()
        except WorkerFailed:
            self.kill()
            raise
        self._signal(signal.SIGSTOP)

    def ask(self, command: str) -> dict[str, Any]:
        """Send a command and wait for its answer; the process runs only meanwhile."""
        answer = self._asked(command)
        self._signal(signal.SIGSTOP)
        return answer

    def quit(self) -> None:
        """End it in good order, or else at once."""
        try:
            self._asked("quit")
            self._process.wait(10)
        except (WorkerFailed, OSError, subprocess.TimeoutExpired):
            self.kill()
        self._close_pipes()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _asked(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        print(command, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], self._patience)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            why = "no answer" if not ready else "it ended"
            raise WorkerFailed(f"{why}; {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "broken" in answer:
            raise WorkerFailed(answer["broken"])
        return answer

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _signal(self, number: int) -> None:
        if not self._traced and self._process.poll() is None:
            os.kill(self._process.pid, number)


class Slice(NamedTuple):
    """What one adapter did in one slice."""

    operations: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds


@dataclass
class Table:
    """One case: slices by adapter, one per round; and what they are measured against."""

    case: str
    reference: str
    slices: dict[str, list[Slice]] = field(default_factory=dict)

    def ratios(self, name: str) -> list[float]:
        """Against the reference's slice of the same round; greater is faster."""
        return [one.rate / ref.rate for one, ref in zip(self.slices[name], self.slices[self.reference], strict=True)]

    def cpu_ratios(self, name: str) -> list[float]:
        """The same by CPU time: says less about waiting, and is disturbed less by a busy machine."""
        pairs = zip(self.slices[name], self.slices[self.reference], strict=True)
        return [ref.cpu / ref.operations / (one.cpu / one.operations) for one, ref in pairs]

    def ratio(self, name: str) -> float | None:
        """The median; None if the adapter or its reference has no complete set of slices."""
        return statistics.median(self.ratios(name)) if self.complete(name) else None

    def complete(self, name: str) -> bool:
        """Whether there is a slice for every round, here and of the reference."""
        mine, theirs = self.slices.get(name, []), self.slices.get(self.reference, [])
        return bool(mine) and len(mine) == len(theirs)


def interleave(
    workers: list[Worker],
    cases: Mapping[str, tuple[str, Iterable[str]]],
    *,
    rounds: int,
    seconds: float,
    seed: int,
    broken: dict[str, str],
) -> list[Table]:
    """Run every case (its reference, its adapters) in every round; what breaks on the way is noted and left out."""
    chance = random.Random(seed)
    tables = {case: Table(case, reference) for case, (reference, _) in cases.items()}
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for case, (_, names) in cases.items():
            wanted = set(names)
            order = [worker for worker in workers if worker.name in wanted and worker.name not in broken]
            chance.shuffle(order)
            for worker in order:
                try:
                    answer = worker.ask(f"slice {case} {seconds}")
                except (WorkerFailed, OSError) as error:
                    broken[worker.name] = f"{case}: {error}"
                    continue
                done = Slice(answer["operations"], answer["seconds"], answer["cpu"])
                tables[case].slices.setdefault(worker.name, []).append(done)
    return list(tables.values())


def progress(text: str) -> None:
    """Say how far it is, on stderr."""
    print(f"bench: {text}", file=sys.stderr, flush=True)
