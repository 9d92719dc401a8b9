"""
Keys and plans: the record is in the same transaction as the statement's effect, and the library's core decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from onceward import Expired, KeyReused
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.store_protocols import PurgeResult
from onceward.errors import KeyInvalid, RequestInvalid
from onceward.service.sql import Keyed, Limits, LocalDatabase, SqlError, SqlKind, Step
from onceward.service.sql.requests import as_sent, build_request
from onceward.service.sql.tenant_database import RequestResult
from onceward.testing.clock import StillEnvironment

ME = "live:acme"
INSERT = "INSERT INTO orders (id, amount) VALUES (?, ?)"


@pytest.fixture
def orders(database: LocalDatabase) -> LocalDatabase:
    """A database with a table."""
    database.query("CREATE TABLE orders (id TEXT PRIMARY KEY, amount INTEGER)")
    return database


def count(database: LocalDatabase) -> Any:
    return database.query("SELECT count(*) FROM orders").rows[0][0]


@pytest.mark.requirement("A04")
def test_the_same_key_replays_the_first_answer(orders: LocalDatabase) -> None:
    """
    The second answer is the first one, to the last digit of its duration; and nothing is written for it.
    """
    first = orders.query(INSERT, ["o-1", 5], identity=Keyed(ME, "order:1"))
    before = orders._database.connection.total_changes
    again = orders.query(INSERT, ["o-1", 5], identity=Keyed(ME, "order:1"))

    assert (first.replayed, again.replayed) == (False, True)
    assert first.document == again.document
    assert before == orders._database.connection.total_changes
    assert count(orders) == 1


@pytest.mark.requirement("A07")
def test_a_statement_that_fails_frees_its_key(database: LocalDatabase) -> None:
    """
    The table is missing; it is created; the same key then runs.
    """
    with pytest.raises(SqlError) as refusal:
        database.query(INSERT, ["o-1", 5], identity=Keyed(ME, "order:1"))
    database.query("CREATE TABLE orders (id TEXT PRIMARY KEY, amount INTEGER)")
    answer = database.query(INSERT, ["o-1", 5], identity=Keyed(ME, "order:1"))

    assert (refusal.value.kind, refusal.value.table) == (SqlKind.UNKNOWN_TABLE, "orders")
    assert (answer.replayed, answer.rows_written) == (False, 1)


def test_a_write_that_is_stopped_at_its_deadline_frees_its_key(place: Path) -> None:
    """
    SQLite ends the whole transaction then; the record of the claim goes with it, so nothing is in doubt.
    """
    slow = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) INSERT INTO t SELECT x FROM c"
    with LocalDatabase(place, limits=Limits(statement_seconds=0.1)) as database:
        database.query("CREATE TABLE t (a)")
        for _ in range(2):
            with pytest.raises(SqlError) as refusal:
                database.query(slow, identity=Keyed(ME, "slow"))
            assert refusal.value.kind == SqlKind.TIMEOUT

        assert database.query("SELECT count(*) FROM t").rows == [[0]]


@pytest.mark.fault("sql-a-look-takes-any-request-for-the-first")
@pytest.mark.requirement("A17")
def test_a_key_is_good_for_one_request(orders: LocalDatabase) -> None:
    """
    Other SQL, other parameters, a batch instead of a query, or other words about it: refused, and nothing written.
    """
    orders.query(INSERT, ["o-1", 5], identity=Keyed(ME, "k"))
    others: list[Callable[[], Any]] = [
        lambda: orders.query(INSERT, ["o-2", 5], identity=Keyed(ME, "k")),
        lambda: orders.query(INSERT + " ", ["o-1", 5], identity=Keyed(ME, "k")),
        lambda: orders.batch([(INSERT, ["o-1", 5])], identity=Keyed(ME, "k")),
        lambda: orders.query(INSERT, ["o-1", 5], identity=Keyed(ME, "k"), about={"route": "/other"}),
        lambda: orders.query("SELECT 1", identity=Keyed(ME, "k")),
    ]
    for other in others:
        with pytest.raises(KeyReused):
            other()

    assert count(orders) == 1


def test_keys_of_two_scopes_do_not_meet(orders: LocalDatabase) -> None:
    """
    A key or a plan that leaked is of no use to another tenant: it runs there, and shows nothing.
    """
    identities = [Keyed(ME, "k"), Keyed("live:other", "k"), Step(ME, "p", "s"), Step("live:other", "p", "s")]
    answers = [
        orders.query("INSERT INTO orders VALUES (?, 1)", [f"o-{number}"], identity=identity)
        for number, identity in enumerate(identities)
    ]

    assert [answer.replayed for answer in answers] == [False] * 4
    assert count(orders) == 4


@pytest.mark.requirement("A40")
def test_without_a_key_a_statement_runs_each_time(orders: LocalDatabase, raw: Callable[..., list[Any]]) -> None:
    """
    Keyless is legal: no record, no replay.
    """
    for _ in range(2):
        answer = orders.query("SELECT 1")
        assert (answer.rows, answer.replayed) == ([[1]], False)

    assert raw("SELECT count(*) FROM onceward_records") == [(0,)]


@pytest.mark.requirement("A11", "A14")
def test_the_constraint_holds_without_a_key(orders: LocalDatabase) -> None:
    """
    Of two racing inserts one sees a unique violation; ON CONFLICT DO NOTHING is a success with no row.
    """

    def insert(_: int) -> str:
        try:
            return str(orders.query(INSERT, ["o-1", 5]).rows_written)
        except SqlError as error:
            return error.kind.value

    with ThreadPoolExecutor(2) as pool:
        outcomes = sorted(pool.map(insert, range(2)))

    assert outcomes == ["1", "uniqueViolation"]
    assert orders.query(f"{INSERT} ON CONFLICT (id) DO NOTHING", ["o-1", 5]).rows_written == 0
    assert count(orders) == 1


@pytest.mark.requirement("A01", "A15", "A27")
def test_answers_are_kept_for_a_day(tmp_path: Path) -> None:
    """
    A second before its 24 hours are over a key replays, a second after it runs again; a constraint still holds then.
    """
    clock = StillEnvironment()
    with LocalDatabase(tmp_path / "t.db", environment=clock, after_expiry="run") as database:
        database.query("CREATE TABLE t (a UNIQUE)")
        database.query("CREATE TABLE log (a)")
        ask = {
            "log": lambda: database.query("INSERT INTO log VALUES (1)", identity=Keyed(ME, "log")),
            "step": lambda: database.query("INSERT INTO log VALUES (2)", identity=Step(ME, "p", "s")),
            "row": lambda: database.query("INSERT INTO t VALUES (1)", identity=Keyed(ME, "row")),
        }
        for one in ask.values():
            one()
        clock.advance(86_399)
        assert [one().replayed for one in ask.values()] == [True, True, True]
        clock.advance(2)
        assert False is ask["log"]().replayed
        with pytest.raises(SqlError) as refusal:
            ask["row"]()
        clock.advance(86_401)  # The step was touched a moment ago.
        assert False is ask["step"]().replayed

        assert refusal.value.kind == SqlKind.UNIQUE_VIOLATION
        assert database.query("SELECT count(*) FROM t").rows == [[1]]


def test_past_its_day_a_key_is_refused_by_default(tmp_path: Path) -> None:
    """
    The library's own rule: it did run, so it does not run again.
    """
    clock = StillEnvironment()
    with LocalDatabase(tmp_path / "t.db", environment=clock) as database:
        database.query("CREATE TABLE t (a)", identity=Keyed(ME, "k"))
        clock.advance(86_401)

        with pytest.raises(Expired):
            database.query("CREATE TABLE t (a)", identity=Keyed(ME, "k"))


@pytest.mark.requirement("A23", "A24", "A30", "A31")
def test_a_plan_resumes_where_it_failed(database: LocalDatabase) -> None:
    """
    Migrate, seed, fail, mend, go on: steps that succeeded replay (DDL, too), the failed and the unreached ones run.
    """
    steps = {
        "create": "CREATE TABLE t (a UNIQUE)",
        "seed": "INSERT INTO t VALUES (1), (2)",
        "index": "CREATE INDEX i ON u (a)",
        "fill": "INSERT INTO u SELECT a FROM t",
        "verify": "SELECT count(*) FROM u",
    }

    def run() -> list[str]:
        came_to = []
        for step, sql in steps.items():
            try:
                came_to.append(
                    "replayed" if database.query(sql, identity=Step(ME, "migrate-7", step)).replayed else "ran"
                )
            except SqlError as error:
                came_to.append(error.kind.value)
                break
        return came_to

    assert run() == ["ran", "ran", "unknownTable"]
    database.query("CREATE TABLE u (a)")
    assert run() == ["replayed", "replayed", "ran", "ran", "ran"]
    assert run() == ["replayed"] * 5
    assert (
        "replayed" if database.query("SELECT 1", identity=Step(ME, "migrate-8", "verify")).replayed else "ran"
    ) == "ran"


@pytest.mark.requirement("A26")
def test_a_step_is_one_row_under_scope_plan_and_step(database: LocalDatabase, raw: Callable[..., list[Any]]) -> None:
    """
    One record per step, whatever is asked how often.
    """
    for plan, step in (("p", "a"), ("p", "b"), ("q", "a"), ("p", "a")):
        database.query("SELECT 1", identity=Step("acme", plan, step))

    assert raw("SELECT scope, key FROM onceward_records ORDER BY key") == [
        ("acme", "p / a"),
        ("acme", "p / b"),
        ("acme", "q / a"),
    ]


def test_a_batch_is_all_or_nothing(orders: LocalDatabase) -> None:
    """
    One key, one transaction: a statement that fails undoes those before it, says which it was, and frees the key.
    """
    batch = [(INSERT, ["o-1", 1]), (INSERT, ["o-2", 2]), (INSERT, ["o-1", 3])]
    with pytest.raises(SqlError) as refusal:
        orders.batch(batch, identity=Keyed(ME, "b"))
    nothing = count(orders)
    first = orders.batch(batch[:2], identity=Keyed(ME, "b"))
    again = orders.batch(batch[:2], identity=Keyed(ME, "b"))

    assert (refusal.value.kind, refusal.value.statement, nothing) == (SqlKind.UNIQUE_VIOLATION, 2, 0)
    assert (first.rows_written, [answer.rows_written for answer in first.results]) == (2, [1, 1])
    assert (False, True, first.document) == (first.replayed, again.replayed, again.document)
    assert count(orders) == 2


def test_a_batch_has_a_hundred_statements_at_most(orders: LocalDatabase) -> None:
    """
    A hundred are run, one more or none are refused.
    """
    assert len(orders.batch(["SELECT 1"] * 100).results) == 100
    for number, kind in ((101, SqlKind.TOO_LARGE), (0, SqlKind.SYNTAX)):
        with pytest.raises(SqlError) as refusal:
            orders.batch(["SELECT 1"] * number)
        assert kind == refusal.value.kind


@pytest.mark.fault("sql-a-short-look-is-too-short")
@pytest.mark.parametrize(
    "values", [["\x01" * 200], ["x" * 1_000], ["x", None, True] * 90, [[1] * 900], {"a": "x" * 990}]
)
def test_a_request_that_is_too_long_as_json_is_refused(values: Any) -> None:
    """
    However it comes to that: by what is escaped, by many values, by what is inside of one.
    """
    limits = Limits(request_bytes=1_000)
    with pytest.raises(SqlError) as refusal:
        build_request([("SELECT 1", values)], limits, dialect=as_sent)
    assert refusal.value.kind == SqlKind.TOO_LARGE
    assert build_request([("SELECT 1", ["x" * 900])], limits, dialect=as_sent).statements != ()


def test_statements_of_a_batch_see_each_other(database: LocalDatabase) -> None:
    """
    Created, filled by the last rowid, and read, in one transaction.
    """
    batch = database.batch(
        [
            "CREATE TABLE parent (id INTEGER PRIMARY KEY)",
            "CREATE TABLE child (parent INTEGER REFERENCES parent (id))",
            "INSERT INTO parent VALUES (41)",
            "INSERT INTO child VALUES (last_insert_rowid())",
            "SELECT parent FROM child",
        ]
    )

    assert batch.results[-1].rows == [[41]]


def test_an_answer_that_is_too_large_undoes_its_write(database: LocalDatabase) -> None:
    """
    Not half an answer, and no write without one.
    """
    database.query("CREATE TABLE t (a)")
    with pytest.raises(SqlError) as refusal:
        database.query("INSERT INTO t VALUES (zeroblob(900000)) RETURNING a", identity=Keyed(ME, "k"))

    assert refusal.value.kind == SqlKind.TOO_LARGE
    assert database.query("SELECT count(*) FROM t").rows == [[0]]


def test_the_largest_answer_can_be_kept(database: LocalDatabase) -> None:
    """
    What may be answered fits into a record, and replays.
    """
    sql = "SELECT printf('%.*c', 899900, 'x')"
    first = database.query(sql, identity=Keyed(ME, "k"))

    assert first.document == database.query(sql, identity=Keyed(ME, "k")).document


@pytest.mark.parametrize("key", ["", "with blank", "x" * 256, "é", "line\n"])
def test_a_key_that_is_none_is_refused(orders: LocalDatabase, key: str) -> None:
    """
    Nothing is run under a key that could not be told from another.
    """
    with pytest.raises(KeyInvalid):
        orders.query(INSERT, ["o-1", 5], identity=Keyed(ME, key))

    assert count(orders) == 0


@pytest.mark.requirement("E31")
def test_records_that_are_past_their_time_are_deleted_by_and_by(tmp_path: Path) -> None:
    """
    Nobody has to tidy: every so many keyed requests some expired records go.
    """
    clock = StillEnvironment()
    with LocalDatabase(tmp_path / "t.db", environment=clock, after_expiry="run", retain=60) as database:
        for number in range(60):
            database.query("SELECT 1", identity=Keyed(ME, f"old-{number}"))
        clock.advance(61)
        for number in range(60):
            database.query("SELECT 1", identity=Keyed(ME, f"new-{number}"))
        left = database._database.connection.execute("SELECT count(*) FROM onceward_records").fetchone()

        assert left[0] <= 70


@pytest.mark.fault("sql-purges-in-vain-come-as-often")
def test_a_database_without_anything_to_delete_is_purged_less_and_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    After 10 keyed requests, and after 100 more: a purge in vain is a transaction that somebody waits for.
    """
    purges: list[threading.Thread] = []
    with LocalDatabase(tmp_path / "t.db") as database:
        store = database._database.store
        purge = store.purge

        def counting(limit: int) -> PurgeResult:
            purges.append(threading.current_thread())
            return purge(limit)

        monkeypatch.setattr(store, "purge", counting)
        for number in range(200):
            database.query("SELECT 1", identity=Keyed(ME, f"k-{number}"))
        made = purges.count(threading.current_thread())  # Closing may purge, too.

    assert made == 2


