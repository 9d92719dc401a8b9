"""
Single instructions: what one call of a function can take, at its largest, where nobody may be kept waiting.

SQLite's deadline is looked at between instructions. So whatever one instruction can do is measured here, in the
processor time of this thread: it is quick, or it is called off before it begins and runs in the slow lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.runtime.environment import REAL
from onceward.service.sql import Keyed, Limits, LocalDatabase
from onceward.service.sql.requests import build_request
from onceward.service.sql.statement_timer import StatementTimer
from onceward.service.sql.tenant_database import (
    ReadOnlyDatabase,
    RequestOutcome,
    RequestResult,
    WritableDatabase,
)
from onceward.service.sql.worker_errors import NotRun, SliceUsed

LIMITS = Limits(statement_seconds=60.0)
SECONDS_MAX = 1.5
"""Of processor time. Each of the bombs takes four seconds or more, if it is let."""


def text(size: int, character: str = "a") -> str:
    """SQL for a text of that size."""
    return f"replace(hex(zeroblob({size // 2})), '0', '{character}')"


def rows(count: int, sql: str) -> str:
    """SQL over so many rows."""
    return f"WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT {count}) {sql}"


def paths(first: int) -> str:
    """Ninety paths into an array."""
    return ", ".join(f"'$[{number}]'" for number in range(first, first + 90))


ONES = "'[' || substr(replace(hex(zeroblob(240000)), '0', '1,'), 1, 900000) || '1]'"
OBJECT = "(SELECT '{' || group_concat('\"%s' || x || '\":' || x) || '}' FROM keys)"

BOMBS = {
    "printf precision": "SELECT printf('%.*c', 2000000000, 'x')",
    "printf number": "SELECT printf('%.999999999c', 'x')",
    "format": "SELECT format('%.*c', 2000000000, 'x')",
    "printf in parts": f"SELECT length(printf(replace('{'a' * 9_000}', 'a', '%.99999c'), 'x'))",
    "instr": f"SELECT instr({text(990_000)}, {text(495_000)} || 'b')",
    "instr of blobs": f"SELECT instr(CAST({text(990_000)} AS BLOB), CAST({text(495_000)} || 'b' AS BLOB))",
    "replace": f"SELECT length(replace({text(990_000)}, {text(495_000)} || 'b', 'x'))",
    "trim": f"SELECT length(trim({text(200_000)}, {text(200_000, 'b')} || 'a'))",
    "rtrim": f"SELECT length(rtrim({text(200_000)}, {text(200_000, 'b')} || 'a'))",
    "json_patch": f"SELECT length(json_patch({OBJECT % 'k'}, {OBJECT % 'z'}))",
    "long instructions": rows(
        100_000,
        f"SELECT sum(length({'upper(lower(' * 8}hex(zeroblob(400000 + x)){'))' * 8})) FROM c",
    ),
    "many instructions": rows(1_000_000_000, "SELECT count(*) FROM c"),
    "a view that calls one": "SELECT * FROM hidden",
}
"""All of these are called off in a quick worker: before they begin, or when their slice is over."""

QUICK = {
    "like": f"SELECT {text(99_000)} LIKE '%{'a' * 190}b%'",
    "glob": f"SELECT {text(99_000)} GLOB '*{'[a-z]' * 38}b*'",
    "many wildcards": f"SELECT {text(99_000)} LIKE '{'%a' * 90}%b'",
    "instr": f"SELECT instr({text(99_000)}, {text(49_000)} || 'b')",
    "printf width": "SELECT length(printf('%99999s', 'x'))",
    "json": f"SELECT length(json({ONES}))",
    "json_extract": f"SELECT json_extract({ONES}, {paths(400_000)})",
    "json_remove": f"SELECT length(json_remove({ONES}, {paths(0)}))",
    "json_valid": f"SELECT json_valid({text(990_000, '[')})",
    "quote": "SELECT length(quote(zeroblob(490000)))",
    "hex": "SELECT length(hex(zeroblob(495000)))",
    "randomblob": "SELECT length(randomblob(990000))",
    "upper": f"SELECT length(upper({text(990_000)}))",
    "unicode": f"SELECT unicode({text(990_000)})",
    "substr": f"SELECT length(substr({text(990_000)}, -1, 5))",
    "strftime": f"SELECT length(strftime({text(20_000, '%f')}, 'now'))",
    "cast": f"SELECT CAST({text(990_000, '1')} AS REAL)",
    "collate": f"SELECT {text(400_000)} = {text(400_000)} COLLATE NOCASE",
    "modifiers": "SELECT date('now', " + ", ".join(["'+1 day'"] * 90) + ")",
    "sort": rows(60_000, "SELECT count(*) FROM (SELECT random() AS r FROM c ORDER BY r)"),
    "window": rows(300, "SELECT sum(x) OVER (ORDER BY x ROWS 300 PRECEDING) FROM c LIMIT 1"),
}
"""Everything else, at its largest: it may use up its slice, and takes no longer than that by much."""

HONEST = {
    "SELECT printf('%05d|%-4s|%.2f', 42, 'ab', 1.25)": "00042|ab  |1.25",
    "SELECT format('%s-%s', 'a', NULL)": "a-",
    "SELECT trim('xxhixx', 'x') || ltrim('0012', '0') || rtrim('1.500', '0')": "hi121.5",
    "SELECT trim('  hi ')": "hi",
    "SELECT trim(1001, 1)": "00",
    "SELECT instr('customer@shop', '@')": 9,
    "SELECT replace('a-b-c', '-', '+')": "a+b+c",
    "SELECT 'customer' LIKE 'CUST%'": 1,
    "SELECT json_extract('{\"a\": [1, 2]}', '$.a[1]')": 2,
    "SELECT a FROM large": "x" * 200_000,
}
"""What honest statements call is quick, and gives what SQLite gives."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("instructions")
    with LocalDatabase(made / "tenant.db") as database:
        database.query("CREATE TABLE t (a)")
        database.query("CREATE TABLE large (a)")
        database.query("INSERT INTO large VALUES (?)", ["x" * 200_000])
        database.query("CREATE TABLE keys (x)")
        database.query(rows(40_000, "INSERT INTO keys SELECT x FROM c"))
        database.query(f"CREATE VIEW hidden AS SELECT instr({text(990_000)}, {text(495_000)} || 'b')")
        database.query("CREATE VIEW formatted AS SELECT printf('%03d', 7) AS number")
        database.query("CREATE VIEW v0 AS SELECT a FROM t")
        for number in range(1, 13):
            union = f"SELECT a FROM v{number - 1} UNION ALL SELECT a FROM v{number - 1}"
            database.query(f"CREATE VIEW v{number} AS {union}")
    return made


