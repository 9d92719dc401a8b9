"""
The folder of a service: its own, not a link, and closed to other users. Looked at, and not changed behind one's back.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from onceward._core.errors import ConfigurationError


def make_private_folder(folder: str) -> None:
    """Make the folder, or check the one that is there; `ConfigurationError` says what to do about it."""
    place = Path(os.path.abspath(folder))  # noqa: PTH100 - without resolving links, which would hide this one
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            place.mkdir(mode=0o700)
        except FileExistsError:
            _check(place)
    except OSError as error:
        raise ConfigurationError(f"the service cannot use the folder {folder}: {error.strerror}") from None
    for name in ("databases", "records.db"):
        if (place / name).is_symlink():
            raise ConfigurationError(f"{place / name} is a symbolic link, which the service does not follow; move it")


def _check(place: Path) -> None:
    if place.is_symlink():
        raise ConfigurationError(
            f"the folder {place} is a symbolic link, which the service does not follow: name the folder itself "
            f"({os.path.realpath(place)})"
        )
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
    finally:
        os.close(handle)
    if found.st_uid != os.geteuid():
        raise ConfigurationError(
            f"the folder {place} belongs to another user ({found.st_uid}), who could replace what is in it. Give it to "
            f"the service's user ({os.geteuid()}), or name another"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        raise ConfigurationError(
            f"other users can look into the folder {place} (its mode is {mode:04o}), where tokens and databases are. "
            f"If it is meant for the service: chmod 700 {place}"
        )
