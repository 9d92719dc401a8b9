"""`onceward lint sql` and `onceward lint migration`, as people and CI type them."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lint_sql_support import HERE

from onceward.cli import main
from onceward.lint.sql import parsing


class Ran(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Type `onceward lint ...` in a folder with the documents' samples."""
    monkeypatch.chdir(tmp_path)
    for file in (HERE / "documents").glob("*.sql"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "base.sql").write_text(
        "CREATE TABLE expenses (id bigserial PRIMARY KEY, user_id bigint, amount numeric);"
    )

    def run(*words: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", out)
            patched.setattr(sys, "stderr", err)
            code = main(["lint", *words])
        return Ran(code, out.getvalue(), err.getvalue())

    return run


SCHEMA = ("--schema", "base.sql", "--schema", "migration.sql")


class TestSql:
    """`lint sql`."""

    @pytest.mark.requirement("B42")
    def test_as_json_each_insert_has_its_class_target_and_failure_mode(self, lint: Callable[..., Ran]) -> None:
        """
        For the three samples, and findings besides.
        """
        ran = lint("sql", "samples.sql", *SCHEMA, "--json")

        inserts = ran.document["inserts"]
        assert ran.code == 1
        assert [(one["class"], one["kind"], one["line"]) for one in inserts] == [
            ("A", "safe skip", 1),
            ("B", "duplicate factory", 5),
            ("C", "overwriting upsert", 8),
        ]
        target = ["worker_id", "idempotency_key"]
        assert [one["target"] for one in inserts] == [target, None, target]
        assert all(one["failure"] and one["judgedBySchema"] for one in inserts)
        assert {one["constraint"] for one in inserts} == {
            "expenses_worker_idem_key UNIQUE (worker_id, idempotency_key)"
        }
        assert [one["code"] for one in ran.document["findings"]] == ["OW202"]
        assert ran.document["schema"] == "files"

    def test_as_text_the_classes_come_first_and_then_the_findings(self, lint: Callable[..., Ran]) -> None:
        """
        Class, table, clause, constraint, what a retry does; then the line with a caret.
        """
        ran = lint("sql", "samples.sql", *SCHEMA)

        lines = ran.out.split("\n")
        assert lines[0].startswith("samples.sql:1:1: A safe skip: INSERT INTO expenses ON CONFLICT (worker_id, ")
        assert lines[1] == "    by expenses_worker_idem_key UNIQUE (worker_id, idempotency_key)"
        assert lines[2] == "    a retry is skipped"
        assert any(line.strip("^ ") == "" and "^" in line for line in lines)

    def test_without_a_schema_it_says_so(self, lint: Callable[..., Ran]) -> None:
        """
        On stderr for people, and as null for programs.
        """
        ran = lint("sql", "samples.sql", "--json")

        assert "no schema" in ran.err
        assert ran.document["schema"] is None
        assert not any(one["judgedBySchema"] for one in ran.document["inserts"])

    def test_the_example_of_the_docs_prints_what_is_shown_there(self, lint: Callable[..., Ran]) -> None:
        """
        The file makes its own table, so nothing is missing.
        """
        page = (Path(__file__).parents[2] / "docs" / "reference" / "lint.md").read_text(encoding="utf-8")
        saved = page.partition("```sql\n-- saved as expenses.sql\n")[2].partition("```")[0]
        shown = page.partition("$ onceward lint sql expenses.sql --intent no-double-send\n")[2].partition("```")[0]
        Path("expenses.sql").write_text("-- saved as expenses.sql\n" + saved)

        ran = lint("sql", "expenses.sql", "--intent", "no-double-send")

        assert ran.out == shown
        assert ran.err == ""

    @pytest.mark.fault("lint-sql-migrations-are-queries")
    def test_of_the_migrations_that_make_the_schema_only_routines_are_judged(self, lint: Callable[..., Ran]) -> None:
        """
        What a migration inserts is inserted once. A function is judged by its last definition, and not if it is gone.
        """
        body = "LANGUAGE sql AS $$ INSERT INTO log (line) VALUES ($1) $$;"
        Path("db").mkdir()
        Path("db/1.sql").write_text(
            f"CREATE TABLE log (line text); INSERT INTO log VALUES ('made');\n"
            f"CREATE FUNCTION note(text) RETURNS void {body}\nCREATE FUNCTION old(text) RETURNS void {body}"
        )
        Path("db/2.sql").write_text(
            f"DROP FUNCTION old(text);\nCREATE OR REPLACE FUNCTION note(text) RETURNS void {body}"
        )
        Path("db/2.down.sql").write_text("DROP TABLE log; INSERT INTO log VALUES ('gone');")
        Path("query.sql").write_text("INSERT INTO log VALUES ($1);")

        ran = lint("sql", ".", "--schema", "db", "--json", "--ignore", "OW9", "--select", "OW201")
        found = [(one["path"], one["line"]) for one in ran.document["findings"] if one["path"][:2] in ("db", "qu")]

        assert found == [("query.sql", 1), ("db/2.sql", 2)]

    def test_tests_are_left_out_unless_they_are_asked_for(self, lint: Callable[..., Ran]) -> None:
        """
        Tests insert without keys on purpose.
        """
        Path("checks/tests").mkdir(parents=True)
        for name in ("tests/any.sql", "log.test.sql", "log_test.sql"):
            Path("checks", name).write_text("INSERT INTO log VALUES (1);")

        assert lint("sql", "checks", "--json").document["files"] == 0
        assert lint("sql", "checks", "--json", "--tests").document["files"] == 3

    @pytest.mark.requirement("B33")
    def test_the_intent_makes_an_upsert_a_finding(self, lint: Callable[..., Ran]) -> None:
        """
        `--intent no-double-send`.
        """
        ran = lint(
            "sql", "samples.sql", *SCHEMA, "--intent", "no-double-send", "--select", "OW207", "--format", "github"
        )

        assert ran.code == 1
        assert "line=8" in ran.out
        assert lint("sql", "samples.sql", *SCHEMA, "--select", "OW207").code == 0

    def test_tsql_names_what_is_right(self, lint: Callable[..., Ran]) -> None:
        """
        `--dialect tsql` on the fifth document's procedure.
        """
        ran = lint("sql", "charge_create.sql", "--dialect", "tsql")

        assert ran.code == 1
        assert "right: key and effect are in one transaction" in ran.out
        assert "right: the constraint decides" in ran.out
        assert "OW212" in ran.out
        assert "OW213" in ran.out

    def test_a_sqlite_database_is_the_schema_and_the_dialect(self, lint: Callable[..., Ran], tmp_path: Path) -> None:
        """
        `--database sqlite:///app.db`.
        """
        with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
            connection.execute("CREATE TABLE t (k TEXT NOT NULL UNIQUE)")
        (tmp_path / "q.sql").write_text("INSERT OR IGNORE INTO t VALUES (?);")

        ran = lint("sql", "q.sql", "--database", "sqlite:///app.db", "--json")

        assert ran.code == 0
        assert ran.document["inserts"][0]["constraint"] == "UNIQUE (k)"

    def test_own_names_for_keys_and_scopes(self, lint: Callable[..., Ran], tmp_path: Path) -> None:
        """
        `--key` and `--scope`.
        """
        (tmp_path / "t.sql").write_text("CREATE TABLE t (shopper text, request_id text UNIQUE);")

        assert lint("sql", "t.sql").code == 0
        assert "OW224" in lint("sql", "t.sql", "--key", "request_id", "--scope", "shopper").out

    def test_an_ignore_with_a_reason_is_obeyed(self, lint: Callable[..., Ran], tmp_path: Path) -> None:
        """
        `-- onceward: ignore[OW201] reason`.
        """
        (tmp_path / "t.sql").write_text(
            "INSERT INTO log VALUES ($1); -- onceward: ignore[OW201] doubles do no harm here\n"
        )

        assert lint("sql", "t.sql").code == 0

    def test_sarif_is_written(self, lint: Callable[..., Ran]) -> None:
        """
        With the rules' names.
        """
        run = lint("sql", "samples.sql", "--format", "sarif").document["runs"][0]

        assert [one["ruleId"] for one in run["results"]] == ["OW201"]
        assert run["tool"]["driver"]["rules"][0]["name"] == "DuplicateFactory"


class TestMigration:
    """`lint migration`."""

    @pytest.mark.requirement("B32")
    def test_a_migration_without_the_unique_is_refused_naming_it(
        self, lint: Callable[..., Ran], tmp_path: Path
    ) -> None:
        """
        Exit code 1, and the constraint that is missing.
        """
        whole = (tmp_path / "migration.sql").read_text()
        (tmp_path / "bad.sql").write_text(whole[: whole.index("ALTER TABLE expenses\nADD CONSTRAINT")])

        ran = lint("migration", "bad.sql", "--schema", "base.sql")

        assert lint("migration", "migration.sql", "--schema", "base.sql").code == 0
        assert ran.code == 1
        assert "CONSTRAINT expenses_worker_idem_key UNIQUE (worker_id, idempotency_key)" in ran.out

    def test_dropping_a_keys_constraint_is_found_by_what_was_there_before(
        self, lint: Callable[..., Ran], tmp_path: Path
    ) -> None:
        """
        In a migration that says nothing of keys.
        """
        (tmp_path / "later.sql").write_text("ALTER TABLE expenses DROP CONSTRAINT expenses_worker_idem_key;")

        assert lint("migration", "later.sql").code == 0
        ran = lint("migration", "later.sql", *SCHEMA)
        assert ran.code == 1
        assert "OW223" in ran.out


class TestBadInput:
    """Each has a clear error, an exit code, and nothing is half-done."""

    @pytest.mark.parametrize(
        ("text", "code", "says"),
        [
            ("INSERT INTO t VALUES (1", 1, "OW901 cannot be parsed as postgres: syntax error at end of input"),
            ("SELEC 1; INSERT INTO t VALUES (1);", 1, 'syntax error at or near "SELEC"'),
            ("INSERT INTO `t` (a) VALUES (1);", 1, "It looks like MySQL, which is not supported"),
            ("CREATE TABLE [dbo].[t] (a int);", 1, "It looks like T-SQL: add --dialect tsql"),
            ("PRAGMA foreign_keys = ON;", 1, "It looks like SQLite: add --dialect sqlite"),
            ("", 0, "no findings in 1 file"),
            ("-- nothing\n/* at all */", 0, "no findings in 1 file"),
            ("CREATE VIEW v AS SELECT 1 AS k; INSERT INTO v VALUES (1);", 1, "v is a view"),
            ('INSERT INTO "select" ("from") VALUES (1);', 1, "INSERT INTO select"),
            ("CREATE TABLE t (a int); INSERT INTO t VALUES (1);", 1, "t has no unique constraint"),
        ],
    )
    def test_texts(self, text: str, code: int, says: str, lint: Callable[..., Ran], tmp_path: Path) -> None:
        """
        What does not parse, other dialects, nothing at all, a view, names that need quotes, a table without a key.
        """
        (tmp_path / "x.sql").write_text(text)

        ran = lint("sql", "x.sql")

        assert ran.code == code
        assert says in ran.out

    @pytest.mark.parametrize(
        ("words", "code", "says"),
        [
            (("sql", "none.sql"), 2, "there is no file or folder 'none.sql'"),
            (("sql", "samples.sql", "--schema", "none"), 2, "there is no file or folder 'none'"),
            (("sql", "samples.sql", "--schema", "empty"), 2, "there are no .sql files in 'empty'"),
            (("sql", "samples.sql", "--database", "mysql://x/y"), 2, "--schema FOLDER"),
            (("sql", "samples.sql", "--database", "sqlite:///none.db"), 2, "there is no file none.db"),
            (("sql", "samples.sql", "--database", "sqlite:///samples.sql"), 4, "Is it a SQLite database"),
            (("sql", "samples.sql", "--database", "postgresql://127.0.0.1:1/x"), 4, "cannot be read"),
            (("sql", "samples.sql", "--database", "sqlite:///a", "--schema", "b"), 2, "choose one of them"),
            (("sql", "samples.sql", "--database", "sqlite:///a", "--dialect", "tsql"), 2, "does not match"),
            (("sql", "samples.sql", "--dialect", "mysql"), 2, "mysql"),
            (("sql", "samples.sql", "--intent", "send-twice"), 2, "send-twice"),
            (("sql", "samples.sql", "--select", "OW299"), 2, "there is no rule 'OW299'"),
            (("migration", "none.sql"), 2, "there is no file or folder"),
            (("migration", "samples.sql", "--intent", "no-double-send"), 2, "no option --intent"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
    )
    def test_words(
        self, words: tuple[str, ...], code: int, says: str, lint: Callable[..., Ran], tmp_path: Path
    ) -> None:
        """
        Files, folders, databases and options that are not there: one line that says what to do.
        """
        (tmp_path / "empty").mkdir()

        ran = lint(*words)

        assert ran.code == code
        assert says in ran.err
        assert "Traceback" not in ran.err

    @pytest.mark.fault("lint-sql-without-parsers")
    def test_without_the_parsers_it_says_what_to_install(
        self, lint: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        The extra, by name.
        """
        monkeypatch.setattr(parsing, "find_spec", lambda name: None)

        ran = lint("sql", "samples.sql")

        assert ran.code == 2
        assert "pip install 'onceward[lint]'" in ran.err
