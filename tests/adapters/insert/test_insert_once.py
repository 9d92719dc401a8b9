"""A row written once, by the table's own unique constraint, on the caller's sqlite3 connection."""

from __future__ import annotations

import inspect
import sqlite3
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from onceward import ConfigurationError, Gate, Operation, Update, insert_once, mint
from onceward.adapters import insert_sql
from onceward.stores.sqlite import SqliteStore
from onceward.testing.clock import StillEnvironment

TABLE = """
CREATE TABLE expenses (
    id INTEGER PRIMARY KEY,
    worker_id TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    category TEXT,
    amount TEXT NOT NULL,
    receipt TEXT UNIQUE,
    updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    UNIQUE (worker_id, idempotency_key)
)
"""
KEY = ["worker_id", "idempotency_key"]
LUNCH = {"worker_id": "w-1", "idempotency_key": "k-1", "category": "Food", "amount": Decimal("12.50")}
CORRECTED = LUNCH | {"amount": Decimal("13.75")}
CORRECT = Update(["amount"], touch="updated_at")


class Clock:
    """What the database takes for the time."""

    now = "2030-01-02 12:00:00"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The caller's own database."""
    file = tmp_path / "app.db"
    connection = sqlite3.connect(file)
    connection.execute(TABLE)
    connection.close()
    return file


@pytest.fixture
def connection(path: Path, clock: Clock) -> Iterator[sqlite3.Connection]:
    """The caller's own connection, with a clock that the test moves."""
    connection = sqlite3.connect(path, timeout=10)
    connection.create_function("current_timestamp", 0, lambda: clock.now)
    yield connection
    connection.close()


def rows(connection: sqlite3.Connection, columns: str = "amount, updated_at") -> list[Any]:
    return connection.execute(f"SELECT {columns} FROM expenses ORDER BY id").fetchall()


@pytest.mark.requirement("A14", "B15", "B16")
def test_the_first_insert_writes_one_row_and_the_second_none(connection: sqlite3.Connection) -> None:
    """
    The count is the answer, 1 and then 0; the duplicate raises nothing, and one row stands.
    """
    written = [insert_once(connection, "expenses", LUNCH, key=KEY) for _ in range(3)]

    assert written == [1, 0, 0]
    assert rows(connection, "amount") == [("12.50",)]


@pytest.mark.requirement("A14")
def test_the_primary_key_will_do(connection: sqlite3.Connection) -> None:
    """
    ON CONFLICT (id) DO NOTHING: the second insert succeeds with no row written.
    """
    written = [insert_once(connection, "expenses", {"id": 7, **LUNCH}, key=["id"]) for _ in range(2)]

    assert written == [1, 0]
    assert 'ON CONFLICT ("id") DO NOTHING' in insert_sql("sqlite", "expenses", ["id"], ["id"])


@pytest.mark.requirement("B14")
@pytest.mark.parametrize(("dialect", "hole"), [("sqlite", "?"), ("postgresql", "%s")])
def test_by_default_conflicts_are_ignored_and_the_constraint_is_named(dialect: Any, hole: str) -> None:
    """
    The statement names the columns of the conflict it means, and binds every value.
    """
    sql = insert_sql(dialect, ("app", "expenses"), [*KEY, "amount"], KEY)

    assert sql == (
        'INSERT INTO "app"."expenses" ("worker_id", "idempotency_key", "amount") '
        f"VALUES ({hole}, {hole}, {hole}) "
        'ON CONFLICT ("worker_id", "idempotency_key") DO NOTHING'
    )


@pytest.mark.requirement("B17")
@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_overwriting_is_a_spoken_policy_with_a_list_of_columns(dialect: Any) -> None:
    """
    Only the listed columns are taken from the newer attempt, and the time from the database.
    """
    sql = insert_sql(dialect, "expenses", [*KEY, "amount"], KEY, CORRECT)

    assert sql.endswith(
        'ON CONFLICT ("worker_id", "idempotency_key") '
        'DO UPDATE SET "amount" = EXCLUDED."amount", "updated_at" = CURRENT_TIMESTAMP'
    )


