"""
The databases that a service keeps for a tenant, as a command sees them, whether or not it runs: files in a folder, or
schemas of a PostgreSQL database.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from onceward._core.keys import ENVIRONMENTS
from onceward.cli.command_table import Argument
from onceward.cli.exit_codes import UsageError
from onceward.cli.store_argument import existing_store_url
from onceward.service.settings import DATABASES, PREFIX
from onceward.stores import tables_url
from onceward.stores._sqlite_file import parse

VARIABLE = f"{PREFIX}FOLDER"

FOLDER = Argument(
    "--folder",
    "the service's folder, whose databases are erased as well",
    metavar="PATH",
    default_text=f"${VARIABLE}, or the folder of the store's file",
)


SQL_VARIABLE = f"{PREFIX}SQL"

SQL = Argument(
    "--sql",
    "the PostgreSQL database with the service's databases, which are erased as well",
    metavar="URL",
    default_text=f"${SQL_VARIABLE}, and the store's own",
)


def sql_urls(args: argparse.Namespace) -> list[str]:
    """Where schemas may be: in the database that was named, and in the store's, if that is PostgreSQL."""
    store = tables_url(existing_store_url(args)) or ""
    given = [args.sql or os.environ.get(SQL_VARIABLE) or "", store]
    return [url for url in dict.fromkeys(given) if urlsplit(url).scheme.lower() in ("postgresql", "postgres")]


def erase_schemas_of(urls: Iterable[str], tenant: str) -> Iterator[str]:
    """Drop a tenant's schemas of both environments, telling the name of each database that is gone."""
    for url in urls:
        from onceward.service.sql.postgres.schema_erasure import erase_schemas  # Here: it needs the driver.

        yield from erase_schemas(url, tenant)


def databases_folder(args: argparse.Namespace) -> Path | None:
    """Where they are: in the folder that was named or, as `serve` has it, beside the store. None if unknown."""
    folder = args.folder or os.environ.get(VARIABLE)
    if folder:
        if not Path(folder).is_dir():
            raise UsageError(f"there is no folder {folder}; name the service's, which has a folder {DATABASES!r} in it")
        return Path(folder) / DATABASES
    url = tables_url(existing_store_url(args)) or ""
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
