"""
The databases that a service keeps for a tenant, as a command sees them: files in a folder, whether or not it runs.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from onceward._core.keys import ENVIRONMENTS
from onceward.cli.command_parser import CommandParser
from onceward.cli.exit_codes import UsageError
from onceward.cli.store_argument import existing_store_url
from onceward.service.settings import DATABASES, PREFIX
from onceward.stores import tables_url
from onceward.stores._sqlite_file import parse

VARIABLE = f"{PREFIX}FOLDER"


def add_folder_argument(command: CommandParser) -> None:
    """Say where a service's databases are."""
    command.add_argument(
        "--folder",
        metavar="PATH",
        help=f"the service's folder, whose databases go, too (otherwise: {VARIABLE}, or that of the store's file)",
    )


def databases_folder(asked: argparse.Namespace) -> Path | None:
    """Where they are: in the folder that was said or, as `serve` has it, beside the store. None if nobody knows."""
    said = asked.folder or os.environ.get(VARIABLE)
    if said:
        if not Path(said).is_dir():
            raise UsageError(f"{said} is no folder; give the service's, which has a folder {DATABASES!r} in it")
        return Path(said) / DATABASES
    url = tables_url(existing_store_url(asked)) or ""
    if urlsplit(url).scheme.lower() != "sqlite":
        return None
    beside = Path(os.path.realpath(parse(url)[0])).parent / DATABASES
    return beside if beside.is_dir() else None


def erase_databases(folder: Path | None, tenant: str) -> Iterator[str]:
    """Delete a tenant's databases of both environments, telling the name of each that is gone."""
    from onceward.service.sql.database_files import (  # Here, so that `--help` does not wait for it.
        erase_namespace,
        namespace_of,
    )

    if folder is not None:
        for environment in ENVIRONMENTS:
            yield from erase_namespace(folder, namespace_of(environment, tenant))
