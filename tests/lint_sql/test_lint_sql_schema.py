"""The schema is what the files make in their order, or what the database says; never what a name promises."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from lint_sql_support import look, schema_of

from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward._core.sql_lexer import Dialect
from onceward.lint.sql.schema import SqlSchema, describe
from onceward.lint.sql.schema_database import read_database
from onceward.lint.sql.schema_files import ordered_files, without_down
from onceward.lint.sql.sql_lint import SqlOptions, read_schema
from servers.postgres import running, wanted

TABLES = """
CREATE TABLE expenses (id bigserial PRIMARY KEY, worker_id text NOT NULL, k text NOT NULL, done boolean DEFAULT false,
    made timestamptz DEFAULT now(), width char(36), CONSTRAINT expenses_key UNIQUE (worker_id, k));
CREATE TABLE "Odd Name" ("Key" text NOT NULL UNIQUE);
CREATE UNIQUE INDEX partial ON expenses (k) WHERE done = false;
CREATE UNIQUE INDEX lowered ON expenses (lower(k), worker_id);
CREATE TABLE later (k text UNIQUE DEFERRABLE);
CREATE TABLE equal (k text, UNIQUE NULLS NOT DISTINCT (k));
CREATE VIEW seen AS SELECT k FROM expenses;
CREATE TABLE parts (k text NOT NULL, n int NOT NULL, PRIMARY KEY (k, n)) PARTITION BY LIST (n);
"""


def uniques(schema: SqlSchema) -> dict[str, list[str]]:
    """By table, its constraints in words."""
    return {name: sorted(describe(one) for one in table.uniques) for name, table in schema.tables.items()}


class TestFiles:
    """Migration files."""

    def test_files_are_in_the_order_of_their_numbers(self, tmp_path: Path) -> None:
        """
        2 before 10, and what takes a migration back is left out.
        """
        for name in ("10_c.sql", "2_b.sql", "1_a.up.sql", "1_a.down.sql", "U3__undo.sql", "notes.txt"):
            (tmp_path / name).write_text("")

        assert [one.name for one in ordered_files([tmp_path])] == ["1_a.up.sql", "2_b.sql", "10_c.sql"]

    def test_what_stands_below_a_mark_for_the_way_down_is_blanked(self) -> None:
        """
        Lines keep their numbers, and an up behind a down is read.
        """
        text = "-- +goose Up\nCREATE TABLE a (b int);\n-- +goose Down\nDROP TABLE a;\n-- migrate:up\nSELECT 1;\n"

        blanked = without_down(text)

        assert "DROP" not in blanked
        assert "SELECT 1" in blanked
        assert blanked.count("\n") == text.count("\n")

    @pytest.mark.fault("lint-sql-drop-is-forgotten")
    def test_the_last_word_counts(self, tmp_path: Path) -> None:
        """
        A constraint that a later file drops, renames or makes of an index.
        """
        texts = [
            "CREATE TABLE a (k text NOT NULL CONSTRAINT one UNIQUE, v text UNIQUE, w text);",
            "ALTER TABLE a DROP CONSTRAINT one; ALTER TABLE a RENAME COLUMN v TO value;",
            "CREATE UNIQUE INDEX i ON a (k, w); ALTER TABLE a ADD CONSTRAINT two UNIQUE USING INDEX i;",
            "ALTER TABLE a RENAME TO b; ALTER TABLE b RENAME CONSTRAINT two TO three;",
            "CREATE TABLE c (k text UNIQUE); ALTER TABLE c DROP COLUMN k; CREATE TABLE d (k int); DROP TABLE d;",
            "DO $$ BEGIN ALTER TABLE b ALTER COLUMN w SET NOT NULL; END $$;",
        ]
        for number, text in enumerate(texts):
            (tmp_path / f"{number}.sql").write_text(text)

        schema, troubles = read_schema([tmp_path], SqlOptions())

        assert troubles == []
        assert uniques(schema) == {"b": ["a_v_key UNIQUE (value)", "three UNIQUE (k, w)"], "c": []}
        assert schema.tables["b"].columns["w"].not_null

    def test_a_file_that_cannot_be_parsed_is_told(self, tmp_path: Path) -> None:
        """
        Half a schema is no schema: the finding says where.
        """
        (tmp_path / "1.sql").write_text("CREATE TABLE a (k text UNIQUE);\nCREATE TABEL b ();\nCREATE TABLE c (k text);")

        schema, troubles = read_schema([tmp_path], SqlOptions())

        assert set(schema.tables) == {"a", "c"}
        assert [(one.code, one.line) for _, one in troubles] == [("OW901", 2)]

    @pytest.mark.fault("lint-sql-half-a-table-is-none")
    def test_a_table_that_was_only_altered_is_known_by_the_constraints_that_were_seen(self) -> None:
        """
        What was seen is there. What was not may be there all the same, so nothing follows from it.
        """
        schema = schema_of("ALTER TABLE a ADD COLUMN k text; ALTER TABLE a ADD CONSTRAINT ak UNIQUE (k);")
        insert = "INSERT INTO a (k, v) VALUES ($1, $2)"

        seen = look(f"{insert}; {insert} ON CONFLICT (k) DO NOTHING;", schema=schema).judged
        unseen = look(f"INSERT INTO a (v) VALUES ($1); {insert} ON CONFLICT (v) DO NOTHING;", schema=schema).judged

        assert [one.constraint for one in seen] == ["ak UNIQUE (k)"] * 2
        assert [(one.constraint, one.is_known) for one in unseen] == [("", False)] * 2

    def test_a_folder_without_sql_says_what_to_do(self, tmp_path: Path) -> None:
        """
        Migrations in Python are printed by their tool.
        """
        with pytest.raises(ConfigurationError, match="alembic upgrade head --sql"):
            read_schema([tmp_path], SqlOptions())

    def test_two_tables_of_one_name_are_not_mixed_up(self) -> None:
        """
        With its schema a table is itself; without, it is nobody's if there are two.
        """
        schema = schema_of("CREATE TABLE a.t (k text NOT NULL UNIQUE); CREATE TABLE b.t (k text NOT NULL);")

        assert look("INSERT INTO a.t VALUES ('1')", schema=schema).judged[0].refused
        assert look("INSERT INTO b.t VALUES ('1')", schema=schema).codes == ["OW201"]
        assert not look("INSERT INTO t VALUES ('1')", schema=schema).judged[0].is_known

    def test_a_view_is_said_to_be_one(self) -> None:
        """
        Its constraints are another table's.
        """
        (judged,) = look("INSERT INTO v VALUES ('1')", schema="CREATE VIEW v AS SELECT 1 AS k").judged

        assert judged.failure.startswith("v is a view: ")


@pytest.fixture
def database() -> Iterator[str]:
    if not wanted():
        pytest.skip("STORES leaves postgres out")
    with psycopg.connect(running().url(), autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS lint_sql_schema")
        admin.execute("CREATE DATABASE lint_sql_schema")
    url = running().url("lint_sql_schema")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLES)
    yield url
    with psycopg.connect(running().url(), autocommit=True) as admin:
        admin.execute("DROP DATABASE lint_sql_schema WITH (FORCE)")


class TestPostgres:
    """A live PostgreSQL."""

    def test_it_is_the_same_as_from_its_files(self, database: str) -> None:
        """
        Names, columns, expressions, predicates, NULLs and defaults.
        """
        live, files = read_database(database), schema_of(TABLES)

        assert uniques(live) == uniques(files)
        assert live.tables["seen"].kind == "view"
        for name in ("expenses", "Odd Name", "later", "equal", "parts"):
            mine, theirs = live.tables[name], files.tables[name]
            assert {one.name: one.not_null for one in mine.columns.values()} == {
                one.name: one.not_null for one in theirs.columns.values()
            }
            assert {one.deferrable for one in mine.uniques} == {one.deferrable for one in theirs.uniques}
        columns = live.tables["expenses"].columns
        assert [columns[name].default.kind for name in ("id", "done", "made") if columns[name].default] == [
            "fresh",
            "constant",
            "fresh",
        ]
        assert columns["width"].width == 36

    def test_inserts_are_judged_by_it(self, database: str) -> None:
        """
        By constraints that no file has named.
        """
        looked = look(
            "INSERT INTO expenses (worker_id, k) VALUES ($1, $2) ON CONFLICT (lower(k), worker_id) DO NOTHING;"
            "INSERT INTO later VALUES ($1) ON CONFLICT (k) DO NOTHING;"
            'INSERT INTO "Odd Name" VALUES ($1) ON CONFLICT ("Key") DO NOTHING;',
            schema=read_database(database),
        )

        assert looked.classes == "ABA"
        assert looked.judged[0].constraint == "lowered UNIQUE ((lower(k)), worker_id)"

    def test_it_is_only_read(self, database: str) -> None:
        """
        In a read-only transaction: the counter of written transactions stays where it is.
        """
        with psycopg.connect(database, autocommit=True) as connection:
            before = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
            read_database(database)
            after = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()

        assert before is not None
        assert after == (before[0] + 1,)

    def test_a_database_that_is_away_is_an_error_that_says_so(self) -> None:
        """
        And not a stack trace.
        """
        with pytest.raises(StoreUnavailable, match="cannot be read"):
            read_database("postgresql://127.0.0.1:1/nowhere")

    def test_no_permission_is_an_error_that_says_so(self, database: str) -> None:
        """
        A role that may not connect.
        """
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP ROLE IF EXISTS lint_nobody; CREATE ROLE lint_nobody NOLOGIN")
        with pytest.raises(StoreUnavailable, match="lint_nobody"):
            read_database(
                database.replace("postgres@", "lint_nobody@", 1) if "postgres@" in database else _as(database)
            )


def _as(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}user=lint_nobody"


class TestSqlite:
    """A SQLite file."""

    SCHEMA = """
    CREATE TABLE expenses (id INTEGER PRIMARY KEY, worker_id TEXT NOT NULL, K TEXT NOT NULL,
        made TEXT DEFAULT (datetime('now')), note TEXT DEFAULT 'x', UNIQUE (worker_id, K));
    CREATE UNIQUE INDEX partial ON expenses (K) WHERE note = 'x';
    CREATE UNIQUE INDEX lowered ON expenses (lower(K));
    CREATE TABLE named (k TEXT PRIMARY KEY);
    CREATE VIEW seen AS SELECT K FROM expenses;
    """

    def test_it_is_the_same_as_from_its_files(self, tmp_path: Path) -> None:
        """
        Names, columns, expressions, predicates and defaults.
        """
        with closing(sqlite3.connect(tmp_path / "a b.db")) as connection:
            connection.executescript(self.SCHEMA)

        live = read_database(f"sqlite:///{tmp_path}/a%20b.db")
        files = schema_of(self.SCHEMA, Dialect.SQLITE)

        assert uniques(live) == uniques(files)
        for name in ("expenses", "named"):
            assert {(one.name, one.not_null, one.default) for one in live.tables[name].columns.values()} == {
                (one.name, one.not_null, one.default) for one in files.tables[name].columns.values()
            }

    def test_a_file_that_is_not_there_is_not_made(self, tmp_path: Path) -> None:
        """
        A mistyped path must not become an empty schema.
        """
        with pytest.raises(ConfigurationError, match="there is no file"):
            read_database(f"sqlite:///{tmp_path}/none.db")

        assert list(tmp_path.iterdir()) == []

    def test_a_file_that_is_no_database_is_an_error(self, tmp_path: Path) -> None:
        """
        And is left as it was.
        """
        (tmp_path / "x.db").write_bytes(b"not a database" * 100)

        with pytest.raises(StoreUnavailable, match="SQLite database"):
            read_database(f"sqlite:///{tmp_path}/x.db")

    @pytest.mark.parametrize("url", ["mysql://host/db", "app.db", "sqlite://", "redis://x"])
    def test_other_urls_are_refused(self, url: str) -> None:
        """
        With what can be done instead.
        """
        with pytest.raises(ConfigurationError):
            read_database(url)