@pytest.fixture(scope="module")
def timer() -> StatementTimer:
    return StatementTimer(REAL)


@pytest.fixture(scope="module")
def quick(folder: Path, timer: StatementTimer) -> Iterator[ReadOnlyDatabase]:
    opened = ReadOnlyDatabase(folder / "tenant.db", LIMITS, timer=timer, quick=True)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def slow(folder: Path, timer: StatementTimer) -> Iterator[ReadOnlyDatabase]:
    opened = ReadOnlyDatabase(folder / "tenant.db", LIMITS, timer=timer)
    yield opened
    opened.close()


def measured(database: ReadOnlyDatabase, sql: str) -> tuple[RequestOutcome, float]:
    """What came of it, and the processor time of this thread."""
    clock = REAL.thread_cpu_clock()
    before = clock()
    return database.perform(build_request([sql], LIMITS)), clock() - before


@pytest.mark.fault("sql-one-long-instruction", "sql-nobody-interrupts")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_of_one_instruction_is_called_off(quick: ReadOnlyDatabase, name: str) -> None:
    """
    The first time, and again when the statement is compiled already.
    """
    for _ in range(2):
        outcome, seconds = measured(quick, BOMBS[name])

        assert isinstance(outcome, SliceUsed)
        assert seconds < SECONDS_MAX


@pytest.mark.parametrize("name", QUICK)
def test_any_other_instruction_is_quick(quick: ReadOnlyDatabase, name: str) -> None:
    """
    At its largest; a newer SQLite with a slower function is noticed here.
    """
    outcome, seconds = measured(quick, QUICK[name])

    assert isinstance(outcome, RequestResult | SliceUsed)
    assert seconds < SECONDS_MAX


@pytest.mark.parametrize("sql", HONEST)
def test_honest_statements_get_sqlites_own_result(quick: ReadOnlyDatabase, slow: ReadOnlyDatabase, sql: str) -> None:
    """
    In the quick lane as in the slow one, the second time as the first.
    """
    for database in (quick, quick, slow):
        outcome, _ = measured(database, sql)

        assert isinstance(outcome, RequestResult)
        assert outcome.document["rows"] == [[HONEST[sql]]]