@pytest.mark.fault("sql-another-parameter-is-the-same-request")
@pytest.mark.parametrize("sql", [INSERT, "SELECT 'ü', \"a\\b\"", "x" * 3_000])
@pytest.mark.parametrize(
    "params",
    [
        None,
        [],
        [None],
        ["a", "b"],
        ["ü\U0001f600\ufb01", 'a"b\\c\n'],
        ["]]}", "1.0,"],
        [1, 1.0, True],
        [["a"]],
        {"a": "b"},
    ],
)
def test_a_fingerprint_is_that_of_the_fields_however_it_is_made(sql: str, params: Any) -> None:
    """
    What is kept of a statement's form gives the bytes that a retry by another way is compared with; for any other
    parameter, they are others.
    """
    request = build_request([(sql, params)], Limits(), dialect=as_sent)
    others = [[*params, "c"], ["c", *params]] if isinstance(params, list) else [["c"]]
    made = [request, *(build_request([(sql, one)], Limits(), dialect=as_sent) for one in others)]
    made += [request._replace(batch=True), request._replace(about="a")]

    prints = [one.fingerprint() for one in made]
    assert prints == [fingerprint_canonical(one.fingerprint_fields()) for one in made]
    assert len(set(prints)) == len({repr(one.fingerprint_fields()) for one in made})


