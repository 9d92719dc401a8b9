"""
Migrations: numbered .sql files in a package's folder `sql`, such as `sqlite_0001_records.sql`, each applied once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files


def migration_scripts(package: str, dialect: str, after: int = 0) -> Iterator[tuple[int, str]]:
    """Those later than a version, in order, with their numbers."""
    return (one for one in _scripts(package, dialect) if one[0] > after)


@cache
def _scripts(package: str, dialect: str) -> tuple[tuple[int, str], ...]:
    """Read once: a process that has given up reading files still makes new databases."""
    found = [one for one in files(package).joinpath("sql").iterdir() if one.name.startswith(f"{dialect}_")]
    return tuple(
        (int(script.name.split("_")[1]), script.read_text(encoding="utf-8"))
        for script in sorted(found, key=lambda one: one.name)
    )
