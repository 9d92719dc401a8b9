"""
`Schema`: the tables of one subject, and their migrations: numbered .sql files, each applied once.

A subject `ledger` has a folder `sql` in its package, with `sqlite_0001_ledger.sql`, `postgres_0001_ledger.sql` and so
on. The first of them makes a table `onceward_ledger (name, value)` with a row `schema_version`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from onceward._core.errors import ConfigurationError, SchemaMismatch, StoreCorrupt
from onceward.stores._migration_scripts import migration_scripts


class Schema(NamedTuple):
    """The tables of one subject."""

    name: str
    package: str
    """Whose folder `sql` has the scripts."""
    latest: int
    absent: str
    """What to do where there are none yet: the end of a sentence."""

    @property
    def marker(self) -> str:
        """The table whose presence says that the others are there."""
        return f"onceward_{self.name}"

    @property
    def lock(self) -> int:
        """The advisory lock of whoever moves these tables forward; others than the store's own."""
        return 0x6F6E0000_00000000 | crc32(self.name.encode())

    @property
    def version(self) -> str:
        """Asks for the version."""
        return f"SELECT value FROM {self.marker} WHERE name = 'schema_version'"  # noqa: S608 - names of ours

    def set_version(self, number: int) -> str:
        """Notes a version."""
        return f"UPDATE {self.marker} SET value = {number:d} WHERE name = 'schema_version'"  # noqa: S608

    def migrations(self, dialect: str, after: int) -> Iterator[tuple[int, str]]:
        """The scripts later than a version, in order."""
        return migration_scripts(self.package, dialect, after)

    def understood(self, rows: list[tuple[int]], where: str) -> int:
        """The version in what was found, if this code knows it."""
        if len(rows) != 1:
            raise StoreCorrupt(
                f"{where}: the tables of {self.name} do not say their version; restore {self.marker} from a backup"
            )
        [(version,)] = rows
        if version > self.latest:
            raise SchemaMismatch(
                f"{where}: the tables of {self.name} have schema version {version} and this Onceward knows "
                f"{self.latest}: upgrade onceward (pip install -U)"
            )
        return version

    def none_yet(self, where: str) -> ConfigurationError:
        """What to say where there are no tables and none are to be made."""
        return ConfigurationError(f"there are no tables of {self.name} at {where} yet; {self.absent}")
