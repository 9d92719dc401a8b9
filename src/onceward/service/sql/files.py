"""
Where databases live: `folder/namespace/database.db`, for the owner's eyes only.

Names are checked, not mended: small letters, digits, - and _, so that no name leaves the folder, none is hidden, and no
two are the same file on a disk that ignores capitals.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from onceward import ConfigurationError, StoreUnavailable
from onceward.service.sql.errors import NameInvalid

NAME_CHARACTERS_MAX = 63
"""As long as a label of a host name; with its suffixes far below what file systems take."""
SUFFIX = ".db"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
# What some file systems take for a device.
_DEVICES = frozenset(("con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))))
_BESIDES = ("-wal", "-shm", "-journal")


class DatabaseName(NamedTuple):
    """A database and the namespace it is in."""

    namespace: str
    database: str


def check_name(name: str, what: str) -> str:
    """Give a name back if it can be one."""
    if isinstance(name, str) and _NAME.fullmatch(name) and name not in _DEVICES:
        return name
    shown = repr(name[:80]) if isinstance(name, str) else type(name).__name__
    raise NameInvalid(f"{shown} cannot be the name of a {what}: {NameInvalid.__doc__}")


class Folder:
    """The folder with everybody's databases."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"{root} cannot be a folder for databases: {error.strerror}") from error

    def path(self, namespace: str, database: str) -> str:
        """The file of a database, whether or not it is there. Text, because every request asks for it."""
        return f"{self.root}/{check_name(namespace, 'namespace')}/{check_name(database, 'database')}{SUFFIX}"

    def databases(self, namespace: str | None = None) -> list[DatabaseName]:
        """What there is, by name; files that are none of ours are left out."""
        namespaces = self._entries(self.root) if namespace is None else [check_name(namespace, "namespace")]
        return [
            DatabaseName(one, name.removesuffix(SUFFIX))
            for one in namespaces
            if _NAME.fullmatch(one)
            for name in self._entries(self.root / one)
            if name.endswith(SUFFIX) and _NAME.fullmatch(name.removesuffix(SUFFIX))
        ]

    @staticmethod
    def _entries(folder: Path) -> list[str]:
        try:
            return sorted(entry.name for entry in folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []


def identity_of(path: Path) -> tuple[int, int] | None:
    """Which file stands at a path now; None if there is none. A link is none of ours."""
    if path.is_symlink() or path.parent.is_symlink():
        raise StoreUnavailable(f"{path.name} is, or lies behind, a symbolic link; databases are plain files")
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def create_file(path: Path) -> None:
    """Make an empty file for a database. What a dropped one of that name left behind goes first: it is not its log."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    for left in _besides(path):
        left.unlink(missing_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))


def drop_file(path: Path) -> bool:
    """
    Delete a database; whether there was one.

    It is gone with the first step, a rename: a crash after that leaves a file that no name leads to.
    """
    if identity_of(path) is None:
        return False
    gone = path.replace(path.with_name(f".{path.name}.dropped"))
    for left in (*_besides(path), gone):
        left.unlink(missing_ok=True)
    return True


def _besides(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in _BESIDES]
