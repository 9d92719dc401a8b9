"""
What tenants hold in their databases: records of keys, and bytes. For quotas. It reads the files and asks no worker.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from onceward._core.keys import ENVIRONMENTS
from onceward.service.sql.database_files import SUFFIX, DatabaseFolder, namespace_of
from onceward.service.sql.sqlite_errors import DRIVER_ERRORS

_BUSY_SECONDS = 1.0


def measure_usage(root: Path, tenants: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """For each environment of these tenants that has databases: (scope, records, bytes)."""
    for tenant in tenants:
        for environment in ENVIRONMENTS:
            folder = root / namespace_of(environment, tenant)
            found = [_held_in(folder / f"{name}{SUFFIX}") for name in DatabaseFolder.within(folder)]
            if found:
                yield f"{environment}:{tenant}", sum(one for one, _ in found), sum(size for _, size in found)


def _held_in(path: Path) -> tuple[int, int]:
    """
    Records and bytes of one database: all pages of its file, as those that were freed take room on the disk, too.

    They are filled again before the file grows, so deleting rows makes room for others. Nothing of the tenant's is run:
    these are our own table and two numbers of the file's head.
    """
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
        ) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            [records] = connection.execute("SELECT count(*) FROM onceward_records").fetchone()
            pages, size = (
                int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "page_size")
            )
            return int(records), pages * size
    except DRIVER_ERRORS:
        return 0, 0  # Just made, or just dropped; the next count sees it.
