"""
Values go from JSON to SQLite and back without loss, and what cannot is refused before anything is written.
"""

from __future__ import annotations

import json
from contextlib import suppress
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.protocol.sql_values import EXACT_MAX, INTEGER_MAX, INTEGER_MIN, to_json, to_sqlite
from onceward.service.sql import LocalDatabase, SqlError, SqlKind
from onceward.service.sql.statement_parser import parse_statement


@pytest.mark.parametrize(
    "value",
    [
        *(None, 0, -1, EXACT_MAX, -EXACT_MAX, 0.1, -0.0, 1e308, "", "é\u0000ü", "💥", {"base64": ""}),
        *({"base64": "3q2+7w=="}, {"integer": str(INTEGER_MAX)}, {"integer": str(INTEGER_MIN)}),
        {"integer": str(EXACT_MAX + 1)},
    ],
)
def test_what_goes_in_comes_out(database: LocalDatabase, value: Any) -> None:
    """
    A value comes back in the form it was sent in.
    """
    answer = database.query("SELECT ?", [value])

    assert [[value]] == answer.rows
    assert [[value]] == json.loads(json.dumps(answer.document))["rows"]


@given(
    st.none()
    | st.integers(INTEGER_MIN, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)))
    | st.binary()
)
def test_every_value_of_sqlites_survives(value: Any) -> None:
    """
    Shown and taken back, and through JSON in between, a value is the same.
    """
    assert value == to_sqlite(json.loads(json.dumps(to_json(value, "c"))), "1")


@pytest.mark.parametrize(
    "value",
    [
        *(2**63, -(2**63) - 1, 10**400, float("nan"), float("inf"), float("-inf"), [1], {"a": 1}, {}, "\ud800"),
        *({"base64": "no base64!"}, {"base64": "3q2+7w"}, {"integer": "1.5"}, {"integer": str(2**63)}, {1, 2}),
        *({"base64": "", "integer": "1"}, {"base64": 7}, 1j),
    ],
    ids=repr,
)
def test_what_sqlite_has_no_place_for_is_refused(database: LocalDatabase, value: Any) -> None:
    """
    Nothing is rounded, cut or turned into NULL in silence; and nothing is written.
    """
    database.query("CREATE TABLE t (a)")

    with pytest.raises(SqlError) as refusal:
        database.query("INSERT INTO t VALUES (?)", [value])

    assert refusal.value.kind == SqlKind.TYPE
    assert database.query("SELECT count(*) FROM t").rows == [[0]]


def test_true_and_false_are_one_and_zero(database: LocalDatabase) -> None:
    """
    SQLite has no booleans.
    """
    assert database.query("SELECT ?1, ?2, typeof(?1)", [True, False]).rows == [[1, 0, "integer"]]


def test_positional_parameters_are_counted(database: LocalDatabase) -> None:
    """
    Two placeholders take two parameters; one or three is an error, and writes nothing.
    """
    database.query("CREATE TABLE t (a, b)")
    database.query("INSERT INTO t VALUES (?, ?)", [1, "x"])
    for params in ([1], [1, 2, 3], None, {"a": 1, "b": 2}):
        with pytest.raises(SqlError) as refusal:
            database.query("INSERT INTO t VALUES (?, ?)", params)
        assert refusal.value.kind == SqlKind.WRONG_PARAMS

    assert database.query("SELECT * FROM t").rows == [[1, "x"]]


@pytest.mark.parametrize("mark", [":", "@", "$"])
def test_named_parameters_are_matched_by_name(database: LocalDatabase, mark: str) -> None:
    """
    All three spellings; the same name twice is one value, and names inside of texts and comments are none.
    """
    sql = f"SELECT {mark}a, {mark}b, {mark}a, ':c' /* :d */ -- :e"

    assert database.query(sql, {"b": 2, "a": 1}).rows == [[1, 2, 1, ":c"]]


