"""Tables that cannot be migrated, and databases that do not let us: one clear line, and nothing is half-done."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from migrate_subject import Subject, subject_of

from onceward.runtime.environment import Environment
from servers.postgres import kinds, needed, running

BOTH = {
    "no primary key": ("CREATE TABLE expenses (id integer, amount integer)", "has no primary key"),
    "two columns": ("CREATE TABLE expenses (a integer, b integer, PRIMARY KEY (a, b))", "has 2 columns"),
    "a view": ("CREATE VIEW expenses AS SELECT 1 AS id", "view"),
    "another type": (
        "CREATE TABLE expenses (id integer PRIMARY KEY, idempotency_key integer)",
        "already exists with the type",
    ),
    "a default": ("CREATE TABLE expenses (id integer PRIMARY KEY, idempotency_key text DEFAULT '')", "default"),
    "no table": ("CREATE TABLE other (id integer PRIMARY KEY)", "no table"),
}
POSTGRES = {
    "partitioned": ("CREATE TABLE expenses (id integer PRIMARY KEY) PARTITION BY RANGE (id)", "a partitioned table"),
    "a partition": (
        "CREATE TABLE whole (id integer PRIMARY KEY) PARTITION BY RANGE (id); "
        "CREATE TABLE expenses PARTITION OF whole FOR VALUES FROM (0) TO (9)",
        "part of a partitioned",
    ),
    "a parent": (
        "CREATE TABLE expenses (id integer PRIMARY KEY); CREATE TABLE child () INHERITS (expenses)",
        "inherited",
    ),
    "a materialized view": ("CREATE MATERIALIZED VIEW expenses AS SELECT 1 AS id", "a materialized view"),
    "a timestamp": ("CREATE TABLE expenses (id timestamptz PRIMARY KEY)", "may differ between sessions"),
    "too short": (
        "CREATE TABLE expenses (id integer PRIMARY KEY, idempotency_key varchar(36))",
        "already exists with the type",
    ),
    "a taken name": (
        "CREATE TABLE expenses (id integer PRIMARY KEY); CREATE TABLE expenses_worker_idem_key (a integer)",
        "something else is named expenses_worker_idem_key",
    ),
}
SQLITE = {
    "virtual": ("CREATE VIRTUAL TABLE expenses USING fts5(body)", "is a virtual"),
    "mixed ids": (
        "CREATE TABLE expenses (id PRIMARY KEY); INSERT INTO expenses VALUES (1), ('1')",
        "must be all integers or all text",
    ),
    "a null id": ("CREATE TABLE expenses (id text PRIMARY KEY); INSERT INTO expenses VALUES (NULL)", "null"),
    "a taken name": (
        "CREATE TABLE expenses (id integer PRIMARY KEY, a); CREATE INDEX expenses_worker_idem_key ON expenses (a)",
        "another index named",
    ),
}


def _schema(subject: Subject) -> list[tuple[Any, ...]]:
    return subject.run(
        "SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2"
        if subject.kind == "sqlite"
        else "SELECT relname, attname, atttypid::int, attnotnull FROM pg_class c JOIN pg_attribute a "
        "ON a.attrelid = c.oid WHERE relnamespace = 'public'::regnamespace ORDER BY 1, 2"
    )


CASES = [
    pytest.param(kind, *case, id=f"{kind} {what}")
    for kind in kinds()
    for what, case in (BOTH | (SQLITE if kind == "sqlite" else POSTGRES)).items()
]


@pytest.mark.parametrize(("kind", "script", "says"), CASES)
def test_a_table_that_cannot_be_migrated_is_refused(
    kind: str, script: str, says: str, tmp_path: Path, typed: Any
) -> None:
    """
    Printed or applied: one line that names what is wrong, and the schema is as it was.
    """
    with subject_of(kind, tmp_path) as subject:
        subject.script(script)
        before = _schema(subject)

        ran = [typed(command, "expenses", "--database", subject.url) for command in ("generate", "apply")]

        for one in ran:
            assert (one.code, one.out, len(one.err.splitlines())) == (2, "", 1), one.err
            assert says in one.err
        assert _schema(subject) == before


@pytest.mark.parametrize("name", ["", "e" * 300])
def test_a_name_that_cannot_be_is_refused(subject: Subject, typed: Any, name: str) -> None:
    """
    Nothing, and more than a name can hold.
    """
    ran = typed("apply", name, "--database", subject.url)

    assert (ran.code, len(ran.err.splitlines())) == (2, 1)


def test_a_name_that_leaves_no_room_for_the_constraint_is_refused(tmp_path: Path, typed: Any) -> None:
    """
    PostgreSQL would cut the constraint's name in silence.
    """
    needed()
    with subject_of("postgres", tmp_path) as subject:
        subject.expenses(1, f'"{"e" * 48}"')

        ran = typed("apply", "e" * 48, "--database", subject.url)

    assert (ran.code, "longer than 47 bytes" in ran.err) == (2, True)


def test_two_rows_with_one_key_are_found_before_the_constraint(subject: Subject, typed: Any) -> None:
    """
    The message names the key. What was done stays; after one of them is mended, the same command ends it.
    """
    subject.expenses(5)
    typed("apply", "expenses", "--database", subject.url, "--until", "add")
    subject.run("UPDATE expenses SET worker_id = 'w', idempotency_key = 'twice' WHERE id < 3")

    refused = typed("apply", "expenses", "--database", subject.url)
    subject.run("UPDATE expenses SET idempotency_key = 'once' WHERE id = 1")
    ended = typed("apply", "expenses", "--database", subject.url, "--json")

    assert (refused.code, "'twice'" in refused.err) == (2, True)
    assert (ended.code, json.loads(ended.out)["constrained"]) == (0, True)


@pytest.mark.fault("migrate-asks-no-permission")
def test_a_role_that_may_not_is_refused_before_anything_is_done(tmp_path: Path, typed: Any) -> None:
    """
    Only the owner may alter a table; a role that may update rows must not begin.
    """
    needed()
    with subject_of("postgres", tmp_path) as subject:
        subject.expenses(3)
        name = subject.url.rpartition("/")[2]
        with running().role("migrate_guest", database=name) as role:
            subject.run(f"GRANT ALL ON expenses TO {role}")
            before = subject.shape()

            ran = typed("apply", "expenses", "--database", running().url(name, user=role))

            assert (ran.code, "may not change" in ran.err, len(ran.err.splitlines())) == (2, True, 1)
            assert subject.shape() == before


def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path, typed: Any) -> None:
    """
    A missing file is not made, and a file that is no database is left alone.
    """
    (tmp_path / "notes.db").write_text("my notes, " * 1_000)

    missing = typed("apply", "expenses", "--database", f"sqlite:///{tmp_path}/nothing.db")
    notes = typed("apply", "expenses", "--database", f"sqlite:///{tmp_path}/notes.db")

    assert (missing.code, notes.code) == (2, 4)
    assert [one.name for one in tmp_path.iterdir()] == ["notes.db"]


@pytest.mark.parametrize("url", ["mysql://localhost/app", "memory://", "expenses.db", "redis://localhost"])
def test_another_database_is_refused(typed: Any, url: str) -> None:
    """
    The message names the two that there are.
    """
    ran = typed("apply", "expenses", "--database", url)

    assert (ran.code, "PostgreSQL and SQLite" in ran.err) == (2, True)


def test_a_server_that_is_away_is_one_line(typed: Any) -> None:
    """
    No traceback, and exit code 4.
    """
    ran = typed("apply", "expenses", "--database", "postgresql://postgres@127.0.0.1:1/app")

    assert (ran.code, len(ran.err.splitlines())) == (4, 1)


def test_a_database_that_goes_away_in_the_middle_can_be_gone_on_with(tmp_path: Path, typed: Any) -> None:
    """
    The session is ended from outside after the first batch: one line, exit code 4, and the next run ends it.
    """
    needed()
    with subject_of("postgres", tmp_path) as subject:
        subject.expenses(100)
        # The trigger ends the migration's own session at the thirtieth row, once.
        subject.script(
            "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$; "
            "CREATE TRIGGER cut BEFORE UPDATE ON expenses FOR EACH ROW WHEN (NEW.id = 30) EXECUTE FUNCTION cut()"
        )
        words = ("apply", "expenses", "--database", subject.url, "--batch", "20")

        cut = typed(*words)
        filled = [row for row in subject.stored_keys() if row[1] is not None]
        subject.run("DROP TRIGGER cut ON expenses")
        ended = typed(*words, "--json")

    assert (cut.code, cut.out, "run the same command again" in cut.err) == (4, "", True)
    assert len(filled) == 20
    assert (ended.code, json.loads(ended.out)["rowsFilled"], json.loads(ended.out)["constrained"]) == (0, 80, True)


def test_a_table_that_others_hold_is_given_up_after_some_tries(subject: Subject, typed: Any, still: Any) -> None:
    """
    Whoever waits for a lock keeps everybody behind it waiting: so it waits a little, tries again, and says so.
    """
    subject.expenses(3)
    with closing(subject.connect()) as holder:
        holder.execute("BEGIN IMMEDIATE" if subject.kind == "sqlite" else "BEGIN")
        if subject.kind == "postgres":
            holder.execute("LOCK TABLE expenses IN ROW EXCLUSIVE MODE")
        ran = typed("apply", "expenses", "--database", subject.url, "--lock-timeout", "0.05")
        holder.execute("ROLLBACK")

    assert (ran.code, ran.out) == (4, "")
    assert typed("apply", "expenses", "--database", subject.url).code == 0


def test_two_at_once_are_one(tmp_path: Path, typed: Any) -> None:
    """
    On PostgreSQL the second is told that another is at work.
    """
    needed()
    with subject_of("postgres", tmp_path) as subject:
        subject.expenses(3)
        with psycopg.connect(subject.url, autocommit=True) as other:
            other.execute("""SELECT pg_advisory_lock(hashtext('onceward migrate'), hashtext('"public"."expenses"'))""")
            ran = typed("apply", "expenses", "--database", subject.url, "--lock-timeout", "0.05")

        assert (ran.code, "another `onceward migrate apply`" in ran.err) == (4, True)
        assert typed("apply", "expenses", "--database", subject.url).code == 0


def test_a_row_that_a_trigger_keeps_as_it_is_stops_the_migration(tmp_path: Path, typed: Any) -> None:
    """
    It must not go round for ever: the message says that a trigger or a policy is in the way.
    """
    needed()
    with subject_of("postgres", tmp_path) as subject:
        subject.expenses(3)
        subject.script(
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; "
            "CREATE TRIGGER keep BEFORE UPDATE ON expenses FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION keep()"
        )

        ran = typed("apply", "expenses", "--database", subject.url)

    assert (ran.code, "a trigger or a policy" in ran.err) == (2, True)


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries take no time."""
    monkeypatch.setattr(Environment, "sleep", lambda self, seconds: None)
