"""
Moves a tenant's database between a service's folder (SQLite) and PostgreSQL, with its rows, its keys and its plans.

    source --> file (one snapshot, checksums) --> rehearsal --> hidden target, in batches --> compared --> published

The file knows neither end: each end translates the schema for itself, and says what it cannot take before anything is
written. A value fits if it comes back as it was. The records of keys get new ids, because an id has the scope in it.

May import: `service.sql` and what that may; psycopg only in the `postgres_` files.

Start with `mover.py` (export and import, step by step), then `moved_schema.py` (what is in a file), then
`sqlite_target.py`.
"""

from onceward.service.sql.moving.mover import (
    ExportReport,
    ImportOptions,
    ImportReport,
    export_database,
    import_database,
)
from onceward.service.sql.moving.places import DatabasePlace, close_database, reopen_database
from onceward.service.sql.moving.target_plan import MoveChoices

__all__ = [
    "DatabasePlace",
    "ExportReport",
    "ImportOptions",
    "ImportReport",
    "MoveChoices",
    "close_database",
    "export_database",
    "import_database",
    "reopen_database",
]