def test_columns_may_have_any_name(database: LocalDatabase) -> None:
    """
    Twice the same, empty, odd or long: rows are lists, so that nothing is lost.
    """
    name = "x" * 50_000
    answer = database.query(f'SELECT 1 AS a, 2 AS a, 3 AS "", 4 AS "{name}"')

    assert (["a", "a", "", name], [[1, 2, 3, 4]]) == (answer.columns, answer.rows)


def test_an_answer_counts_what_it_did(database: LocalDatabase) -> None:
    """
    Rows in the answer, rows written (those of triggers, too), and the last rowid of an INSERT.
    """
    database.query("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
    database.query("CREATE TABLE log (a)")
    database.query("CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO log VALUES (new.a); END")
    told = [
        (answer.rows_read, answer.rows_written, answer.last_insert_rowid)
        for answer in (
            database.query("INSERT INTO t (a) VALUES (1), (2) RETURNING id"),
            database.query("INSERT INTO t VALUES (1, 'x') ON CONFLICT DO NOTHING"),
            database.query("UPDATE t SET a = 0"),
            database.query("SELECT * FROM t"),
            database.query("INSERT INTO log VALUES (7)"),
            database.query("INSERT INTO t VALUES (9223372036854775807, 0)"),
            database.query("CREATE TABLE other (a)"),
            database.query("DELETE FROM log"),
        )
    ]

    rowid = {"integer": "9223372036854775807"}
    assert [
        (2, 4, 2),
        (0, 0, None),
        (0, 2, None),
        (2, 0, None),
        (0, 1, 3),
        (0, 2, rowid),
        (0, 0, None),
        (0, 4, None),
    ] == told


HARD_TO_READ = {
    "sums": "+ 1 ",
    "words": "a b ",
    "texts": "'',",
    "quotes": "'",
    "double": '"',
    "brackets": "[",
    "ticks": "`",
    "placeholders": "?,",
    "names": ":a,",
    "dollars": "$a(",
    "colons": "$a::",
    "slashes": "/",
    "dashes": "-",
    "comments": "/*",
    "ends": "*/",
    "open": "(",
    "rollback": "xrollback ",
}


@pytest.mark.parametrize("kind", HARD_TO_READ)
def test_no_text_takes_long_to_read(kind: str) -> None:
    """
    A statement is read in the service's own process, so that must take time in proportion to its length.
    """
    text = HARD_TO_READ[kind]

    def cost(start: str, length: int) -> float:
        began = process_time()
        with suppress(SqlError):
            parse_statement(start + text * (length // len(text)))
        return process_time() - began

    # Four times the length is four times the work, not sixteen times. The tenth of a second is for what is too short
    # to be measured.
    for start in ("SELECT ", "WITH a AS "):
        assert cost(start, 99_000) < 10 * cost(start, 24_750) + 0.1


@pytest.mark.parametrize(
    ("sql", "verb", "names", "positions"),
    [
        ("/* ? */ -- :x\n select '--', \":a\", [@b], `$c`, :d, @e, $f, ?1", "SELECT", "d e f", True),
        ("WITH x AS (SELECT 1), replace (a) AS (VALUES (2)) DELETE FROM t", "DELETE", "", False),
        ("WITH RECURSIVE x AS (SELECT 1) SELECT (SELECT 1)", "SELECT", "", False),
        ("\ufeff;; Insert INTO t VALUES ('it''s :x')", "INSERT", "", False),
        ("/*/ SELECT */ UPDATE t SET a = 1", "UPDATE", "", False),
        ("SELECT 1 -- rollback", "SELECT", "", False),
        ("EXPLAIN QUERY PLAN DELETE FROM t", "EXPLAIN", "", False),
    ],
)
def test_a_statement_is_read_as_sqlite_reads_it(sql: str, verb: str, names: str, positions: bool) -> None:
    """
    Comments, texts and quoted names hide what is in them.
    """
    assert (verb, frozenset(names.split()), positions) == parse_statement(sql)
