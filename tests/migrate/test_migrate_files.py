"""The files for Alembic and Django, run by Alembic and Django."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from migrate_subject import Subject, expected

from onceward.cli import main

pytestmark = pytest.mark.dose(1, of="subject")

AWKWARD = "Ex%s :p\"en'ses"
QUOTED = '"' + AWKWARD.replace('"', '""') + '"'

ALEMBIC = """
import importlib.util, sys
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

spec = importlib.util.spec_from_file_location("made", sys.argv[2])
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
with sa.create_engine(sys.argv[1]).begin() as connection:
    with Operations.context(MigrationContext.configure(connection)):
        getattr(made, sys.argv[3])()
"""
DJANGO = """
import importlib.util, json, sys
import django
from django.conf import settings

settings.configure(DATABASES={"default": json.loads(sys.argv[1])})
django.setup()
from django.db import connection
from django.db.migrations.state import ProjectState

spec = importlib.util.spec_from_file_location("made", sys.argv[2])
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
migration = made.Migration("made", "app")
with connection.schema_editor(atomic=True) as editor:
    if sys.argv[3] == "upgrade":
        migration.apply(ProjectState(), editor)
    else:
        migration.unapply(ProjectState(), editor)
"""


def _database(subject: Subject, format: str) -> str:
    if subject.kind == "sqlite":
        path = subject.url.removeprefix("sqlite:///")
        return (
            f"sqlite:///{path}"
            if format == "alembic"
            else json.dumps({"ENGINE": "django.db.backends.sqlite3", "NAME": path})
        )
    if format == "alembic":
        return subject.url.replace("postgresql://", "postgresql+psycopg://")
    address, _, name = subject.url.rpartition("/")
    host, _, port = address.rpartition("@")[2].partition(":")
    parts = {"NAME": name, "HOST": host, "PORT": port, "USER": "postgres"}
    return json.dumps({"ENGINE": "django.db.backends.postgresql", **parts})


@pytest.mark.parametrize("how", ["builtin", "application"])
@pytest.mark.parametrize(("format", "program"), [("alembic", ALEMBIC), ("django", DJANGO)])
def test_the_file_goes_up_down_and_up(
    subject: Subject, typed: Any, tmp_path: Path, format: str, program: str, how: str
) -> None:
    """
    Also for a name with quotes, a colon and a percent sign; the keys are those that Python computes.
    """
    if find_spec(format) is None:
        pytest.skip(f"{format} is not installed")
    subject.expenses(30, QUOTED)
    words = ("generate", AWKWARD, "--database", subject.url, "--format", format, "--hash", how)
    (tmp_path / "made.py").write_text(typed(*words).out)

    for direction in ("upgrade", "downgrade", "upgrade"):
        ran = subprocess.run(
            [sys.executable, "-c", program, _database(subject, format), str(tmp_path / "made.py"), direction],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr

    assert subject.stored_keys(QUOTED) == expected(range(1, 31))


def test_the_printed_migration_is_what_the_linter_asks_for(subject: Subject, typed: Any, tmp_path: Path) -> None:
    """
    Our own migration, held to the five points by our own linter. Upside down it has findings, so they were looked at.
    """
    subject.expenses(1)
    up = typed("generate", "expenses", "--database", subject.url).out
    down = typed("generate", "expenses", "--database", subject.url, "--down").out
    found = {}
    for name, text in {"up": up, "down": up + down}.items():
        file = tmp_path / f"{name}.sql"
        file.write_text(text)
        dialect = "sqlite" if subject.kind == "sqlite" else "postgres"
        found[name] = main(["lint", "migration", str(file), "--dialect", dialect])

    assert found == {"up": 0, "down": 1}
