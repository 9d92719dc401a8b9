"""
A migration as a file: plain SQL, an Alembic revision, or a Django migration.

Names and SQL are written into Python by `repr`, so that no name of a table can become code.
"""

# ruff: noqa: S608 - names come from `quote`, and values are bound

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from onceward.migrate import statements
from onceward.migrate.hashing import LABEL, Hash
from onceward.migrate.table import (
    KEY,
    STEPS,
    WORKER,
    MigrationRefused,
    MigrationStep,
    Progress,
    Table,
    check_order,
    quote,
)

Format: TypeAlias = Literal["sql", "alembic", "django"]
FORMATS: tuple[Format, ...] = ("sql", "alembic", "django")

LOCK_TIMEOUT = "5s"
"""How long a printed migration waits for its table: others queue up behind it for as long as it waits."""

_SAYS = {
    MigrationStep.ADD: "Add both columns as nullable: existing rows have no key yet, and get no default.",
    MigrationStep.BACKFILL: "Give every row without a key a key made from its id. Running it again changes no row.",
    MigrationStep.TIGHTEN: "Only now: refuse rows without a key.",
    MigrationStep.CONSTRAIN: "Last: one row for each key of a worker. Without this, the key protects nothing.",
}


class Request(NamedTuple):
    """What is to be printed."""

    format: Format = "sql"
    how: Hash = "builtin"
    steps: Sequence[MigrationStep] = STEPS
    down: bool = False
    after: str = ""
    """The migration before: an Alembic revision, or Django's `app.0004_name`."""


def generate(table: Table, progress: Progress, request: Request) -> str:
    """The text of the migration."""
    # What is taken back need not have been done yet: both directions are printed before either is run.
    check_order(request.steps, Progress(True, True, True, True) if request.down else progress)
    if request.down:
        if request.format != "sql":
            raise MigrationRefused(f"--format {request.format} writes both directions into one file: leave --down out")
    elif MigrationStep.ADD in request.steps and progress.added:
        raise MigrationRefused(
            f"{table.name} already has {WORKER} and {KEY}. `onceward migrate apply` finishes the migration, and "
            "--step prints one of the later steps"
        )
    match request.format:
        case "sql":
            return _sql(table, request)
        case "alembic":
            return _alembic(table, request)
        case "django":
            return _django(table, request)


def _sql(table: Table, request: Request) -> str:
    lines = ["BEGIN;"]
    if table.dialect == "postgresql":
        lines.append(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}';")
    if request.down:
        lines += ["", "-- Undoes the migration. The keys are lost; every other column stays."]
        lines += [f"{statement};" for step in reversed(request.steps) for statement in statements.down(table, step)]
        return "\n".join([*lines, "", "COMMIT;"])
    if request.how == "application" and MigrationStep.BACKFILL in request.steps:
        raise MigrationRefused(
            "plain SQL cannot compute keys in an application. Choose --hash builtin, or --format alembic or django"
        )
    for step in request.steps:
        lines += ["", f"-- {_SAYS[step]}"]
        lines += [f"{statement};" for statement in statements.up(table, step, request.how)]
    return "\n".join([*lines, "", "COMMIT;"])


def _alembic(table: Table, request: Request) -> str:
    steps = request.steps
    revision = hashlib.sha256(f"{table.quoted}:{[step.value for step in steps]}".encode()).hexdigest()[:12]
    in_python = request.how == "application" and MigrationStep.BACKFILL in steps
    up: list[str] = []
    for step in steps:
        up.append(f"    # {_SAYS[step]}")
        if step is MigrationStep.BACKFILL and in_python:
            up.append("    _backfill(op.get_bind())")
            continue
        up += [f"    op.execute(_plain({statement!r}))" for statement in statements.up(table, step, request.how)]
    down = [
        f"    op.execute(_plain({statement!r}))"
        for step in reversed(steps)
        for statement in statements.down(table, step)
    ]
    return "\n".join(
        [
            '"""Add an idempotency key: add, backfill, tighten, constrain last."""',
            "",
            *(["import hashlib", ""] if in_python else []),
            "import sqlalchemy as sa",
            "from alembic import op",
            "",
            f"revision = {revision!r}",
            f"down_revision = {request.after or None!r}"
            + ("" if request.after else "  # the revision before this one"),
            "branch_labels = None",
            "depends_on = None",
            "",
            "",
            "def _plain(sql):",
            "    # A colon in it is no parameter.",
            '    return sa.text(sql.replace(":", "\\\\:"))',
            "",
            "",
            *(_alembic_backfill(table) if in_python else []),
            "def upgrade():",
            *up,
            "",
            "",
            "def downgrade():",
            "    # The keys are lost; every other column stays.",
            *(down or ["    pass"]),
        ]
    )


