"""
Which process this is, and whether another one lives: the one place that looks at `/proc`.

A verdict of "dead" lets somebody else act, so it must be proved: the other process was of this machine, this boot and
these namespaces; its id is nobody's any more, or belongs to a process that began at another time, or to a zombie; and
`/proc` shows the processes of our own namespace, all of them. Whatever cannot be read, or is not Linux, proves nothing.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from onceward._core.holders import Process, encode_process, identity_digest

PROC = Path("/proc")
MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_OVER = ("Z", "X", "x")
_UNSURE = (OSError, ValueError, IndexError)
"""What reading `/proc` raises where there is none, or one that is not as Linux has it."""

_found_out: list[tuple[Process, bytes]] = []
"""This process, once it is known: nothing or one."""

_forks = 0
"""How many forks lie between this process and the one that imported this module."""


def _after_fork() -> None:
    global _forks  # noqa: PLW0603 - it is the process's own
    _forks += 1
    _found_out.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def fork_count() -> int:
    """Tells a child from its parents, as the process id does, without asking the system."""
    return _forks


def current_process() -> bytes:
    """This process, as a claim names its holder."""
    return _found_out[0][1] if _found_out else _this()[1]


def _this() -> tuple[Process, bytes]:
    for known in _found_out:
        return known
    process = _look()
    _found_out[:] = [(process, encode_process(process))]
    return _found_out[0]


def lives(process: Process) -> bool | None:
    """Whether that process lives: True; False (it is proved dead); None (nobody can tell from here)."""
    here = _this()[0]
    if process.place is None or process.place != here.place:
        return None
    if process.pid == here.pid:
        return process.began == here.began
    try:
        state, threads, began = _stat(str(process.pid))
        if began == process.began and not (state in _OVER and threads <= 1):
            return True
    except (FileNotFoundError, ProcessLookupError):
        if not _is_nobody(process.pid):
            return None
    except _UNSURE:
        return None
    return False if _shows_everybody() else None


def cpu_seconds(pid: int) -> float | None:
    """Processor seconds that a process has used, also one that is over and not yet waited for; None if unknown."""
    with suppress(*_UNSURE):
        words = _stat_words(str(pid))
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return None


def _look() -> Process:
    host, began, began_at, space = "", 0, 0, ""
    with suppress(OSError):
        host = socket.gethostname()
    with suppress(*_UNSURE):
        # Here it is seen whether this is the /proc of our own namespace: elsewhere we have several numbers.
        [own] = _line("self/status", "NSpid:")
        if own == str(os.getpid()):
            space = f"{(PROC / 'self/ns/pid').readlink()} {_time_namespace()}"
            began = _stat("self")[2]
            began_at = int(_line("stat", "btime")[0]) + began // os.sysconf("SC_CLK_TCK")
    marks = (identity_digest("machine", _machine()), identity_digest("boot", _text(PROC / "sys/kernel/random/boot_id")))
    return Process(host, *marks, identity_digest("space", space), os.getpid(), began, began_at)


def _time_namespace() -> str:
    """Beginnings are told in the time of who reads them. Old kernels have one time for all."""
    try:
        return str((PROC / "self/ns/time").readlink())
    except FileNotFoundError:
        return "one time"


def _machine() -> str:
    found = next(filter(None, map(_text, MACHINE_IDS)), "")
    return "" if found == "uninitialized" else found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except _UNSURE:
        return ""


def _line(path: str, name: str) -> list[str]:
    """The words behind a name, on the line that begins with it."""
    with (PROC / path).open(encoding="utf-8", errors="replace") as file:
        return next((line.split()[1:] for line in file if line.startswith(name)), [])


def _stat(pid: str) -> tuple[str, int, int]:
    """State, number of threads, and the ticks since the boot at which a process began."""
    words = _stat_words(pid)
    return words[0], int(words[17]), int(words[19])


def _stat_words(pid: str) -> list[str]:
    text = (PROC / pid / "stat").read_bytes().decode(errors="replace")
    return text[text.rindex(")") + 2 :].split()  # The name before it may contain anything.


def _is_nobody(pid: int) -> bool:
    """Whether no process has that id: asked of the kernel itself, from which nothing is hidden."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _shows_everybody() -> bool:
    """Whether the /proc that we see hides no process of other users (hidepid)."""
    options: str | None = None
    with suppress(*_UNSURE), (PROC / "self/mountinfo").open(errors="replace") as file:
        for line in file:
            mount, _, kind = line.partition(" - ")
            if mount.split()[4] == "/proc":  # The last one is on top.
                words = kind.split()
                options = words[2] if words[0] == "proc" else None
    if options is None:
        return False
    hides = [word.partition("=")[2] for word in options.split(",") if word.startswith("hidepid")]
    return all(value in ("0", "off") for value in hides)
