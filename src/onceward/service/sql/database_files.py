"""
Where databases live: `folder/namespace/database.db`, for the owner's eyes only.

Names are checked, not mended: small letters, digits, - and _, so that no name leaves the folder, none is hidden, and no
two are the same file on a disk that ignores capitals.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from onceward._core.display_text import json_kind
from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward._core.keys import ENVIRONMENTS
from onceward.protocol.errors import NameInvalid
from onceward.runtime import failpoints

NAME_CHARACTERS_MAX = 63
"""As long as a label of a host name; with its suffixes far below what file systems take."""
SUFFIX = ".db"
NO_DATABASES = Path(os.devnull)
"""A folder in which there is never a database."""
NEW_DATABASE_BYTES = 20_480
"""A database with nothing in it but the tables of keys."""

NAME_PATTERN = rf"^[a-z0-9][a-z0-9_-]{{0,{NAME_CHARACTERS_MAX - 1}}}$"
"""As it is published; `check_name` also refuses what some file systems take for a device."""

_NAME = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,{NAME_CHARACTERS_MAX - 1}}}")
# What some file systems take for a device.
_DEVICES = frozenset(("con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))))
_BESIDES = ("-wal", "-shm", "-journal")
_LEFT = re.compile(
    r"\.[a-z0-9][a-z0-9_-]{0,62}\.db\.dropped|[a-z0-9][a-z0-9_-]{0,62}\.db-(?:wal|shm|journal)"
    r"|\.[a-z0-9][a-z0-9_-]{0,62}\.db\.importing(?:-wal|-shm|-journal)?"
)
"""What a database leaves behind whose deletion, or whose import, was interrupted."""

RENAMED = failpoints.declare("sql.drop.renamed", "no name leads to a database any more | its files are deleted")
DROPPED = failpoints.declare("sql.drop.after", "a database is deleted | the next one of its tenant is")


class DatabaseName(NamedTuple):
    """A database and the namespace it is in."""

    namespace: str
    database: str


def check_name(name: str, what: str) -> str:
    """Give a name back if it can be one."""
    if isinstance(name, str) and _NAME.fullmatch(name) and name not in _DEVICES:
        return name
    shown = repr(name[:80]) if isinstance(name, str) else json_kind(name)
    raise NameInvalid(f"{shown} is not a valid name of a {what}. {NameInvalid.__doc__}")


@lru_cache(maxsize=1_024)
def namespace_of(environment: str, tenant: str) -> str:
    """
    A tenant's namespace in one environment. Tenants' names have more characters and lengths than namespaces.

    No two tenants have the same: `_` is written `__` and a full stop `_-`, and what gets too long is hashed behind
    another mark.
    """
    name = f"{environment}-" + tenant.replace("_", "__").replace(".", "_-")
    if len(name) <= NAME_CHARACTERS_MAX:
        return name
    return f"{environment}_{sha256(tenant.encode()).hexdigest()[:50]}"


def sibling_namespaces(namespace: str) -> tuple[str, ...]:
    """The namespaces of one tenant, in all environments, by one of them. One that is no tenant's is alone."""
    environment, mark = next(((one, namespace[len(one) : len(one) + 1]) for one in ENVIRONMENTS
                              if namespace.startswith((f"{one}-", f"{one}_"))), ("", ""))  # fmt: skip
    if not mark:
        return (namespace,)
    rest = namespace[len(environment) + 1 :]
    return tuple(f"{one}{mark}{rest}" for one in ENVIRONMENTS)


class DatabaseFolder:
    """The folder with everybody's databases."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"the folder {root} cannot be used for databases: {error.strerror}") from error

    def path(self, namespace: str, database: str) -> str:
        """The file of a database, whether or not it is there. Text, because every request asks for it."""
        return f"{self.root}/{check_name(namespace, 'namespace')}/{check_name(database, 'database')}{SUFFIX}"

    def databases(self, namespace: str | None = None) -> list[DatabaseName]:
        """What there is, by name; files that are none of ours are left out."""
        namespaces = self.entries(self.root) if namespace is None else [check_name(namespace, "namespace")]
        return [
            DatabaseName(one, name)
            for one in namespaces
            if _NAME.fullmatch(one)
            for name in self.within(self.root / one)
        ]

    @classmethod
    def within(cls, folder: Path) -> list[str]:
        """The databases of one namespace's folder, by name."""
        names = [name.removesuffix(SUFFIX) for name in cls.entries(folder) if name.endswith(SUFFIX)]
        return [name for name in names if _NAME.fullmatch(name)]

    @staticmethod
    def entries(folder: Path) -> list[str]:
        """What lies in a folder, by name; nothing, if there is none."""
        try:
            return sorted(entry.name for entry in folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []


def file_identity(path: Path) -> tuple[int, int] | None:
    """Which file stands at a path now; None if there is none. A link is none of ours."""
    found = None
    try:
        is_link = stat.S_ISLNK(os.lstat(path.parent).st_mode)
        if not is_link:
            found = os.lstat(path)
            is_link = stat.S_ISLNK(found.st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if is_link or found is None:
        raise StoreUnavailable(f"{path.name} is, or lies behind, a symbolic link; databases are plain files")
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
    if file_identity(path) is None:
        return False
    gone = path.replace(path.with_name(f".{path.name}.dropped"))
    failpoints.hit(RENAMED)
    for left in (*_besides(path), gone):
        left.unlink(missing_ok=True)
    failpoints.hit(DROPPED)
    return True


def erase_namespace(root: Path, namespace: str) -> Iterator[str]:
    """
    Delete all databases of a namespace, telling the name of each that is gone; then its folder, if it is empty.

    Nobody needs to be asked: a service that has one of them open sees at its next request that the file is gone. What
    an interrupted deletion left behind goes, too; whatever else lies there is none of ours, and stays.
    """
    folder = Path(os.path.realpath(root)) / check_name(namespace, "namespace")
    if folder.is_symlink():
        raise StoreUnavailable(f"{folder.name} is a symbolic link; databases are plain files in plain folders")
    for one in DatabaseFolder.within(folder):
        if drop_file(folder / f"{one}{SUFFIX}"):
            yield one
    for name in DatabaseFolder.entries(folder):
        if _LEFT.fullmatch(name):
            (folder / name).unlink(missing_ok=True)
    if folder.is_dir() and not DatabaseFolder.entries(folder):
        folder.rmdir()


def _besides(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in _BESIDES]
