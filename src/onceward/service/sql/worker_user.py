"""
As which user workers run: where the service is root they are not, and the databases are theirs.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import NamedTuple

from onceward._core.errors import ConfigurationError

SAME = "same"
"""The setting for workers that run as the service does."""
_NOBODY = "nobody"
_NOBODY_ID = 65_534


class WorkerUser(NamedTuple):
    """A user by its numbers."""

    uid: int
    gid: int


def find_worker_user(name: str) -> WorkerUser | None:
    """
    The user that is meant: a name, a number, `same`, or nothing; None: the service's own.

    Nothing means `nobody` for a service that is root, and the service's own user otherwise.
    """
    root = os.geteuid() == 0
    if name == SAME or (not name and not root):
        return None
    found = _look_up(name or _NOBODY)
    if found is None:
        raise ConfigurationError(
            f"there is no user {name[:40]!r} on this machine. Create it, or name another; "
            f"{SAME!r} runs workers as the service's own user"
        )
    if found.uid == os.geteuid():
        return None
    if not root:
        raise ConfigurationError(
            f"only root can run workers as another user. Start the service as {name!r}, or leave it out"
        )
    if found.uid == 0:
        raise ConfigurationError(f"workers do not run as root; to run them as the user of the service, set {SAME!r}")
    return found


def _look_up(name: str) -> WorkerUser | None:
    try:
        entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        if name.isdecimal() and 0 <= int(name) < 2**31:  # A number needs no entry.
            return WorkerUser(int(name), int(name))
        return WorkerUser(_NOBODY_ID, _NOBODY_ID) if name == _NOBODY else None
    return WorkerUser(entry.pw_uid, entry.pw_gid)


def hand_over(folder: Path, user: WorkerUser) -> None:
    """
    Give a folder of databases to a user, with what is in it.

    Only plain files with one name and folders change hands, by their open handles: whoever could write there before
    cannot make this a way to get at a file elsewhere.
    """
    for _, names, files, place in os.fwalk(folder, follow_symlinks=False):
        os.fchown(place, *user)
        for name in [*names, *files]:
            try:
                handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
            except OSError:
                continue  # A link, or gone.
            try:
                found = os.fstat(handle)
                plain = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
                if plain and (found.st_uid, found.st_gid) != tuple(user):
                    os.fchown(handle, *user)
            finally:
                os.close(handle)