@pytest.mark.requirement("B17", "B18")
def test_a_corrected_retry_leaves_one_row_with_the_correction_and_its_time(
    connection: sqlite3.Connection, clock: Clock
) -> None:
    """
    12.50 becomes 13.75, updated at the time of the second attempt; what is not listed stays.
    """
    insert_once(connection, "expenses", LUNCH, key=KEY)
    first = rows(connection)
    clock.now = "2030-01-02 12:00:30"
    recategorised = CORRECTED | {"category": "Travel"}
    written = insert_once(connection, "expenses", recategorised, key=KEY, on_duplicate=CORRECT)

    assert first == [("12.50", "2030-01-02 12:00:00")]
    assert rows(connection) == [("13.75", "2030-01-02 12:00:30")]
    assert rows(connection, "category") == [("Food",)]
    assert written == 1


def test_without_a_touched_column_no_time_is_written(connection: sqlite3.Connection, clock: Clock) -> None:
    """
    `touch` is a choice: without it only the listed columns change.
    """
    insert_once(connection, "expenses", LUNCH, key=KEY)
    clock.now = "2030-01-02 12:00:30"
    insert_once(connection, "expenses", CORRECTED, key=KEY, on_duplicate=Update(("amount",)))

    assert rows(connection) == [("13.75", "2030-01-02 12:00:00")]


@pytest.mark.requirement("B19")
def test_each_kind_of_retry_has_its_policy(connection: sqlite3.Connection) -> None:
    """
    An identical retry is ignored by default, a correction says Update, another transaction has another key.
    """
    identical = [insert_once(connection, "expenses", LUNCH, key=KEY) for _ in range(2)]
    correction = insert_once(connection, "expenses", CORRECTED, key=KEY, on_duplicate=CORRECT)
    another = insert_once(connection, "expenses", LUNCH | {"idempotency_key": "k-2"}, key=KEY)

    assert (identical, correction, another) == ([1, 0], 1, 1)
    assert rows(connection, "idempotency_key, amount") == [("k-1", "13.75"), ("k-2", "12.50")]
    assert inspect.signature(insert_once).parameters["on_duplicate"].default == "ignore"


@pytest.mark.requirement("B20")
def test_an_ignored_duplicate_touches_nothing(connection: sqlite3.Connection, clock: Clock) -> None:
    """
    Not the amount, not the timestamp, not the row's version, which every write to the row would raise.
    """
    connection.execute("ALTER TABLE expenses ADD COLUMN version INTEGER NOT NULL DEFAULT 1")
    connection.execute(
        "CREATE TRIGGER versions AFTER UPDATE OF amount ON expenses BEGIN "
        "UPDATE expenses SET version = OLD.version + 1 WHERE id = OLD.id; END"
    )
    insert_once(connection, "expenses", LUNCH, key=KEY)
    before = rows(connection, "*"), connection.total_changes
    clock.now = "2030-01-02 12:00:30"
    insert_once(connection, "expenses", CORRECTED, key=KEY)
    after = rows(connection, "*"), connection.total_changes
    insert_once(connection, "expenses", CORRECTED, key=KEY, on_duplicate=CORRECT)

    assert before == after
    assert rows(connection, "version") == [(2,)]


def test_it_never_commits(connection: sqlite3.Connection) -> None:
    """
    The row belongs to the caller's transaction, and goes with it.
    """
    insert_once(connection, "expenses", LUNCH, key=KEY)
    insert_once(connection, "expenses", LUNCH, key=KEY)
    inside = connection.in_transaction
    connection.rollback()

    assert inside
    assert rows(connection) == []


