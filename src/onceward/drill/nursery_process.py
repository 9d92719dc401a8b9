"""
The nursery: a warm process that forks a child for each task it is sent, and says how each of them ended.

    python -m onceward.drill.nursery_process [SCHEME]       started by `nursery.py`, which speaks JSON lines with it

A line in is a list of tasks, which run at the same time; lines out are what became of them. Forking takes
milliseconds, where starting Python takes a third of a second. It has one thread, so that forking is safe. Its end is
the end of everything it started: it takes in orphans (on Linux), kills what outlives a task, and when its input ends,
because the drill was killed, it kills all of it and leaves.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from onceward.runtime.environment import REAL
from onceward.stores._store_kinds import kind_of

LIMIT_SECONDS = 120.0
"""For a task that does not say how long it may take: for hanging only."""
KEPT_BYTES = 4_000
"""Of what a child prints; the rest is read and thrown away."""
REPORT_BYTES_MAX = 60_000
"""Of what a child reports: below what a pipe holds, so that nobody waits for anybody."""
_TURN_SECONDS = 0.01
_PR_SET_CHILD_SUBREAPER = 36


class Pistol(NamedTuple):
    """Lets children that run at the same time begin together."""

    ready: int
    """Where each writes a byte when it is ready."""
    go: int
    """Ends when all are."""

    def wait(self) -> None:
        """Be ready, and wait for the others."""
        os.write(self.ready, b".")
        os.read(self.go, 1)


Work = Callable[[dict[str, Any], Pistol], dict[str, Any]]
"""What a child does: from its task to its report."""


class _Child:
    """A child, from the nursery's side."""

    def __init__(self, number: int, task: dict[str, Any], pid: int, report: int, output: int) -> None:
        self.number, self.pid = number, pid
        self.until = REAL.monotonic() + float(task.get("limit", LIMIT_SECONDS))
        self.pipes = {report: bytearray(), output: bytearray()}
        self._report, self._output = report, output
        self.printed = 0
        self.code: int | None = None
        self.late = False

    def read(self, pipe: int) -> None:
        """Take in what it wrote, up to a limit."""
        data = os.read(pipe, 1 << 16)
        if pipe == self._output:
            self.printed += len(data)
        room = (KEPT_BYTES if pipe == self._output else REPORT_BYTES_MAX) - len(self.pipes[pipe])
        self.pipes[pipe] += data[: max(room, 0)]

    def end(self) -> dict[str, Any]:
        """What became of it."""
        while any(select.select([pipe], [], [], 0)[0] and self._reads(pipe) for pipe in self.pipes):
            pass
        report = None
        with suppress(ValueError):  # Killed in its middle, it has reported nothing.
            report = json.loads(bytes(self.pipes[self._report]))
        for pipe in self.pipes:
            os.close(pipe)
        return {
            "ended": self.number,
            "code": self.code,
            "late": self.late,
            "report": report,
            "output": bytes(self.pipes[self._output]).decode(errors="replace"),
            "printed": self.printed,
        }

    def _reads(self, pipe: int) -> bool:
        before = self.printed, len(self.pipes[pipe])
        self.read(pipe)
        return before != (self.printed, len(self.pipes[pipe]))


def main(scheme: str = "") -> int:
    """Serve until the input ends. `scheme` is that of the store, whose driver is imported once for all."""
    from onceward.drill.sender import WORKS
    from onceward.drill.target.target_child import WORKS as TARGET_WORKS

    kind_of("sqlite://")
    if scheme:
        kind_of(f"{scheme}://")
    import onceward.gate  # noqa: F401 - for targets, which import it

    _take_in_orphans()
    say({"ready": True})
    for line in iter(sys.stdin.buffer.readline, b""):
        run_tasks(json.loads(line), WORKS | TARGET_WORKS)
    kill_all()
    return 0


