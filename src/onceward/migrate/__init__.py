"""
Adds a key to a table that already has rows: columns, backfill, NOT NULL, and the unique constraint last.

    onceward migrate generate expenses --database postgresql://localhost/app --format alembic
    onceward migrate apply expenses --database sqlite:///app.db --rehearse

The order of the steps keeps the data safe, and the key of an existing row is made from its id, so that every step can
run again. For PostgreSQL and SQLite; as plain SQL, Alembic or Django, or applied in batches beside writers.

May import: `_core`, `runtime`, `stores`; psycopg only in the `postgres_` files. Start reading with `table.py` (the
steps and their order), then `statements.py`, then `postgres_database.py`.
"""

from onceward.migrate.database import Application, Migrator, open_database
from onceward.migrate.formats import Request, generate
from onceward.migrate.hashing import historical_key
from onceward.migrate.rehearsal import Rehearsal, rehearse
from onceward.migrate.table import MigrationRefused, MigrationStep, Progress, Table

__all__ = [
    "Application",
    "MigrationRefused",
    "MigrationStep",
    "Migrator",
    "Progress",
    "Rehearsal",
    "Request",
    "Table",
    "generate",
    "historical_key",
    "open_database",
    "rehearse",
]
