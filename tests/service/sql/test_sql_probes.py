"""
Hostile SQL: every probe is refused in typed words, changes nothing, and leaves the database as usable as before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import OncewardError
from onceward.service.sql import Keyed, Limits, LocalDatabase, SqlError, SqlKind
from onceward.service.sql.authorizer import _IN_ALTER, FUNCTIONS, RULES, AuthorizerMode, SqlAuthorizer
from onceward.service.sql.limits import DEFAULT_LIMITS
from onceward.service.sql.requests import build_request
from onceward.service.sql.tenant_database import ReadOnlyDatabase, WritableDatabase

DENIED = "denied"

PROBES: dict[str, str] = {
    # Other files.
    "ATTACH 'other.db' AS other": DENIED,
    "ATTACH DATABASE ':memory:' AS other": DENIED,
    "/* x */ -- y\n ATTACH 'other.db' AS other": DENIED,
    ";;ATTACH 'other.db' AS other": DENIED,
    "DETACH main": DENIED,
    "VACUUM": "notInTransaction",
    "VACUUM INTO 'copy.db'": "notInTransaction",
    "vAcUuM main INTO 'copy.db'": "notInTransaction",
    "SELECT load_extension('x')": DENIED,
    "SELECT readfile('/etc/passwd')": DENIED + "|invalid",
    "SELECT writefile('x', 'y')": DENIED + "|invalid",
    "SELECT edit('x')": DENIED + "|invalid",
    "SELECT fts3_tokenizer('simple')": DENIED + "|invalid",
    "SELECT sqlite_compileoption_get(1)": DENIED,
    "SELECT sqlite_source_id()": DENIED,
    "SELECT sqlite_log(1, 'x')": DENIED,
    "CREATE VIRTUAL TABLE x USING fts5(a)": DENIED,
    "CREATE VIRTUAL TABLE x USING csv(filename='/etc/passwd')": DENIED + "|invalid",
    # Settings.
    "PRAGMA writable_schema = ON": DENIED,
    "PRAGMA main.writable_schema = 1": DENIED,
    "PRAGMA query_only = 0": DENIED,
    "PRAGMA foreign_keys = OFF": DENIED,
    "PRAGMA trusted_schema = ON": DENIED,
    "PRAGMA journal_mode = DELETE": "notInTransaction",
    "PRAGMA synchronous = OFF": "notInTransaction",
    "PRAGMA locking_mode = EXCLUSIVE": "notInTransaction",
    "PRAGMA max_page_count = 1000000000": DENIED,
    "PRAGMA hard_heap_limit = 0": DENIED,
    "PRAGMA soft_heap_limit = 0": DENIED,
    "PRAGMA temp_store_directory = '/tmp'": DENIED,
    "PRAGMA temp_store = FILE": DENIED,
    "PRAGMA mmap_size = 1000000000": DENIED,
    "PRAGMA wal_checkpoint(TRUNCATE)": "notInTransaction",
    "PRAGMA wal_autocheckpoint = 0": DENIED,
    "PRAGMA schema_version = 1": DENIED,
    "PRAGMA table_list": DENIED,
    "PRAGMA database_list": DENIED,
    "PRAGMA function_list": DENIED,
    "PRAGMA integrity_check": DENIED,
    "PRAGMA quick_check(mine)": DENIED,
    "PRAGMA optimize": DENIED,
    "PRAGMA case_sensitive_like = ON": DENIED,
    "PRAGMA table_info(onceward_records)": DENIED,
    "PRAGMA index_info('sqlite_autoindex_onceward_records_1')": DENIED,
    "SELECT * FROM pragma_table_info('onceward_records')": DENIED,
    "SELECT * FROM pragma_table_info('once' || 'ward_' || 'records')": DENIED,
    "SELECT * FROM pragma_table_list": DENIED,
    "SELECT * FROM pragma_database_list": DENIED,
    "SELECT * FROM pragma_user_version": DENIED,
    "SELECT * FROM pragma_writable_schema": DENIED + "|unknownTable",
    # Transactions.
    "BEGIN": DENIED,
    "BEGIN IMMEDIATE": DENIED,
    "COMMIT": DENIED,
    "END": DENIED,
    "ROLLBACK": DENIED,
    "SAVEPOINT request": DENIED,
    "RELEASE onceward_0": DENIED,
    "ROLLBACK TO request": DENIED,
    "INSERT OR ROLLBACK INTO mine VALUES (1, 'x')": DENIED,
    "CREATE TABLE bad (id INTEGER PRIMARY KEY ON CONFLICT ROLLBACK)": DENIED,
    "CREATE TRIGGER bad AFTER INSERT ON mine BEGIN SELECT RAISE(ROLLBACK, 'x'); END": DENIED,
    # Our tables, by every way.
    "SELECT * FROM onceward_records": DENIED,
    "SELECT count(*) FROM onceward_records": DENIED,
    'SELECT 1 FROM "OnceWard_Records"': DENIED,
    "SELECT * FROM main.[onceward_meta]": DENIED,
    "WITH x AS (SELECT * FROM onceward_records) SELECT * FROM x": DENIED,
    "SELECT * FROM mine WHERE id IN (SELECT fence FROM onceward_records)": DENIED,
    "SELECT (SELECT value FROM onceward_meta LIMIT 1)": DENIED,
    "SELECT 1 UNION SELECT key FROM onceward_records": DENIED,
    "INSERT INTO mine SELECT fence, key FROM onceward_records": DENIED,
    "INSERT INTO onceward_meta VALUES ('x', 1)": DENIED,
    "UPDATE onceward_records SET state = 'released'": DENIED,
    "DELETE FROM onceward_records": DENIED,
    "UPDATE mine SET a = key FROM onceward_records": DENIED,
    "DROP TABLE onceward_records": DENIED,
    "DROP INDEX onceward_due": DENIED,
    "ALTER TABLE onceward_records RENAME TO mine2": DENIED,
    "ALTER TABLE onceward_records ADD COLUMN x": DENIED,
    "ALTER TABLE mine RENAME TO onceward_new": DENIED,
    "ALTER TABLE mine RENAME COLUMN a TO onceward_a": DENIED,
    "CREATE TABLE onceward_new (a)": DENIED,
    "CREATE VIEW onceward_view AS SELECT 1": DENIED,
    "CREATE VIEW leak AS SELECT * FROM onceward_records": DENIED,
    "CREATE INDEX leak ON onceward_records (key)": DENIED,
    "CREATE TRIGGER leak AFTER INSERT ON onceward_records BEGIN SELECT 1; END": DENIED,
    "CREATE TRIGGER leak AFTER INSERT ON mine BEGIN DELETE FROM onceward_records; END": DENIED,
    "CREATE TABLE leak (id BLOB REFERENCES onceward_records (id) ON DELETE CASCADE)": DENIED,
    "CREATE TABLE leak AS SELECT * FROM onceward_records": DENIED,
    "EXPLAIN QUERY PLAN SELECT * FROM onceward_records": DENIED,
    "REINDEX onceward_records": DENIED,
    "REINDEX": DENIED,
    "ANALYZE": DENIED,
    "ANALYZE onceward_records": DENIED,
    # The schema.
    "SELECT * FROM sqlite_master": DENIED,
    "SELECT name FROM sqlite_schema": DENIED,
    "SELECT count(*) FROM sqlite_master": DENIED,
    "CREATE TABLE leak AS SELECT sql FROM sqlite_master": DENIED,
    "CREATE TABLE leak AS SELECT rowid AS r FROM sqlite_master": DENIED,
    "SELECT * FROM sqlite_temp_master": DENIED,
    "SELECT * FROM sqlite_stat1": DENIED + "|unknownTable",
    "SELECT * FROM dbstat": DENIED + "|unknownTable",
    "SELECT * FROM sqlite_dbpage": DENIED + "|unknownTable",
    "SELECT * FROM bytecode('SELECT 1')": DENIED + "|unknownTable",
    "INSERT INTO sqlite_master VALUES (1, 2, 3, 4, 5)": DENIED,
    "UPDATE sqlite_master SET sql = ''": DENIED,
    "DELETE FROM sqlite_master": DENIED,
    "UPDATE sqlite_sequence SET seq = 0": DENIED,
    "DROP TABLE sqlite_sequence": DENIED,
    "CREATE TABLE sqlite_mine (a)": DENIED,
    "EXPLAIN SELECT * FROM mine": DENIED,
    "EXPLAIN DROP TABLE mine": DENIED,
    # Temporary things.
    "CREATE TEMP TABLE x (a)": DENIED,
    "CREATE TEMPORARY VIEW x AS SELECT 1": DENIED,
    "CREATE TEMP TRIGGER x AFTER INSERT ON mine BEGIN SELECT 1; END": DENIED,
    "CREATE TABLE temp.x (a)": DENIED,
    # More than one statement, and none.
    "SELECT 1; SELECT 2": "syntax",
    "SELECT 1; DROP TABLE mine": "syntax",
    "SELECT 1 /* ; */ ; -- ;\n DELETE FROM mine": "syntax",
    "SELECT 'open": "syntax",
    'SELECT "open': "syntax",
    "": "syntax",
    " ; -- nothing\n": "syntax",
    "SELECT 1\x00; DROP TABLE mine": "syntax",
    "SELECT '\ud800'": "syntax",
}
"""A probe, and the kind of its refusal; alternatives where builds of SQLite differ."""

ENDLESS = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
BOMBS: dict[str, str] = {
    f"{ENDLESS} SELECT count(*) FROM c": "timeout",
    f"{ENDLESS} INSERT INTO mine SELECT x + 9, 'b' FROM c": "timeout",
    "SELECT count(*) FROM big a, big b, big c, big d WHERE a.x + b.x + c.x + d.x < 0": "timeout",
    "SELECT a.x FROM big a, big b, big c, big d ORDER BY random()": "timeout|tooLarge",
    "SELECT group_concat(a.x) FROM big a, big b, big c, big d": "timeout|tooLarge",
    "SELECT randomblob(900000000)": "tooLarge",
    "SELECT zeroblob(900000000)": "tooLarge",
    "SELECT hex(zeroblob(600000))": "tooLarge",
    "SELECT replace(hex(zeroblob(100000)), '0', 'twenty characters...')": "tooLarge",
    "SELECT 'x' LIKE '" + "%a" * 200 + "'": "tooLarge",
    "SELECT " + "(" * 200 + "1" + ")" * 200: "tooLarge|syntax",
    "SELECT " + "+".join(["1"] * 500): "tooLarge",
    "SELECT " + " UNION ALL SELECT ".join(["1"] * 200): "tooLarge",
    "SELECT " + ", ".join(["1"] * 300): "tooLarge",
    "SELECT max(" + ", ".join(["1"] * 120) + ")": "tooLarge",
    "CREATE TABLE wide (" + ", ".join(f"c{n}" for n in range(300)) + ")": "tooLarge",
    "SELECT ?100001": "tooManyParams",
    "SELECT '" + "x" * 100_000 + "'": "tooLarge",
    f"{ENDLESS} SELECT x FROM c LIMIT 3000000": "tooLarge|timeout",
}
"""What takes more time, memory or room than there is."""


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDatabase]:
    """One database for all probes: none of them may leave anything behind."""
    limits = Limits(statement_seconds=0.15)
    with LocalDatabase(tmp_path_factory.mktemp("probes") / "tenant.db", limits=limits) as database:
        database.query("CREATE TABLE mine (id INTEGER PRIMARY KEY AUTOINCREMENT, a TEXT)")
        database.query("INSERT INTO mine VALUES (1, 'one')", identity=Keyed("test:victim", "k"))
        database.query("CREATE TABLE big (x)")
        database.query(f"{ENDLESS} INSERT INTO big SELECT x FROM c LIMIT 1000")
        yield database


def contents(database: LocalDatabase) -> Any:
    """Everything in the file, ours included."""
    connection = database._database.connection
    tables = ["sqlite_master", "mine", "big", "onceward_records", "onceward_meta", "sqlite_sequence"]
    settings = ["journal_mode", "synchronous", "foreign_keys", "trusted_schema", "temp_store", "user_version"]
    rows = [connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables]
    return rows, [connection.execute(f"PRAGMA {name}").fetchone() for name in settings], connection.in_transaction


def came_to(ask: Callable[[], Any]) -> str:
    """The kind of the refusal; "" if there was none."""
    try:
        ask()
    except SqlError as refusal:
        return refusal.kind.value
    return ""


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_is_refused_and_changes_nothing(hosted: LocalDatabase, probe: str) -> None:
    """
    Whatever a tenant sends, other files, settings, transactions, our tables and the schema stay out of reach.
    """
    before = contents(hosted)

    assert came_to(lambda: hosted.query(probe)) in PROBES[probe].split("|")
    assert came_to(lambda: hosted.query(probe, identity=Keyed("test:attacker", "k"))) in PROBES[probe].split("|")
    assert before == contents(hosted)


def test_a_reader_refuses_the_same_probes(hosted: LocalDatabase) -> None:
    """
    On a read-only connection, too, each is refused; there it may be for writing.
    """
    reader = ReadOnlyDatabase(hosted._database.path, Limits(statement_seconds=0.15))
    let_through = []
    for probe, kinds in PROBES.items():
        try:
            outcome = reader.perform(build_request([probe], DEFAULT_LIMITS))
        except SqlError as refusal:
            outcome = refusal
        if not isinstance(outcome, SqlError) or outcome.kind.value not in [*kinds.split("|"), "readonly"]:
            let_through.append((probe, outcome))
    reader.close()

    assert let_through == []


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb[:60])
def test_a_bomb_is_stopped_and_changes_nothing(hosted: LocalDatabase, bomb: str) -> None:
    """
    Time, memory, rows and bytes end somewhere; the statement is then undone, and its key is free.
    """
    before = contents(hosted)

    assert came_to(lambda: hosted.query(bomb, identity=Keyed("test:attacker", "k"))) in BOMBS[bomb].split("|")
    assert before == contents(hosted)
    assert hosted.query("SELECT count(*) FROM big").rows == [[1000]]


def test_a_text_that_is_too_wide_is_not_built(hosted: LocalDatabase) -> None:
    """
    SQLite's printf gives NULL, or refuses, where its result would be longer than a value may be.
    """
    try:
        rows = hosted.query("SELECT printf('%900000000s', 'x')").rows
    except SqlError as refusal:
        assert refusal.kind == SqlKind.TOO_LARGE
    else:
        assert rows == [[None]]


def test_there_are_more_than_sixty_probes() -> None:
    """
    The list is long, and each line of it can fail.
    """
    assert len(PROBES) + len(BOMBS) > 120


WRITES = [
    "INSERT INTO mine VALUES (9, 'x')",
    "REPLACE INTO mine VALUES (1, 'x')",
    "UPDATE mine SET a = 'x'",
    "DELETE FROM mine",
    "WITH x AS (SELECT 1) DELETE FROM mine",
    "WITH x AS (SELECT 9) INSERT INTO mine SELECT *, 'x' FROM x RETURNING id",
    "INSERT INTO mine VALUES (9, 'x') RETURNING *",
    "CREATE TABLE other (a)",
    "CREATE TABLE other AS SELECT * FROM mine",
    "CREATE VIEW other AS SELECT 1",
    "CREATE INDEX other ON mine (a)",
    "CREATE TRIGGER other AFTER INSERT ON mine BEGIN SELECT 1; END",
    "DROP TABLE mine",
    "ALTER TABLE mine ADD COLUMN z",
    "PRAGMA user_version = 7",
    "PRAGMA application_id = 7",
    "EXPLAIN QUERY PLAN DELETE FROM mine",
]


@pytest.mark.parametrize("sql", WRITES)
@pytest.mark.parametrize("identity", [None, Keyed("test:reader", "k")], ids=["plain", "keyed"])
def test_who_may_only_read_cannot_write(hosted: LocalDatabase, sql: str, identity: Keyed | None) -> None:
    """
    No verb, no CTE, no RETURNING and no key makes a writer of a reader; alone and inside a batch.
    """
    before = contents(hosted)

    assert came_to(lambda: hosted.query(sql, identity=identity, readonly=True)) == "readonly"
    assert came_to(lambda: hosted.batch(["SELECT 1", sql], identity=identity, readonly=True)) == "readonly"
    assert before == contents(hosted)


def test_a_statement_that_was_compiled_for_us_is_not_run_for_a_tenant(place: Path) -> None:
    """
    The driver keeps compiled statements by their text. The engine's own text is still refused when a tenant sends it,
    and so is a writer's statement that a reader sends.
    """
    hosted = WritableDatabase(place, DEFAULT_LIMITS, {})
    ours = "SELECT count(*) FROM onceward_records"
    hosted.connection.execute(ours).fetchall()
    write = "CREATE TABLE IF NOT EXISTS t (a)"
    hosted.group([build_request([write], DEFAULT_LIMITS)])

    refusals = hosted.group(
        [build_request([ours], DEFAULT_LIMITS), build_request([write], DEFAULT_LIMITS, readonly=True)],
    )
    hosted.close()

    assert [refusal.kind.value for refusal in refusals if isinstance(refusal, SqlError)] == ["denied", "readonly"]


def test_every_action_of_sqlite_has_a_rule() -> None:
    """
    Each of the 33 action codes is decided by a line of its own; a code that nobody knows is denied.
    """
    guard = SqlAuthorizer()
    guard.mode = AuthorizerMode.WRITE

    assert set(range(1, 34)) == set(RULES)
    assert guard.authorize(99, None, None, None, None) == sqlite3.SQLITE_DENY
    assert guard.refusal is not None
    assert guard.refusal.kind == SqlKind.DENIED


def test_every_function_of_this_sqlite_is_either_listed_or_refused() -> None:
    """
    The functions that are left out are known, one by one: none of them is left out, or let in, by accident.
    """
    connection = sqlite3.connect(":memory:")
    here = {name for (name,) in connection.execute("SELECT DISTINCT name FROM pragma_function_list")}
    connection.close()
    left_out = {
        *("load_extension", "sqlite_log", "sqlite_source_id", "sqlite_version"),
        *("sqlite_compileoption_get", "sqlite_compileoption_used", "sqlite_offset", "sqlite_filestat"),
        *("fts3_tokenizer", "fts5", "fts5_source_id", "fts5_locale", "fts5_insttoken", "fts5_get_locale"),
        *("bm25", "highlight", "snippet", "matchinfo", "offsets", "optimize", "match", "regexp", "rtreecheck"),
        *("rtreedepth", "rtreenode", "geopoly_area", "soundex", "unknown", "stmtrand", "decimal", "uuid"),
    }
    geopoly = {name for name in here if name.startswith(("geopoly", "fts", "sqlite_"))}

    assert here - FUNCTIONS - left_out - geopoly == set()
    assert FUNCTIONS & (left_out | _IN_ALTER) == set()


def test_an_error_inside_the_authorizer_denies(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Should a rule itself break, nothing is let through.
    """
    with LocalDatabase(place) as database:

        def broken(guard: SqlAuthorizer, names: Any) -> None:
            raise RuntimeError("planted")

        monkeypatch.setitem(RULES, sqlite3.SQLITE_SELECT, broken)
        with pytest.raises(OncewardError):
            database.query("SELECT 1")


