"""
`Nursery`: child processes for proofs, which are killed, stopped and woken. See `nursery_process` for the other side.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

COMMAND = (sys.executable, "-m", "onceward.drill.nursery_process")
PATIENCE_SECONDS = 180.0
"""For a nursery that says nothing at all, beyond what its longest task may take."""


class DrillBroken(Exception):
    """The drill itself could not go on; nothing is known about what it was to prove."""


class ChildEnd(NamedTuple):
    """How a child ended."""

    code: int
    """Its exit code; minus the signal's number for one that was killed."""
    report: dict[str, Any] | None
    """What it reported; None if it was killed before that."""
    late: bool
    """It took longer than it may, and was killed for that."""
    output: str
    """The beginning of what it printed."""
    printed: int
    """Bytes that it printed."""

    @property
    def was_killed(self) -> bool:
        """Whether it died by SIGKILL, as it was meant to."""
        return self.code == -signal.SIGKILL and not self.late


class NurseryKeeper:
    """One nursery for all proofs, started when the first needs it, and anew after one that went wrong."""

    def __init__(self, scheme: str = "") -> None:
        self._scheme = scheme
        self._nursery: Nursery | None = None

    def get(self) -> Nursery:
        """The nursery."""
        if self._nursery is None:
            self._nursery = Nursery(self._scheme)
        return self._nursery

    def close(self) -> None:
        """End it, with all that it started."""
        nursery, self._nursery = self._nursery, None
        if nursery is not None:
            nursery.close()


class Nursery:
    """The warm process, from outside. Everything that it started is gone once it is closed."""

    def __init__(self, scheme: str = "") -> None:
        # Its session is its own: Ctrl-C is for the drill, which ends this one in order.
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [*COMMAND, scheme],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(one or str(Path.cwd()) for one in sys.path)},
            start_new_session=True,
        )
        self._heard: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.pids: list[int] = []
        """Of the tasks that were started last."""
        self.orphans = 0
        """Processes that outlived the task that had started them, and were killed."""

    def run(self, tasks: Sequence[dict[str, Any]]) -> list[ChildEnd]:
        """Run tasks at the same time, each in a process of its own; how they ended."""
        self.start(tasks)
        return self.finish()

    def start(self, tasks: Sequence[dict[str, Any]]) -> None:
        """Begin with tasks."""
        pipe = self._process.stdin
        if pipe is None:
            raise DrillBroken("the nursery has no input")
        try:
            pipe.write(json.dumps(list(tasks)).encode() + b"\n")
            pipe.flush()
        except OSError:
            raise DrillBroken(
                "the process that starts the drill's child processes has ended; run the drill again"
            ) from None
        self._patience = PATIENCE_SECONDS + max((float(task.get("limit", 0)) for task in tasks), default=0.0)
        self._ends: dict[int, ChildEnd] = {}
        self.pids = [self._hear("began")["pid"] for _ in tasks]

    def wait_for_stop(self) -> None:
        """Wait until a child has stopped itself."""
        self._hear("stopped")

    def wake(self) -> None:
        """Let stopped children go on."""
        for pid in self.pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)

    def finish(self) -> list[ChildEnd]:
        """Wait for all children; how they ended, in the order of their tasks."""
        self.orphans = self._hear("over")["orphans"]
        return [self._ends[number] for number in sorted(self._ends)]

    def close(self) -> None:
        """End it, with all that it started."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _hear(self, what: str) -> dict[str, Any]:
        """The next message of that kind; children that end meanwhile are noted."""
        while True:
            try:
                said = self._heard.get(timeout=self._patience)
            except queue.Empty:
                raise DrillBroken(f"no message from the drill's child processes for {self._patience:.0f} s") from None
            if what in said:
                return said
            if "gone" in said:
                raise DrillBroken("the process that starts the drill's child processes has ended; run the drill again")
            if "ended" in said:
                number = said.pop("ended")
                self._ends[number] = ChildEnd(**said)

    def _read(self) -> None:
        stream = self._process.stdout
        if stream is not None:
            for line in stream:
                self._heard.put(json.loads(line))
        self._heard.put({"gone": True})
