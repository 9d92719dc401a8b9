"""
The schema of a SQLite store, and its migrations: numbered .sql files, each applied once, all in one transaction.

The version is kept in a table of ours. `user_version` and `application_id` belong to whoever owns the file: the
user's own tables may live next to ours.

Opening a file brings it up to `AT_OPENING`. What comes after that copies the table, and is left to `store migrate`: it
keeps every writer waiting, and needs as much room again. Until then the file works as it is, with the same statements.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from onceward._core.errors import ConfigurationError, SchemaMismatch
from onceward.runtime import failpoints
from onceward.stores._migration_scripts import migration_scripts
from onceward.stores._sqlite_file import split_statements

LATEST = 4
AT_OPENING = 2

BEGUN = failpoints.declare("sqlite.migrate.begun", "the write lock is ours | the first statement of a migration")
STATEMENT = failpoints.declare("sqlite.migrate.statement", "one statement of a migration is done | the next one")
COMMIT = failpoints.declare("sqlite.migrate.commit", "every statement is done | they are committed")

_HAS_META = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'onceward_meta'"
_VERSION = "SELECT value FROM onceward_meta WHERE name = 'schema_version'"
_SET_VERSION = "UPDATE onceward_meta SET value = ? WHERE name = 'schema_version'"
_FOREIGN = """
SELECT type || ' ' || name FROM sqlite_schema WHERE tbl_name = 'onceward_records' AND type IN ('index', 'trigger')
AND sql IS NOT NULL AND substr(name, 1, 9) <> 'onceward_'"""


def version_of(cursor: sqlite3.Cursor) -> int:
    """The schema's version; 0 if there is none yet."""
    if not cursor.execute(_HAS_META).fetchone()[0]:
        return 0
    row = cursor.execute(_VERSION).fetchone()
    if row is None or not isinstance(row[0], int):
        raise SchemaMismatch("the table onceward_meta has no schema_version: it was not written by Onceward")
    version: int = row[0]
    return version


def bring_up_to_date(cursor: sqlite3.Cursor, *, copies: bool = False) -> tuple[int, int]:
    """
    Migrate forward if need be; the versions before and after. Whoever gets the write lock first does it.

    `copies`: also what copies the table. In a new file there is nothing to copy.
    """
    before = checked_version(version_of(cursor))
    if before == _goal(before, copies=copies):
        return before, before
    cursor.execute("BEGIN IMMEDIATE")
    before = checked_version(version_of(cursor))
    goal = _goal(before, copies=copies)
    failpoints.hit(BEGUN)
    if 0 < before < goal and goal > AT_OPENING:
        _refuse_foreign(cursor)
    for number, script in migrations(before):
        if number > goal:
            break
        for statement in script:
            cursor.execute(statement)
            failpoints.hit(STATEMENT)
        cursor.execute(_SET_VERSION, (number,))
    failpoints.hit(COMMIT)
    cursor.execute("COMMIT")
    return before, goal


def _goal(before: int, *, copies: bool) -> int:
    return LATEST if copies or before == 0 else max(before, AT_OPENING)


def _refuse_foreign(cursor: sqlite3.Cursor) -> None:
    """What somebody else has put on the table would be gone with it."""
    found = [name for (name,) in cursor.execute(_FOREIGN)]
    if found:
        raise ConfigurationError(
            f"the table onceward_records has {', '.join(found)}, which would be lost when it is copied: drop it, run "
            "`onceward store migrate` again, and create it anew"
        )


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