@pytest.mark.requirement("A15")
def test_with_the_key_record_expired_the_constraint_still_holds(connection: sqlite3.Connection, path: Path) -> None:
    """
    The record is gone, so the same key runs again, with the same row id: still one row.
    """
    environment = StillEnvironment()
    store = SqliteStore(path, environment=environment)
    gate = Gate(store, scope="live:acme", environment=environment, after_expiry="run")
    written: list[int] = []

    def book(operation: Operation) -> str:
        written.append(insert_once(connection, "expenses", {"id": 7, **LUNCH}, key=["id"]))
        return "created"

    answers = [gate.atomic(connection, "expense:7", book)]
    environment.advance(86_401)
    gate.purge()
    expired = gate.records.get("expense:7")
    answers.append(gate.atomic(connection, "expense:7", book))
    gate.close()

    assert expired is None
    assert answers == ["created", "created"]
    assert written == [1, 0]
    assert rows(connection, "id") == [(7,)]


@pytest.mark.requirement("A11")
def test_racing_inserts_without_a_common_key_meet_the_primary_key(path: Path) -> None:
    """
    Nobody sent a key, so each caller has a fresh one; the primary key lets one row in, the other caller sees why.
    """
    barrier = threading.Barrier(2)
    endings: list[str] = []
    gate = Gate(f"sqlite:///{path}", scope="live:acme")

    def caller() -> None:
        mine = sqlite3.connect(path, timeout=30)

        def book(operation: Operation) -> None:
            insert_once(mine, "expenses", {"id": 7, **LUNCH, "idempotency_key": operation.key}, key=KEY)

        barrier.wait()
        try:
            gate.atomic(mine, mint(), book)
            endings.append("written")
        except sqlite3.IntegrityError as error:
            endings.append(str(error))
        mine.close()

    threads = [threading.Thread(target=caller) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gate.close()
    other = sqlite3.connect(path)
    count = len(rows(other))
    other.close()

    assert sorted(endings) == ["UNIQUE constraint failed: expenses.id", "written"]
    assert count == 1


@pytest.mark.requirement("E21")
@pytest.mark.parametrize("policy", ["ignore", CORRECT], ids=["ignore", "update"])
def test_a_violation_of_another_constraint_surfaces_unchanged(connection: sqlite3.Connection, policy: Any) -> None:
    """
    Only a conflict on the key is a duplicate; the same receipt under another key is the caller's news.
    """
    insert_once(connection, "expenses", LUNCH | {"receipt": "R-1"}, key=KEY)
    with pytest.raises(sqlite3.IntegrityError, match=r"expenses\.receipt"):
        insert_once(
            connection,
            "expenses",
            LUNCH | {"receipt": "R-1", "idempotency_key": "k-2"},
            key=KEY,
            on_duplicate=policy,
        )
    again = insert_once(connection, "expenses", LUNCH | {"receipt": "R-1"}, key=KEY)

    assert again == 0  # The true duplicate violates both constraints, and is a duplicate.
    assert len(rows(connection)) == 1


def test_a_missing_constraint_is_named_with_what_to_add(connection: sqlite3.Connection) -> None:
    """
    Without a unique constraint on the key's columns nothing would stop a duplicate.
    """
    with pytest.raises(ConfigurationError, match=r'add UNIQUE \("category"\) to the table'):
        insert_once(connection, "expenses", LUNCH, key=["category"])

    assert rows(connection) == []


@pytest.mark.parametrize(
    ("update", "name"),
    [
        (Update(["amount", "idempotency_key"]), "idempotency_key"),
        (Update(["amount"], touch="worker_id"), "worker_id"),
        (Update(["amount"], touch="WORKER_ID"), "WORKER_ID"),
    ],
    ids=["overwritten", "touched", "touched in capitals"],
)
def test_an_update_of_the_key_itself_is_refused(connection: sqlite3.Connection, update: Update, name: str) -> None:
    """
    What identifies the row cannot be corrected: the advice is to leave correctable fields out of the key.
    """
    with pytest.raises(ConfigurationError, match=f"key columns: {name}. Leave them out of Update"):
        insert_once(connection, "expenses", LUNCH, key=KEY, on_duplicate=update)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"values": {}}, "needs the row's values"),
        ({"key": []}, "the key: a list"),
        ({"key": "worker_id"}, "the key: a list"),
        ({"key": ["worker_id", "worker_id"]}, "named twice"),
        ({"key": ["id"]}, "among the values; missing: id"),
        ({"values": {"a": 1, "A": 2}, "key": ["a"]}, "named twice"),
        ({"values": LUNCH | {"worker_id": None}}, "a key column is None: worker_id"),
        ({"values": {"a\0b": 1}, "key": ["a\0b"]}, "not the name of a table or column"),
        ({"values": {"": 1}, "key": [""]}, "not the name of a table or column"),
        ({"table": ("a", "b", "c")}, "a name or \\(schema, name\\)"),
        ({"table": ""}, "not the name"),
        ({"on_duplicate": "update"}, "on_duplicate is 'ignore' or Update"),
        ({"on_duplicate": Update(["absent"])}, "of Update must be among the values; missing: absent"),
        ({"connection": object()}, "does not support connections of builtins.object"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    connection: sqlite3.Connection, changes: dict[str, Any], words: str
) -> None:
    """
    Each refusal says what is wrong, and no statement has run.
    """
    call = {"connection": connection, "table": "expenses", "values": LUNCH, "key": KEY} | changes
    before = connection.total_changes
    with pytest.raises(ConfigurationError, match=words):
        insert_once(**call)

    assert before == connection.total_changes


