"""
Upkeep of a SQLite store: make it ready, check it, migrate its schema.
"""

from __future__ import annotations

from collections.abc import Iterator

from onceward._core.record import Record
from onceward._core.store_protocols import Selection
from onceward.stores import _sqlite_schema as schema
from onceward.stores._sqlite_file import parse
from onceward.stores._upkeep import SchemaMigration
from onceward.stores.sqlite import SqliteStore, check, init, migrate, schema_version

__all__ = ["check", "held", "init", "is_there", "migrate", "planned", "schema_sql"]

PAGE = 500


def is_there(url: str) -> bool:
    """Whether the file exists and has our tables."""
    return parse(url)[0].exists() and schema_version(url) > 0


def planned(url: str) -> SchemaMigration:
    """What `migrate` would do."""
    before = schema.checked_version(schema_version(url))
    return SchemaMigration(
        before, schema.LATEST, tuple(f"sqlite_{number:04}" for number, _ in schema.migrations(before))
    )


def schema_sql(after: int) -> str:
    """The statements of all migrations later than a version, in one transaction."""
    parts = []
    for number, statements in schema.migrations(after):
        version = f"UPDATE onceward_meta SET value = {number} WHERE name = 'schema_version';"  # noqa: S608 - a number
        parts += [*statements, version]
    return "\n\n".join(("BEGIN IMMEDIATE;", *parts, "COMMIT;"))


def held(url: str) -> Iterator[Record]:
    """Every record, without its result."""
    store = SqliteStore.from_url(url)
    try:
        after = b""
        while page := store.scan(after, PAGE, Selection()):
            yield from (record._replace(result=None) for record in page)
            after = page[-1].id
    finally:
        store.close()
