"""
The schema of a SQLite store, and its migrations: numbered .sql files, each applied once, all in one transaction.

The version is kept in a table of ours. `user_version` and `application_id` belong to whoever owns the file: the
user's own tables may live next to ours.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from onceward._core.errors import SchemaMismatch
from onceward.runtime import failpoints
from onceward.stores._migration_scripts import migration_scripts
from onceward.stores._sqlite_file import split_statements

LATEST = 2

BEGUN = failpoints.declare("sqlite.migrate.begun", "the write lock is ours | the first statement of a migration")
STATEMENT = failpoints.declare("sqlite.migrate.statement", "one statement of a migration is done | the next one")
COMMIT = failpoints.declare("sqlite.migrate.commit", "every statement is done | they are committed")

_HAS_META = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'onceward_meta'"
_VERSION = "SELECT value FROM onceward_meta WHERE name = 'schema_version'"
_SET_VERSION = "UPDATE onceward_meta SET value = ? WHERE name = 'schema_version'"


def version_of(cursor: sqlite3.Cursor) -> int:
    """The schema's version; 0 if there is none yet."""
    if not cursor.execute(_HAS_META).fetchone()[0]:
        return 0
    row = cursor.execute(_VERSION).fetchone()
    if row is None or not isinstance(row[0], int):
        raise SchemaMismatch("the table onceward_meta has no schema_version: it was not written by Onceward")
    version: int = row[0]
    return version


def bring_up_to_date(cursor: sqlite3.Cursor) -> tuple[int, int]:
    """Migrate forward if need be; the versions before and after. Whoever gets the write lock first does it."""
    if (before := checked_version(version_of(cursor))) == LATEST:
        return before, before
    cursor.execute("BEGIN IMMEDIATE")
    before = checked_version(version_of(cursor))
    failpoints.hit(BEGUN)
    for number, script in migrations(before):
        for statement in script:
            cursor.execute(statement)
            failpoints.hit(STATEMENT)
        cursor.execute(_SET_VERSION, (number,))
    failpoints.hit(COMMIT)
    cursor.execute("COMMIT")
    return before, LATEST


def checked_version(version: int) -> int:
    """The version, if this code knows it."""
    if version > LATEST:
        raise SchemaMismatch(
            f"the file has schema version {version} and this Onceward knows {LATEST}: upgrade onceward (pip install -U)"
        )
    return version


def migrations(after: int) -> Iterator[tuple[int, list[str]]]:
    """The migrations later than a version, in order."""
    for number, script in migration_scripts("onceward.stores", "sqlite", after):
        yield number, list(split_statements(script))
