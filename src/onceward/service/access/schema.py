"""
The tables and how they move forward: numbered .sql files, each applied once, all in one transaction. As in the stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from onceward._core.errors import ConfigurationError, SchemaMismatch

LATEST = 1
VERSION = "SELECT value FROM onceward_access WHERE name = 'schema_version'"
SET_VERSION = "UPDATE onceward_access SET value = {} WHERE name = 'schema_version'"


def migrations(dialect: str, after: int) -> Iterator[tuple[int, str]]:
    """The scripts later than a version, in order."""
    folder = files("onceward.service.access").joinpath("sql")
    scripts = {one.name: one for one in folder.iterdir() if one.name.startswith(f"{dialect}_")}
    for name in sorted(scripts):
        number = int(name.split("_")[1])
        if number > after:
            yield number, scripts[name].read_text(encoding="utf-8")


def understood(version: int, where: str) -> int:
    """The version, if this code knows it."""
    if version > LATEST:
        raise SchemaMismatch(
            f"{where}: the tables of tokens have schema version {version} and this Onceward knows {LATEST}: upgrade "
            "onceward (pip install -U)"
        )
    return version


def none_yet(where: str) -> ConfigurationError:
    """What to say where there are no tables and none are to be made."""
    return ConfigurationError(f"there are no tenants at {where} yet; `onceward tenant create NAME` makes the first")
