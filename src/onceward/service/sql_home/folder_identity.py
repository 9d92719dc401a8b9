"""
The identity of a folder of databases: a random name in a file, which goes wherever the folder goes.

It is in the service's own folder and not among the databases: those may belong to the user that runs tenants' SQL.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward._core.holders import UNKNOWN, decode_process
from onceward.runtime import failpoints
from onceward.runtime.environment import REAL, Environment
from onceward.service.private_file import FileExposed, make_private_file, read_private_file
from onceward.service.sql_home.home_table import FOLDER, SqlHome
from onceward.stores import tables_url
from onceward.stores._sqlite_file import parse

IDENTITY = "folder-id"
_ID = re.compile(r"[0-9a-f]{32}")

IDENTIFIED = failpoints.declare("sql_home.identified", "a folder has an identity | its store knows about it")


def folder_home(folder: Path, environment: Environment = REAL) -> SqlHome:
    """The folder as a home of databases. It is given an identity, if it has none."""
    file = folder / IDENTITY
    try:
        if not os.path.lexists(file):
            make_private_file(file, environment.random(16).hex(), environment.random)
        text = read_private_file(file)
    except FileExposed:
        raise ConfigurationError(
            f"{file} can be read or replaced by other users; it must belong to the service's user, with mode 0600 "
            f"(chmod 600 {file})"
        ) from None
    except OSError as error:
        raise StoreUnavailable(
            f"the folder's identity {file} cannot be read or made: {error.strerror}; it must be a file of the "
            "service's user, and no link"
        ) from error
    if _ID.fullmatch(text) is None:
        raise ConfigurationError(
            f"{file} is damaged: it should hold 32 hexadecimal digits that identify the folder. Restore it from a "
            "backup of the folder. Without a backup, delete it: the folder then counts as new, and the store has to "
            "adopt it"
        )
    failpoints.hit(IDENTIFIED)
    return SqlHome(FOLDER, text, f"{os.path.realpath(folder)} on {_host(environment)}")


def folder_place(folder: Path, environment: Environment = REAL) -> str:
    """
    Where exactly the folder is: this boot of this kernel, this file system, this directory.

    Processes at one place see one set of files, whatever they call it, and SQLite's locks hold between them. A copy, or
    the same disk seen from another machine, is another place.
    """
    process = decode_process(environment.process())
    known = [] if process is None else [one for one in (process.boot, process.machine) if one != UNKNOWN]
    kernel = known[0].hex() if known else _host(environment)
    found = folder.stat()
    return f"{kernel}:{found.st_dev:x}:{found.st_ino:x}"


def has_store(folder: Path, url: str) -> bool:
    """Whether the store is a file in the folder: a copy of the folder has a store of its own then."""
    beside = tables_url(url) or ""
    if urlsplit(beside).scheme.lower() != "sqlite":
        return False
    file = os.path.realpath(parse(beside)[0])
    return Path(file).is_relative_to(os.path.realpath(folder))


def _host(environment: Environment) -> str:
    process = decode_process(environment.process())
    return (process.host if process is not None else "") or "an unnamed host"
