"""
What a run starts ends with it, also when the run is killed.

    folder = ending.folder("onceward-pg-")     a new folder; processes that work in it, and it, go when we go
    ending.watch(folder)                       a folder of somebody else's: only the processes go

A process that is killed tidies up nothing. So another one waits for our end, in a session of its own (no Ctrl-C reaches
it), and then kills what was left behind: every process whose working directory is in one of the folders (servers change
into theirs, and so do their children, whoever is their parent by then), and every process that was started with our
name in its environment (`ONCEWARD_RUN`). Then it removes the folders. Run as a program, this file is that process.
"""

from __future__ import annotations

import functools
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

NAMES = "ONCEWARD_RUN"
"""The runs inside of which a process was started, from the outermost to the innermost."""
ROUNDS = 200
PAUSE_SECONDS = 0.02


def folder(prefix: str) -> Path:
    """A new temporary folder that goes when this process ends, with what works in it."""
    made = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    _tell("remove", made)
    return made


def watch(place: Path) -> None:
    """Processes that work in this folder end when this process ends."""
    _tell("watch", place.resolve())


def begin() -> None:
    """From now on, whatever this process starts ends with it."""
    _waiter(os.getpid())


def _tell(what: str, place: Path) -> None:
    os.write(_waiter(os.getpid()), f"{what} {place}\n".encode())


@functools.cache
def _waiter(ours: int) -> int:
    """The pipe to the process that waits for our end; a child that was forked gets one of its own."""
    name = f"{ours}-{os.urandom(6).hex()}"
    reads, writes = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-S", "-E", __file__, str(ours), name],
        stdin=reads,
        start_new_session=True,
        # Without the names of runs: it must outlive them.
        env={key: value for key, value in os.environ.items() if key != NAMES},
    )
    os.environ[NAMES] = f"{os.environ.get(NAMES, '')} {name}".strip()
    process.returncode = 0  # Nobody waits for it here: it ends after us.
    os.close(reads)
    return writes


def main(parent: int, name: str) -> None:
    """Read what to watch; when the parent is gone, end what it left."""
    places: dict[Path, bool] = {}
    heard = b""
    for piece in _until_it_ends(parent):
        *lines, heard = (heard + piece).split(b"\n")
        for what, _, named in (line.decode().partition(" ") for line in lines):
            # A server watches its folder, also one that was made to be removed.
            places[Path(named)] = places.get(Path(named), False) or what == "remove"
    _end_all(name, list(places))
    for place, is_ours in places.items():
        if is_ours:
            shutil.rmtree(place, ignore_errors=True)


def _until_it_ends(parent: int) -> Iterator[bytes]:
    """
    What the parent writes, until it is gone.

    Its pipe alone does not tell: a process that it forked may hold the other end, and live on.
    """
    try:
        alive = [os.pidfd_open(parent)]
    except (AttributeError, OSError):  # Gone already, or a system that has no such thing.
        alive = []
    sources = [0, *alive]
    while sources:
        ready, _, _ = select.select(sources, [], [])
        if 0 not in ready:
            return
        if piece := os.read(0, 65_536):
            yield piece
        else:
            sources.remove(0)


def _end_all(name: str, places: list[Path]) -> None:
    """Kill until nobody is left: one that was just being started may come late."""
    quiet = 0
    for _ in range(ROUNDS):
        left = [pid for pid in _processes() if _is_left(pid, name, places)]
        for pid in left:
            _kill(pid)
        quiet = 0 if left else quiet + 1
        if quiet == 3:
            return
        time.sleep(PAUSE_SECONDS)


def _processes() -> list[int]:
    names = (place.name for place in Path("/proc").glob("[0-9]*"))
    return [int(name) for name in names if int(name) != os.getpid()]


def _is_left(pid: int, name: str, places: list[Path]) -> bool:
    try:
        if name in Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace"):
            return True
        where = Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return False
    return any(where.is_relative_to(place) for place in places)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