def test_without_its_rules_the_guard_would_let_a_probe_through(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The negative control: with the rule for reading taken away, our table is read.
    """
    with LocalDatabase(place) as database:
        monkeypatch.setitem(RULES, sqlite3.SQLITE_READ, lambda guard, names: None)

        assert database.query("SELECT count(*) FROM onceward_records").rows == [[0]]


ALLOWED = [
    "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, a TEXT UNIQUE, b REAL DEFAULT 1.5 CHECK (b > 0))",
    "CREATE TABLE u (id INTEGER PRIMARY KEY, t INTEGER REFERENCES t (id) ON DELETE CASCADE) STRICT",
    "CREATE TABLE w (k TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE UNIQUE INDEX i ON t (lower(a)) WHERE a IS NOT NULL",
    "CREATE VIEW v AS SELECT a, count(*) OVER () AS n FROM t",
    "CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO w VALUES (new.a); END",
    "INSERT INTO t (a) VALUES ('x'), ('y') RETURNING id",
    "INSERT INTO t (a) VALUES ('x') ON CONFLICT DO NOTHING",
    "INSERT INTO t (a) VALUES ('x') ON CONFLICT (a) DO UPDATE SET b = 2",
    "INSERT INTO u VALUES (1, 1)",
    "WITH c AS (SELECT 1 AS one) SELECT * FROM c, v",
    "SELECT json_extract('{\"a\": [1, 2]}', '$.a[1]'), '{\"a\": 1}' ->> 'a'",
    "SELECT value FROM json_each('[1, 2]')",
    "SELECT name FROM pragma_table_info('t')",
    "SELECT row_number() OVER (ORDER BY a), strftime('%Y', 'now'), round(2.5), current_timestamp FROM t",
    "SELECT * FROM sqlite_sequence",
    "PRAGMA table_info(t)",
    "PRAGMA user_version = 3",
    "PRAGMA user_version",
    "ALTER TABLE t ADD COLUMN c TEXT NOT NULL DEFAULT 'c' CHECK (c <> '')",
    "ALTER TABLE t RENAME COLUMN c TO d",
    "ALTER TABLE t DROP COLUMN d",
    "ALTER TABLE t RENAME TO t2",
    "EXPLAIN QUERY PLAN SELECT * FROM t2 WHERE a = 'x'",
    "CREATE TABLE copy AS SELECT * FROM t2",
    "DELETE FROM t2 WHERE id = 1",
    "DROP TRIGGER g",
    "DROP VIEW v",
    "DROP INDEX i",
    "DROP TABLE u",
    "DROP TABLE t2",
]


def test_honest_sql_works(database: LocalDatabase) -> None:
    """
    Tables, indexes, views, triggers, constraints, CTEs, windows, JSON, RETURNING and every ALTER are a tenant's own.
    """
    for sql in ALLOWED:
        database.query(sql, identity=Keyed("test:me", f"k{ALLOWED.index(sql)}"))

    assert [table.name for table in database.tables()] == ["copy", "w"]
