"""
What SQLite says becomes a kind, a place and a hint; every line of the table is held against the real library.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from onceward import KeyReused, OncewardError, OutcomeUnknown
from onceward.errors import RetryAdvice, StoreCorrupt
from onceward.service.sql import EngineClosed, Limits, LocalDatabase, SqlError, SqlKind
from onceward.service.sql.sqlite_errors import BY_CODE, BY_MESSAGE, translate_sqlite_error
from onceward.service.sql.worker_errors import from_wire, to_wire

SCHEMA = [
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT UNIQUE, b TEXT NOT NULL DEFAULT 'b', c INTEGER CHECK (c > 0))",
    "CREATE TABLE pair (x, y, CONSTRAINT both UNIQUE (x, y))",
    "CREATE TABLE words (word)",
    "CREATE UNIQUE INDEX lowered ON words (lower(word))",
    "CREATE TABLE child (id INTEGER PRIMARY KEY, t INTEGER REFERENCES t (id))",
    "CREATE TABLE orphan (t INTEGER REFERENCES pair (x))",
    "CREATE TABLE strict (n INTEGER) STRICT",
    "CREATE TABLE named (n CONSTRAINT positive CHECK (n > 0))",
    "CREATE TRIGGER stern BEFORE DELETE ON t BEGIN SELECT RAISE(ABORT, 'rows of t stay'); END",
    "CREATE VIEW v AS SELECT * FROM t",
    "INSERT INTO t VALUES (1, 'one', 'b', 1)",
    "INSERT INTO pair VALUES (1, 2)",
    "INSERT INTO words VALUES ('one')",
]

TABLE: list[tuple[str, list[Any] | dict[str, Any] | None, str, dict[str, str]]] = [
    ("INSERT INTO t (a) VALUES ('one')", None, "uniqueViolation", {"table": "t", "column": "a"}),
    ("INSERT INTO t (id) VALUES (1)", None, "uniqueViolation", {"table": "t", "column": "id"}),
    ("INSERT INTO pair VALUES (1, 2)", None, "uniqueViolation", {"table": "pair", "column": "x, y"}),
    ("INSERT INTO words VALUES ('ONE')", None, "uniqueViolation", {"constraint": "lowered"}),
    ("INSERT INTO t (b) VALUES (NULL)", None, "notNull", {"table": "t", "column": "b"}),
    ("INSERT INTO child VALUES (1, 99)", None, "foreignKey", {}),
    ("INSERT INTO orphan VALUES (1)", None, "foreignKey", {}),
    ("INSERT INTO t (c) VALUES (0)", None, "check", {"constraint": "c > 0"}),
    ("INSERT INTO named VALUES (0)", None, "check", {"constraint": "positive"}),
    ("DELETE FROM t", None, "check", {}),
    ("INSERT INTO strict VALUES ('x')", None, "type", {"table": "strict", "column": "n"}),
    ("INSERT INTO t (id) VALUES ('x')", None, "type", {}),
    ("SELECT CAST(x'ff' AS TEXT)", None, "type", {}),
    ("SELECT 9e999", None, "type", {}),
    ("SELECT * FROM nowhere", None, "unknownTable", {"table": "nowhere"}),
    ("INSERT INTO nowhere VALUES (1)", None, "unknownTable", {"table": "nowhere"}),
    ("DROP TABLE nowhere", None, "unknownTable", {"table": "nowhere"}),
    ("DROP VIEW nowhere", None, "unknownTable", {"table": "nowhere"}),
    ("SELECT absent FROM t", None, "unknownColumn", {"column": "absent"}),
    ("INSERT INTO t (absent) VALUES (1)", None, "unknownColumn", {"table": "t", "column": "absent"}),
    ("UPDATE t SET absent = 1", None, "unknownColumn", {"column": "absent"}),
    ("SELEC 1", None, "syntax", {}),
    ("SELECT (1", None, "syntax", {}),
    ("SELECT 'x", None, "syntax", {}),
    ("SELECT 1; SELECT 2", None, "syntax", {}),
    ("SELECT ?", None, "wrongParams", {}),
    ("SELECT ?", [1, 2], "wrongParams", {}),
    ("SELECT 1", [1], "wrongParams", {}),
    ("SELECT :a", {}, "wrongParams", {}),
    ("SELECT :a", {"a": 1, "b": 2}, "wrongParams", {}),
    ("SELECT :a", [1], "wrongParams", {}),
    ("SELECT ?", {"a": 1}, "wrongParams", {}),
    ("SELECT ?1, ?3", [1, 2], "wrongParams", {}),
    ("SELECT ?", [[1]], "type", {}),
    ("SELECT ?", [2**63], "type", {}),
    ("SELECT ?", [1] * 100_001, "tooManyParams", {}),
    ("SELECT ?100001", None, "tooManyParams", {}),
    ("SELECT zeroblob(2000000)", None, "tooLarge", {}),
    ("SELECT " + "-" * 200 + "1", None, "tooLarge|syntax", {}),
    ("SELECT abs(1, 2)", None, "invalid", {}),
    ("SELECT nofunction(1)", None, "invalid", {}),
    ("CREATE TABLE t (a)", None, "invalid", {}),
    ("INSERT INTO v VALUES (1, 2, 3, 4)", None, "invalid", {}),
    ("SELECT abs(-9223372036854775808)", None, "invalid", {}),
    ("SELECT json('{')", None, "invalid", {}),
    ("PRAGMA journal_mode = DELETE", None, "notInTransaction", {}),
    ("VACUUM", None, "notInTransaction", {}),
    ("SELECT * FROM onceward_meta", None, "denied", {"table": "onceward_meta"}),
    (
        "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
        None,
        "timeout",
        {},
    ),
]


@pytest.fixture
def schema(place: Path) -> Any:
    with LocalDatabase(place, limits=Limits(statement_seconds=0.1)) as database:
        database.batch(SCHEMA)
        yield database


def test_every_error_has_its_kind_and_its_place(schema: LocalDatabase) -> None:
    """
    The kinds, tables, columns and constraints are those that the real SQLite names, whatever words it uses.
    """
    found = []
    for sql, params, _, _ in TABLE:
        with pytest.raises(SqlError) as refusal:
            schema.query(sql, params)
        found.append(refusal.value)

    for (sql, _, kinds, where), error in zip(TABLE, found, strict=True):
        named = {name: getattr(error, name) for name in ("table", "column", "constraint") if getattr(error, name)}
        assert error.kind.value in kinds.split("|"), (sql[:80], str(error))
        assert where == named, sql[:80]
        assert len(str(error)) <= 500


def test_every_line_of_the_table_of_messages_is_met_by_a_real_error(schema: LocalDatabase) -> None:
    """
    A line that no error of the real library reaches would be a guess. (Those that need another process or a full disk
    have tests of their own.)
    """
    spoken = set()
    elsewhere = {"from within", "object name reserved", "too many SQL", "one statement", "You did not", "embedded"}
    for sql, params, _, _ in TABLE:
        with pytest.raises(SqlError) as refusal:
            schema.query(sql, params)
        spoken.add(str(refusal.value))
    connection = sqlite3.connect(":memory:")
    for sql in (
        "BEGIN",
        "VACUUM",
        "DROP TABLE sqlite_master",
        "CREATE TABLE sqlite_x (a)",
        "SELECT :a",
        "SELECT 1; SELECT 2",
        "SELECT '\0'",
    ):
        try:
            connection.execute(sql, {} if ":" in sql else ())
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            spoken.add(str(error))
    connection.close()

    unmet = [line.pattern.pattern for line in BY_MESSAGE if not any(line.pattern.search(text) for text in spoken)]
    assert [pattern for pattern in unmet if not any(word in pattern for word in elsewhere)] == []


def test_hints_say_what_to_do(schema: LocalDatabase) -> None:
    """
    A unique violation points at ON CONFLICT, a missing table at creating it.
    """
    hints = {}
    for sql in ("INSERT INTO t (a) VALUES ('one')", "SELECT * FROM nowhere"):
        with pytest.raises(SqlError) as refusal:
            schema.query(sql)
        hints[refusal.value.kind] = refusal.value.hint

    assert "ON CONFLICT" in (hints[SqlKind.UNIQUE_VIOLATION] or "")
    assert "create it" in (hints[SqlKind.UNKNOWN_TABLE] or "")


def test_advice_depends_on_the_kind() -> None:
    """
    What may pass by itself is worth another try with the same key; a broken statement is not.
    """
    advice = {kind: SqlError(kind, "x").retry for kind in SqlKind}

    assert {kind for kind, retry in advice.items() if retry is RetryAdvice.SAME_KEY} == {
        SqlKind.LOCKED,
        SqlKind.TIMEOUT,
        SqlKind.FULL,
    }


def test_a_full_database_says_so_and_deleting_helps(tmp_path: Path) -> None:
    """
    A database has a largest size. What does not fit is undone, and its key is free.
    """
    with LocalDatabase(tmp_path / "small.db", limits=Limits(database_bytes=300_000)) as database:
        database.query("CREATE TABLE t (a)")
        with pytest.raises(SqlError) as refusal:
            for _ in range(100):
                database.query("INSERT INTO t VALUES (zeroblob(20000))")
        rows = database.query("SELECT count(*) FROM t").rows[0][0]
        database.query("DELETE FROM t")
        database.query("INSERT INTO t VALUES (zeroblob(20000))")

        assert refusal.value.kind == SqlKind.FULL
        assert rows in range(3, 15)
        assert database.query("SELECT count(*) FROM t").rows == [[1]]


def test_a_database_that_another_process_holds_is_locked(
    place: Path, database: LocalDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Never a raw error of the driver: the request was not run, and may be sent again.
    """
    database._database.connection.execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(place, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(SqlError) as refusal:
        database.query("CREATE TABLE t (a)")
    other.close()

    assert (refusal.value.kind, refusal.value.retry) == (SqlKind.LOCKED, RetryAdvice.SAME_KEY)
    assert database.query("CREATE TABLE t (a)").rows_written == 0


def test_memory_and_damage_have_words_of_their_own() -> None:
    """
    Running out of memory is too large; a damaged file is not the caller's fault, and not SQL's.
    """
    damaged = sqlite3.DatabaseError("database disk image is malformed")
    damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT

    memory = translate_sqlite_error(MemoryError())
    assert isinstance(memory, SqlError)
    assert memory.kind == SqlKind.TOO_LARGE
    assert isinstance(translate_sqlite_error(damaged), StoreCorrupt)
    assert sqlite3.SQLITE_NOMEM in BY_CODE


@pytest.mark.parametrize(
    "error",
    [
        SqlError(SqlKind.UNIQUE_VIOLATION, "m", table="t", column="c", constraint="k", hint="h"),
        SqlError(SqlKind.LOCKED, "m", retry_after_seconds=2.5),
        KeyReused("other request"),
        OutcomeUnknown("who knows"),
        EngineClosed(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_on_the_other_side(error: OncewardError) -> None:
    """
    From a worker to the engine an error keeps its class, its words and its advice.
    """
    arrived = from_wire(to_wire(error))

    assert type(error) is type(arrived)
    assert (str(error), error.retry, error.retry_after_seconds) == (
        str(arrived),
        arrived.retry,
        arrived.retry_after_seconds,
    )
    assert to_wire(error) == to_wire(arrived)


def test_no_class_is_looked_up_by_a_name_that_was_sent() -> None:
    """
    Only listed classes come back; anything else is a broken worker.
    """
    with pytest.raises(KeyError):
        from_wire({"name": "SystemExit", "message": "x"})


@pytest.mark.fault("an-error-carries-a-whole-row")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT json_extract('{}', (SELECT word FROM words))",
        'INSERT INTO "{long}" VALUES (1)',
        "SELECT {long}() ",
        "PRAGMA {long} = 1",
        'SELECT "{long}".a FROM t',
    ],
)
def test_an_error_carries_five_hundred_characters_of_anything(tmp_path: Path, sql: str) -> None:
    """
    SQLite quotes values and names in its messages. What leaves a worker has an end, whatever was quoted.
    """
    with LocalDatabase(tmp_path / "t.db") as database:
        database.query("CREATE TABLE words (word)")
        database.query("CREATE TABLE t (a)")
        database.query("INSERT INTO words VALUES (?)", ["secret " * 10_000])
        with pytest.raises(SqlError) as caught:
            database.query(sql.replace("{long}", "x" * 50_000))
    sent = to_wire(caught.value)
    texts = [one for one in sent["sql"].values() if isinstance(one, str)]

    assert max(map(len, texts)) <= 500
    assert len(str(from_wire(sent))) <= 1_500