def test_half_a_character_is_refused_by_its_place() -> None:
    """
    The error names where it stands in the request, as for any other value.
    """
    with pytest.raises(RequestInvalid) as refusal:
        build_request([(INSERT, ["a", "\ud800"])], Limits(), dialect=as_sent).fingerprint()

    assert "statements" in str(refusal.value)


def test_a_replay_is_found_by_a_look(orders: LocalDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The gate is not asked. After some new keys in a row most requests are not looked for: then it is, and says the same.
    """
    first = orders.query(INSERT, ["o-1", 5], identity=Keyed(ME, "order:1"))
    for number in range(2, 20):
        orders.query(INSERT, [f"o-{number}", 5], identity=Keyed(ME, f"order:{number}"))
    unlooked = orders.query(INSERT, ["o-1", 5], identity=Keyed(ME, "order:1"))
    orders._database._misses = 0
    monkeypatch.setattr(orders._database, "_perform", lambda request: pytest.fail("the gate was asked"))
    looked = orders.query(INSERT, ["o-1", 5], identity=Keyed(ME, "order:1"))

    assert (unlooked.replayed, looked.replayed) == (True, True)
    assert first.document == unlooked.document == looked.document


@pytest.mark.fault("sql-a-look-tells-who-may-only-read")
def test_who_may_only_read_learns_nothing_by_a_look(orders: LocalDatabase) -> None:
    """
    What it may do is asked before its key is looked for.
    """
    request = build_request([(INSERT, ["o-1", 5])], Limits(), identity=Keyed(ME, "order:1"))
    database = orders._database
    first, second = (database.group([one])[0] for one in (request, request._replace(readonly=True)))

    assert isinstance(first, RequestResult)
    assert isinstance(second, SqlError)
    assert second.kind is SqlKind.READONLY


def test_what_has_expired_is_not_found_by_a_look(place: Path) -> None:
    """
    A look decides nothing but a replay: the gate says that it is too late.
    """
    environment = StillEnvironment()
    with LocalDatabase(place, environment=environment, retain=10) as database:
        database.query("CREATE TABLE orders (id TEXT PRIMARY KEY, amount INTEGER)")
        database.query(INSERT, ["o-1", 5], identity=Keyed(ME, "k"))
        environment.advance(11)

        with pytest.raises(Expired):
            database.query(INSERT, ["o-1", 5], identity=Keyed(ME, "k"))