def _django(table: Table, request: Request) -> str:
    app, _, name = request.after.partition(".")
    if request.after and not name:
        raise MigrationRefused("write the previous migration as app.0004_name: --after expenses.0004_amounts")
    in_python = request.how == "application" and MigrationStep.BACKFILL in request.steps
    operations: list[str] = []
    for step in request.steps:
        operations.append(f"        # {_SAYS[step]}")
        if step is MigrationStep.BACKFILL and in_python:
            operations.append("        migrations.RunPython(_backfill, migrations.RunPython.noop),")
            continue
        forward, backward = statements.up(table, step, request.how), statements.down(table, step)
        operations += ["        migrations.RunSQL(", *_listed("sql", forward), *_listed("reverse_sql", backward)]
        operations.append("        ),")
    return "\n".join(
        [
            '"""Add an idempotency key: add, backfill, tighten, constrain last. Backwards, the keys are lost."""',
            "",
            *(["import hashlib", ""] if in_python else []),
            "from django.db import migrations",
            "",
            "",
            *(_django_backfill(table) if in_python else []),
            "class Migration(migrations.Migration):",
            f"    dependencies = {[(app, name)]!r}"
            if name
            else "    dependencies = []  # the app's last migration: [(app, name)]",
            "",
            "    operations = [",
            *operations,
            "    ]",
        ]
    )


def _listed(name: str, found: list[str]) -> list[str]:
    indent = " " * 12
    if not found:
        return [f"{indent}{name}=[],"]
    return [f"{indent}{name}=[", *(f"{indent}    {statement!r}," for statement in found), f"{indent}],"]


def _find(table: Table) -> str:
    """Ids of a thousand rows without a key, as the database writes them."""
    return f"SELECT CAST({table.id} AS text) FROM {table.quoted} WHERE {statements.MISSING} LIMIT 1000"


def _change(table: Table) -> tuple[str, str, str]:
    """The statement that fills in one row, cut where the key and the id go."""
    return (
        f"UPDATE {table.quoted} SET {quote(WORKER)} = '{LABEL}', {quote(KEY)} = ",
        f" WHERE {table.id} = CAST(",
        f" AS {table.id_type})",
    )


def _alembic_backfill(table: Table) -> list[str]:
    before, between, after = (part.replace(":", "\\:") for part in _change(table))
    return [
        "def _backfill(bind):",
        f"    change = sa.text({f'{before}:key{between}:id{after}'!r})",
        f"    while ids := bind.execute(_plain({_find(table)!r})).scalars().all():",
        f"        keys = [hashlib.sha256(({LABEL + ':'!r} + id).encode()).hexdigest() for id in ids]",
        '        bind.execute(change, [{"id": id, "key": key} for id, key in zip(ids, keys)])',
        "",
        "",
    ]


def _django_backfill(table: Table) -> list[str]:
    before, between, after = (part.replace("%", "%%") for part in _change(table))
    return [
        "def _backfill(apps, schema_editor):",
        "    with schema_editor.connection.cursor() as cursor:",
        "        while True:",
        f"            cursor.execute({_find(table)!r})",
        "            ids = [id for (id,) in cursor.fetchall()]",
        "            if not ids:",
        "                return",
        f"            keys = [hashlib.sha256(({LABEL + ':'!r} + id).encode()).hexdigest() for id in ids]",
        f"            cursor.executemany({f'{before}%s{between}%s{after}'!r}, list(zip(keys, ids)))",
        "",
        "",
    ]
