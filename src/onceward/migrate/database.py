"""
A database to migrate a table in: what PostgreSQL and SQLite both can do here, and which of them a URL names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from onceward.migrate.hashing import Hash
from onceward.migrate.reporting import Say
from onceward.migrate.table import Dialect, MigrationRefused, MigrationStep, Progress, Table

BATCH_ROWS = 5_000
"""Rows that one transaction fills in: each waits for a commit, and keeps its rows locked for tens of milliseconds."""
LOCK_SECONDS = 5.0
"""How long a statement waits for the table. All others queue behind it for that long."""
PASSES = 3
"""How often the rows are walked through before tightening: writers that send no key yet always leave some behind."""
COPY_BYTES_MAX = 1 << 30
UNFINISHED_MAX = 20
"""Tables that are listed as unfinished: nobody migrates more at once."""


class Application(NamedTuple):
    """How a migration is applied."""

    how: Hash = "builtin"
    until: MigrationStep = MigrationStep.CONSTRAIN
    """The last step: before tightening, every writer must send keys."""
    batch_rows: int = BATCH_ROWS


class Migrator(Protocol):
    """An open database."""

    dialect: Dialect

    def look(self, name: str, schema: str, how: Hash) -> Table:
        """The table, if it can be migrated; nothing is changed."""

    def progress_of(self, table: Table) -> Progress:
        """Which steps the table has completed."""

    def unfinished(self) -> list[tuple[str, str]]:
        """
        Tables that have both columns but no unique constraint over them, each with its schema.

        Their migration has not come to its end: it runs, waits for writers that send keys, or was killed. It is read
        from the schema alone, whatever the tables hold.
        """

    def apply(self, table: Table, wanted: Application, say: Say) -> int:
        """Do the remaining steps, and report progress. Returns the number of rows that got a key."""

    def execute(self, statements: list[str]) -> None:
        """Run statements in one transaction."""

    def describe(self, table: Table) -> list[str]:
        """The table's columns, constraints, indexes and rows as lines, to be compared."""

    def copy(self, table: Table, bytes_max: int) -> AbstractContextManager[tuple[Migrator, Table]]:
        """A copy of the table that is gone after the block."""


@contextmanager
def open_database(url: str, lock_seconds: float = LOCK_SECONDS) -> Iterator[Migrator]:
    """The database that a URL names, until the block ends."""
    match urlsplit(url).scheme.lower():
        case "sqlite":
            from onceward.migrate.sqlite_database import open_sqlite

            with open_sqlite(url, lock_seconds) as database:
                yield database
        case "postgresql" | "postgres":
            try:
                from onceward.migrate.postgres_database import open_postgres
            except ModuleNotFoundError as error:
                raise MigrationRefused(
                    "PostgreSQL needs psycopg, which is not installed: pip install 'onceward[postgres]'"
                ) from error
            with open_postgres(url, lock_seconds) as found:
                yield found
        case _:
            raise MigrationRefused(
                "only tables in PostgreSQL and SQLite can be migrated: --database postgresql://user@host/database, or "
                "--database sqlite:///app.db"
            )