def run_tasks(tasks: list[dict[str, Any]], works: dict[str, Work]) -> None:
    """Fork a child for each task, and see all of them to their end."""
    ready_out, ready_in = os.pipe()
    go_out, go_in = os.pipe()
    children = [_forked(number, task, works, ready_in, (go_out, go_in)) for number, task in enumerate(tasks)]
    for child in children:
        say({"began": child.number, "pid": child.pid})
    os.close(ready_in)
    os.close(go_out)
    waiting, running = len(children), {child.pid: child for child in children}
    while running:
        pipes = [pipe for child in running.values() for pipe in child.pipes]
        readable = select.select([sys.stdin, ready_out, *pipes] if waiting > 0 else [sys.stdin, *pipes], [], [], 0.0)[0]
        if sys.stdin in readable:  # Nobody speaks while tasks are running: the drill is gone.
            kill_all(child.pid for child in running.values())
            os._exit(1)
        if ready_out in readable:
            waiting -= len(os.read(ready_out, 1 << 10)) or waiting
        if go_in != -1 and (waiting <= 0 or len(running) < len(children)):  # One that is gone keeps nobody waiting.
            os.close(go_in)
            go_in = -1
        for child in running.values():
            for pipe in child.pipes.keys() & readable:
                child.read(pipe)
        if not _notice(running) and not readable:
            REAL.sleep(_TURN_SECONDS)
    os.close(ready_out)
    if go_in != -1:
        os.close(go_in)
    say({"over": True, "orphans": kill_all(child.pid for child in children)})


def _notice(running: dict[int, _Child]) -> bool:
    """Tell of children that have stopped or ended, and end those whose time is over; whether there was any."""
    told = False
    now = REAL.monotonic()
    for child in list(running.values()):
        if now > child.until and not child.late:
            child.late = True
            _kill(child.pid)
        pid, status = os.waitpid(child.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            continue
        told = True
        if os.WIFSTOPPED(status):
            say({"stopped": child.number})
            continue
        child.code = os.waitstatus_to_exitcode(status)
        del running[pid]
        say(child.end())
    return told


def _forked(number: int, task: dict[str, Any], works: dict[str, Work], ready: int, go: tuple[int, int]) -> _Child:
    report_out, report_in = os.pipe()
    output_out, output_in = os.pipe()
    pid = os.fork()
    if pid:
        os.close(report_in)
        os.close(output_in)
        with suppress(OSError):
            os.setpgid(pid, pid)
        return _Child(number, task, pid, report_out, output_out)
    code = 1
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nowhere, 0), (output_in, 1), (output_in, 2)):
            os.dup2(old, new)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # What ends the process at once has still said it.
        os.close(go[1])
        done = works[task["do"]](task, Pistol(ready, go[0]))
        send_report(report_in, done)
        code = 0
    except BaseException as error:  # Whatever it is, this process ends here.
        with suppress(OSError):
            send_report(report_in, {"broke": f"{type(error).__name__}: {error}"[:2_000]})
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def send_report(pipe: int, report: dict[str, Any]) -> None:
    """Report to the nursery. In one write: whoever is killed meanwhile has reported all or nothing."""
    os.write(pipe, json.dumps(report).encode()[:REPORT_BYTES_MAX] + b"\n")


def say(what: dict[str, Any]) -> None:
    """Tell the drill."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def kill_all(groups: Iterable[int] = ()) -> int:
    """Kill these groups of processes, and every child that is left; how many there were besides."""
    for group in groups:
        _kill(group)
    killed = 0
    while left := _children():
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                killed += 1
    return killed


def _kill(group: int) -> None:
    for kill in (os.killpg, os.kill):
        with suppress(OSError):
            kill(group, signal.SIGKILL)


def _children() -> list[int]:
    """The children of this process, orphans that it took in among them; none where the system does not say."""
    with suppress(OSError, ValueError):
        return [int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    return []


def _take_in_orphans() -> None:
    """Become the parent of what a child leaves behind, so that it can be found (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
