"""
Migrations: numbered .sql files in a package's folder `sql`, such as `sqlite_0001_records.sql`, each applied once.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files


def migration_scripts(package: str, dialect: str, after: int = 0) -> Iterator[tuple[int, str]]:
    """Those later than a version, in order, with their numbers."""
    found = [one for one in files(package).joinpath("sql").iterdir() if one.name.startswith(f"{dialect}_")]
    for script in sorted(found, key=lambda one: one.name):
        number = int(script.name.split("_")[1])
        if number > after:
            yield number, script.read_text(encoding="utf-8")