def test_a_schema_that_calls_a_bounded_function_works_in_the_slow_lane(
    quick: ReadOnlyDatabase, slow: ReadOnlyDatabase
) -> None:
    """
    A quick connection has a function of our own there, which no view may call.
    """
    called_off, _ = measured(quick, "SELECT number FROM formatted")
    outcome, _ = measured(slow, "SELECT number FROM formatted")

    assert isinstance(called_off, SliceUsed)
    assert isinstance(outcome, RequestResult)
    assert outcome.document["rows"] == [["007"]]


@pytest.mark.fault("sql-views-of-views")
@pytest.mark.parametrize("lane", ["quick", "slow"])
def test_a_statement_that_takes_seconds_to_compile_is_refused(request: pytest.FixtureRequest, lane: str) -> None:
    """
    Views, each twice the one before: with the fourteenth SQLite compiles for seven seconds, and nothing interrupts it
    there. So it is not let, and with the twelfth neither.
    """
    database: ReadOnlyDatabase = request.getfixturevalue(lane)
    outcome, seconds = measured(database, "SELECT count(*) FROM v12")
    fine, _ = measured(database, "SELECT count(*) FROM v6")

    assert str(getattr(outcome, "kind", outcome)) == "tooLarge"
    assert seconds < SECONDS_MAX
    assert isinstance(fine, RequestResult)


def words(outcomes: list[RequestOutcome]) -> list[str]:
    return ["ran" if isinstance(outcome, RequestResult) else type(outcome).__name__ for outcome in outcomes]


ENDLESS_WRITE = rows(1_000_000_000, "INSERT INTO t SELECT x FROM c")


@pytest.mark.fault("sql-a-group-goes-on")
@pytest.mark.parametrize(
    "bomb", [BOMBS["many instructions"], ENDLESS_WRITE, BOMBS["printf number"]], ids=["read", "write", "called off"]
)
def test_a_group_ends_with_the_one_that_uses_up_its_slice(tmp_path: Path, timer: StatementTimer, bomb: str) -> None:
    """
    What was before it is committed, also if it has undone that; what is behind it is not run, and its key is free.
    """
    database = WritableDatabase(tmp_path / "tenant.db", LIMITS, {}, timer=timer, quick=True)
    try:
        database.group([build_request(["CREATE TABLE t (a)"], LIMITS)])
        requests = [
            build_request(["INSERT INTO t VALUES (1)"], LIMITS, identity=Keyed("test:me", "k1")),
            build_request([bomb], LIMITS, identity=Keyed("test:me", "bomb")),
            *(build_request([bomb], LIMITS) for _ in range(61)),
            build_request(["INSERT INTO t VALUES (2)"], LIMITS, identity=Keyed("test:me", "k2")),
        ]
        before = timer.clock()
        outcomes = words(database.group(requests))
        seconds = timer.clock() - before
        found = database.connection.execute("SELECT a FROM t").fetchall()
        again = words(database.group([requests[0], requests[-1]]))
    finally:
        database.close()

    assert outcomes == ["ran", SliceUsed.__name__] + [NotRun.__name__] * 62
    assert found == [(1,)]
    assert again == ["ran", "ran"]
    assert seconds < SECONDS_MAX


@pytest.mark.fault("sql-a-group-has-no-end")
def test_a_group_has_its_time(tmp_path: Path, timer: StatementTimer) -> None:
    """
    Sixty-four requests, each below its slice: not all in one turn.
    """
    limits = Limits(slice_seconds=0.5)
    database = WritableDatabase(tmp_path / "tenant.db", limits, {}, timer=timer, quick=True)
    try:
        database.group([build_request(["CREATE TABLE t (a)"], limits)])
        work = rows(200_000, "INSERT INTO t SELECT count(*) FROM c")
        outcomes = words(database.group([build_request([work], limits) for _ in range(64)]))
        found = database.connection.execute("SELECT count(*) FROM t").fetchone()
    finally:
        database.close()

    assert outcomes[0] == "ran"
    assert outcomes == ["ran"] * outcomes.count("ran") + [NotRun.__name__] * outcomes.count(NotRun.__name__)
    assert outcomes.count("ran") < 64
    assert found == (outcomes.count("ran"),)
