"""
The SQL of each step, up and down: add nullable, backfill, tighten, constrain last. Nothing is dropped on the way up.

SQLite cannot make a column NOT NULL or add a constraint later. Its documented way round is to build the table anew,
copy the rows and drop the old table; this migration drops nothing, so there two triggers refuse NULL and a unique index
refuses duplicates. `ON CONFLICT (worker_id, idempotency_key)` finds the index as it would find a constraint.
"""

# ruff: noqa: S608 - names come from `quote`, and values are bound

from __future__ import annotations

from onceward.migrate.hashing import LABEL, Hash, postgres_expression, sqlite_expression
from onceward.migrate.table import KEY, WORKER, MigrationStep, Table, literal, quote

MISSING = f"{quote(KEY)} IS NULL OR {quote(WORKER)} IS NULL"
"""Which rows a backfill touches: those without either value, so that it can run again."""


def up(table: Table, step: MigrationStep, how: Hash) -> list[str]:
    """The statements of one step, without semicolons at their ends."""
    return (_postgres_up if table.dialect == "postgresql" else _sqlite_up)(table, step, how)


def down(table: Table, step: MigrationStep) -> list[str]:
    """The statements that take one step back; steps are taken back from the last to the first."""
    worker, key = quote(WORKER), quote(KEY)
    change = f"ALTER TABLE {table.quoted}"
    match step, table.dialect:
        case MigrationStep.CONSTRAIN, "postgresql":
            return [f"{change} DROP CONSTRAINT {quote(table.constraint)}"]
        case MigrationStep.CONSTRAIN, _:
            return [f"DROP INDEX {quote(table.constraint)}"]
        case MigrationStep.TIGHTEN, "postgresql":
            return [
                f"{change} ALTER COLUMN {worker} DROP NOT NULL, ALTER COLUMN {key} DROP NOT NULL",
                f"{change} DROP CONSTRAINT IF EXISTS {quote(table.presence)}",  # `migrate apply` adds it.
            ]
        case MigrationStep.TIGHTEN, _:
            return [f"DROP TRIGGER {quote(name)}" for name in trigger_names(table)]
        case MigrationStep.ADD, "postgresql":
            return [f"{change} DROP COLUMN {key}, DROP COLUMN {worker}"]
        case MigrationStep.ADD, _:
            return [f"{change} DROP COLUMN {column}" for column in (key, worker)]
    return []  # What was filled in goes with its columns.


def _postgres_up(table: Table, step: MigrationStep, how: Hash) -> list[str]:
    worker, key = quote(WORKER), quote(KEY)
    match step:
        case MigrationStep.ADD:
            return [f"ALTER TABLE {table.quoted} ADD COLUMN {worker} text, ADD COLUMN {key} text"]
        case MigrationStep.BACKFILL:
            value = postgres_expression(table.id, how, table.digest_schema)
            enable = how == "pgcrypto" and not table.digest_schema
            return [
                *(["CREATE EXTENSION IF NOT EXISTS pgcrypto"] if enable else []),
                f"UPDATE {table.quoted} SET {worker} = '{LABEL}', {key} = {value} WHERE {MISSING}",
            ]
        case MigrationStep.TIGHTEN:
            return [f"ALTER TABLE {table.quoted} ALTER COLUMN {worker} SET NOT NULL, ALTER COLUMN {key} SET NOT NULL"]
        case MigrationStep.CONSTRAIN:
            return [f"ALTER TABLE {table.quoted} ADD CONSTRAINT {quote(table.constraint)} UNIQUE ({worker}, {key})"]


def _sqlite_up(table: Table, step: MigrationStep, how: Hash) -> list[str]:
    worker, key = quote(WORKER), quote(KEY)
    match step:
        case MigrationStep.ADD:
            return [f"ALTER TABLE {table.quoted} ADD COLUMN {column} TEXT" for column in (worker, key)]
        case MigrationStep.BACKFILL:
            value = sqlite_expression(f"{table.quoted}.{table.id}")
            return [f"UPDATE {table.quoted} SET {worker} = '{LABEL}', {key} = {value} WHERE {MISSING}"]
        case MigrationStep.TIGHTEN:
            # Triggers look at no row that is there: a table with a CHECK does, and fails as SET NOT NULL would.
            left = quote(f"{table.name}_rows_without_a_key")
            return [
                f"CREATE TEMP TABLE IF NOT EXISTS {left} (rows INTEGER CHECK (rows = 0))",
                f"INSERT INTO {left} SELECT count(*) FROM {table.quoted} WHERE {MISSING}",
                *triggers(table),
            ]
        case MigrationStep.CONSTRAIN:
            return [f"CREATE UNIQUE INDEX {quote(table.constraint)} ON {table.quoted} ({worker}, {key})"]


def trigger_names(table: Table) -> tuple[str, str]:
    """SQLite's two triggers."""
    return f"{table.presence}_on_insert", f"{table.presence}_on_update"


def triggers(table: Table) -> list[str]:
    """What refuses NULL in SQLite from now on."""
    refuse = literal(f"NOT NULL constraint failed: {table.name}.{WORKER}, {table.name}.{KEY}")
    events = ("INSERT", f"UPDATE OF {quote(WORKER)}, {quote(KEY)}")
    return [
        f"CREATE TRIGGER {quote(name)} BEFORE {event} ON {table.quoted} "
        f"WHEN NEW.{quote(WORKER)} IS NULL OR NEW.{quote(KEY)} IS NULL BEGIN SELECT RAISE(ABORT, {refuse}); END"
        for name, event in zip(trigger_names(table), events, strict=True)
    ]
