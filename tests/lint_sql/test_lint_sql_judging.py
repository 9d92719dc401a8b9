"""
The judge and the databases agree: each INSERT is run twice on real PostgreSQL and SQLite, and what became of it is
compared with what the linter had said.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from lint_sql_support import look
from psycopg.rows import tuple_row

from onceward._core.sql_lexer import Dialect
from onceward.lint.sql.insert_judge import Judgement
from servers.postgres import running, wanted

PLAIN = "CREATE TABLE t (id {number}, k text NOT NULL, v text DEFAULT 'a')"
KEYED = "CREATE TABLE t (id {number}, k text NOT NULL UNIQUE, v text DEFAULT 'a')"
NULLABLE = "CREATE TABLE t (id {number}, k text UNIQUE, v text DEFAULT 'a')"
PAIR = "CREATE TABLE t (id {number}, w text NOT NULL, k text NOT NULL, v text, UNIQUE (w, k))"
OPTIONAL = "CREATE TABLE t (id {number}, k text, v text); CREATE UNIQUE INDEX i ON t (k) WHERE k IS NOT NULL"
LOWER = "CREATE TABLE t (id {number}, k text NOT NULL, v text); CREATE UNIQUE INDEX i ON t (lower(k))"

BOTH = [
    (PLAIN, "INSERT INTO t (k) VALUES ('1')"),
    (KEYED, "INSERT INTO t (k) VALUES ('1')"),
    (KEYED, "INSERT INTO t (k) VALUES ('1') ON CONFLICT (k) DO NOTHING"),
    (KEYED, "INSERT INTO t (k) VALUES ('1') ON CONFLICT DO NOTHING"),
    (KEYED, "INSERT INTO t (k, v) VALUES ('1', 'x') ON CONFLICT (k) DO UPDATE SET v = 'y'"),
    (KEYED, "INSERT INTO t (k) VALUES ('1') ON CONFLICT (k) DO UPDATE SET k = EXCLUDED.k"),
    (KEYED, "INSERT INTO t (k) SELECT '1' WHERE true ON CONFLICT (k) DO NOTHING"),
    (KEYED, "INSERT INTO t (k) VALUES ('1') ON CONFLICT (v) DO NOTHING"),
    (PLAIN, "INSERT INTO t (k) VALUES ('1') ON CONFLICT (k) DO NOTHING"),
    (NULLABLE, "INSERT INTO t (v) VALUES ('x') ON CONFLICT (k) DO NOTHING"),
    (NULLABLE, "INSERT INTO t (k) VALUES (NULL) ON CONFLICT (k) DO NOTHING"),
    (NULLABLE, "INSERT INTO t (k) VALUES ('1') ON CONFLICT (k) DO NOTHING"),
    (PAIR, "INSERT INTO t (w, k) VALUES ('a', '1') ON CONFLICT (k, w) DO NOTHING"),
    (PAIR, "INSERT INTO t (w, k) VALUES ('a', '1') ON CONFLICT (k) DO NOTHING"),
    (OPTIONAL, "INSERT INTO t (k) VALUES ('1') ON CONFLICT (k) DO NOTHING"),
    (OPTIONAL, "INSERT INTO t (k) VALUES ('1') ON CONFLICT (k) WHERE k IS NOT NULL DO NOTHING"),
    (LOWER, "INSERT INTO t (k) VALUES ('A') ON CONFLICT (lower(k)) DO NOTHING"),
    (LOWER, "INSERT INTO t (k) VALUES ('A') ON CONFLICT (k) DO NOTHING"),
    (LOWER, "INSERT INTO t (k) VALUES ('A') ON CONFLICT DO NOTHING"),
]
POSTGRES = [
    *BOTH,
    (KEYED, "INSERT INTO t (k) VALUES ('1') ON CONFLICT ON CONSTRAINT t_k_key DO NOTHING"),
    (KEYED, "INSERT INTO t (k) VALUES ('1') ON CONFLICT ON CONSTRAINT k_key DO NOTHING"),
    (KEYED, "INSERT INTO t (k) VALUES (gen_random_uuid()) ON CONFLICT (k) DO NOTHING"),
    (KEYED, "WITH x AS (INSERT INTO t (k) VALUES ('1') ON CONFLICT (k) DO NOTHING RETURNING 1) SELECT * FROM x"),
    ("CREATE TABLE t (k int, UNIQUE NULLS NOT DISTINCT (k))", "INSERT INTO t VALUES (NULL) ON CONFLICT (k) DO NOTHING"),
    ("CREATE TABLE t (k text PRIMARY KEY DEFERRABLE)", "INSERT INTO t VALUES ('1') ON CONFLICT (k) DO NOTHING"),
    ("CREATE TABLE t (k uuid PRIMARY KEY DEFAULT gen_random_uuid())", "INSERT INTO t DEFAULT VALUES"),
    ("CREATE TABLE o (k text PRIMARY KEY); CREATE TABLE t (LIKE o INCLUDING ALL)", "INSERT INTO t VALUES ('1')"),
    ("CREATE TABLE t (k text NOT NULL, d int NOT NULL DEFAULT 1, PRIMARY KEY (k, d)) PARTITION BY LIST (d);"
     "CREATE TABLE p PARTITION OF t FOR VALUES IN (1)", "INSERT INTO t (k) VALUES ('1') ON CONFLICT (k, d) DO NOTHING"),
]  # fmt: skip
SQLITE = [
    *BOTH,
    (KEYED, "INSERT OR IGNORE INTO t (k) VALUES ('1')"),
    (KEYED, "INSERT OR REPLACE INTO t (k, v) VALUES ('1', 'x')"),
    (KEYED, "REPLACE INTO t (k, v) VALUES ('1', 'x')"),
    (KEYED, "INSERT OR ABORT INTO t (k) VALUES ('1')"),
    (KEYED, "INSERT INTO t (k) VALUES (hex(randomblob(8))) ON CONFLICT (k) DO NOTHING"),
    ("CREATE TABLE t (k text PRIMARY KEY)", "INSERT INTO t VALUES (NULL) ON CONFLICT (k) DO NOTHING"),
    ("CREATE TABLE t (k text PRIMARY KEY) WITHOUT ROWID", "INSERT INTO t VALUES ('1') ON CONFLICT (k) DO NOTHING"),
    ("CREATE TABLE t (k text UNIQUE ON CONFLICT IGNORE)", "INSERT INTO t VALUES ('1')"),
    ("CREATE TABLE t (id {number}, k text NOT NULL UNIQUE ON CONFLICT REPLACE)", "INSERT INTO t (k) VALUES ('1')"),
    ("CREATE TABLE t (id integer primary key, v text)", "INSERT INTO t (v) VALUES ('x')"),
    ("CREATE TABLE t (id integer primary key, v text)", "INSERT INTO t (id) VALUES (1) ON CONFLICT (id) DO NOTHING"),
]  # fmt: skip

CASES = [(Dialect.POSTGRES, *case) for case in POSTGRES if wanted()] + [(Dialect.SQLITE, *case) for case in SQLITE]
NUMBERS = {Dialect.POSTGRES: "bigserial", Dialect.SQLITE: "integer PRIMARY KEY AUTOINCREMENT"}


class _Database:
    """A database of either kind, in which statements are run one by one."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, text: str) -> str:
        """What came of it: nothing, or "refused" (a unique constraint) or "failed"."""
        try:
            self._connection.execute(text)
        except (psycopg.errors.UniqueViolation, sqlite3.IntegrityError):
            return "refused"
        except (psycopg.Error, sqlite3.Error):
            return "failed"
        return ""

    def rows(self) -> list[tuple[Any, ...]]:
        return list(self._connection.execute("SELECT * FROM t").fetchall())


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[_Database]:
    if request.param is Dialect.SQLITE:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            yield _Database(connection)
    else:
        with psycopg.connect(running().url(), autocommit=True, row_factory=tuple_row) as real:
            real.execute("DROP SCHEMA IF EXISTS lint_sql CASCADE; CREATE SCHEMA lint_sql; SET search_path = lint_sql")
            yield _Database(real)
            real.execute("DROP SCHEMA lint_sql CASCADE")


