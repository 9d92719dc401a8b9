"""
Small files that only their owner may read, made whole or not at all: a pepper, the identity of a folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

CONTENTS_BYTES_MAX = 4096


class FileExposed(Exception):
    """Others can read or replace the file."""


def make_private_file(file: Path, text: str, random: Callable[[int], bytes]) -> None:
    """
    Make a file with one line, unless there is one: of several that make it at once, one does. Errors are `OSError`.

    Whoever reads it meanwhile finds all of it or none, and when this returns it survives the power: the file and its
    name are on the disk.
    """
    begun = file.with_name(f"{file.name}.{random(8).hex()}")
    handle = os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, text.encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)
    with suppress(FileExistsError):  # Somebody else was first: theirs counts.
        os.link(begun, file, follow_symlinks=False)
    begun.unlink()
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_private_file(file: Path) -> str:
    """The text in a file of this user's (or root's), which is no link. `OSError`, or `FileExposed`."""
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or found.st_uid not in (os.geteuid(), 0):
            raise FileExposed
        return os.read(handle, CONTENTS_BYTES_MAX).decode("utf-8", "replace").strip()
    finally:
        os.close(handle)