@pytest.mark.parametrize(
    ("columns", "touch"), [([], None), ("amount", None), ([1], None), (["a"], "a"), (["a"], ""), (["a", "a"], None)]
)
def test_a_policy_that_cannot_work_is_refused_when_it_is_made(columns: Any, touch: Any) -> None:
    """
    No columns, one text for a list, not a name, and a column that is set twice.
    """
    with pytest.raises(ConfigurationError):
        Update(columns, touch=touch)


def test_only_two_dialects_are_spoken() -> None:
    """
    Another database's word is refused, not guessed at.
    """
    with pytest.raises(ConfigurationError, match="unknown dialect"):
        insert_sql("mysql", "t", ["a"], ["a"])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ['a"b', "a b; DROP TABLE expenses --", "100%s", "sélect", "select", "a.b"])
def test_any_name_is_only_a_name(connection: sqlite3.Connection, name: str) -> None:
    """
    Quotes, blanks, percent signs and words of SQL in a name stay inside its quotes.
    """
    quoted = '"' + name.replace('"', '""') + '"'
    connection.execute(f"CREATE TABLE {quoted} ({quoted} TEXT UNIQUE, n TEXT)")
    update = Update(["n"])
    written = [insert_once(connection, ("main", name), {name: "x", "n": "1"}, key=[name]) for _ in range(2)]
    written.append(insert_once(connection, name, {name: "x", "n": "2"}, key=[name], on_duplicate=update))

    assert written == [1, 0, 1]
    assert connection.execute(f"SELECT * FROM {quoted}").fetchall() == [("x", "2")]


@pytest.mark.requirement("E13")
@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Decimal("0.1") + Decimal("0.2"), "0.3"),
        (Decimal("12.5000"), "12.5000"),
        (Decimal("100").normalize(), "100"),
        (Decimal("922337203685477.5807"), "922337203685477.5807"),
        (Decimal("1E+999999"), "1E+999999"),
    ],
)
def test_a_decimal_is_kept_to_the_last_place(connection: sqlite3.Connection, amount: Decimal, text: str) -> None:
    """
    As text, never as a float: ten cents and twenty are thirty, and four places stay four.
    """
    insert_once(connection, "expenses", LUNCH | {"amount": amount}, key=KEY)

    assert [(text, "text")] == rows(connection, "amount, typeof(amount)")
    assert amount == Decimal(rows(connection)[0][0])