def _what_happens(database: _Database, insert: str) -> str:
    """Run it twice, and say what the retry did, in the linter's words."""
    if database.run(insert) == "failed":
        return "fails"
    before = database.rows()
    answer = database.run(insert)
    after = database.rows()
    if answer:
        return answer
    return "doubled" if len(after) > len(before) else "skipped" if after == before else "overwritten"


def _what_was_said(judged: Judgement) -> str:
    if "it fails every time" in judged.failure:
        return "fails"
    if judged.refused:
        return "refused"
    return {"A": "skipped", "B": "doubled", "C": "overwritten"}[judged.kind.value]


@pytest.mark.requirement("B42")
@pytest.mark.fault("lint-sql-nulls-are-equal", "lint-sql-any-index-matches", "lint-sql-fresh-is-given")
@pytest.mark.parametrize(
    ("database", "dialect", "schema", "insert"),
    [(case[0], *case) for case in CASES],
    indirect=["database"],
    ids=[f"{case[0].value}-{number}" for number, case in enumerate(CASES)],
)
def test_the_judge_says_what_the_database_does(database: _Database, dialect: Dialect, schema: str, insert: str) -> None:
    """
    Skipped, doubled, overwritten, refused with an error, or failing each time.
    """
    schema = schema.format(number=NUMBERS[dialect])
    for statement in schema.split(";"):
        assert database.run(statement) == ""

    (judged,) = look(insert, schema=schema, dialect=dialect).judged

    assert _what_was_said(judged) == _what_happens(database, insert)
