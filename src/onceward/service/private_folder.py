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
        raise ConfigurationError(
            f"the service cannot use the folder {place}: {error.strerror}. Choose another with --folder FOLDER, "
            f"or create it for this user: sudo install -d -m 700 -o {_user()} {place}"
        ) from None
    for name in ("databases", "records.db"):
        if (place / name).is_symlink():
            raise ConfigurationError(f"{place / name} is a symbolic link, which the service does not follow; remove it")


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
            f"the folder {place} belongs to another user ({found.st_uid}), who could replace its contents. Give "
            f"it to the service's user: sudo chown -R {_user()} {place}; or choose another with --folder FOLDER"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        raise ConfigurationError(
            f"other users can read the folder {place} (its mode is {mode:04o}), which holds tokens and databases. "
            f"If this folder is meant for the service: chmod 700 {place}"
        )


def _user() -> str:
    """The name of the user that the service runs as, as a command takes it."""
    try:
        import pwd

        return pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):  # No such module on Windows; no such entry in a container.
        return str(os.geteuid())
