"""
Which process listens on a port of this machine, as far as it can be known: Linux shows the processes of the same user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_LISTENING = "0A"
"""The state, as /proc/net/tcp has it."""
_COMMAND_CHARACTERS = 80


class PortHolder(NamedTuple):
    """A process that listens."""

    pid: int
    command: str
    """The beginning of its command line, which may be empty."""

    def __str__(self) -> str:
        return f"process {self.pid}" + (f" ({self.command})" if self.command else "")


def find_port_holder(port: int, proc: Path = Path("/proc")) -> PortHolder | None:
    """The process that listens on a port; None: nobody, or it belongs to somebody else, or this is not Linux."""
    inodes = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if not inodes:
        return None
    with suppress(OSError):
        for process in proc.iterdir():
            if process.name.isdecimal() and _holds(process, inodes):
                return PortHolder(int(process.name), _command(process))
    return None


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _holds(process: Path, inodes: set[str]) -> bool:
    with suppress(OSError):  # Of another user, or gone.
        for one in (process / "fd").iterdir():
            with suppress(OSError):
                if os.readlink(one) in inodes:  # noqa: PTH115 - what it links to is no path
                    return True
    return False


def _command(process: Path) -> str:
    """Its program and first words. Options may hold secrets, so nothing from the first of them on."""
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    plain: list[str] = []
    for word in words:
        if word.startswith("-") or "=" in word or "://" in word:
            break
        plain.append(Path(word).name)
    text = "".join(one if one.isprintable() else "?" for one in " ".join(plain).strip())
    return text[:_COMMAND_CHARACTERS]
