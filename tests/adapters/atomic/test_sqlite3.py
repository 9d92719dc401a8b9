"""
Atomic mode on the caller's own sqlite3 connection: record and rows commit together, or not at all.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest
from coloured import COLOURS, Coloured

from onceward import ConfigurationError, Gate, InDoubt, InFlight, KeyReused, Operation
from onceward.errors import IllegalMove, RecordedFailure, ResultInvalid, RetryTransaction

CREATED = {"status": 201, "body": {"status": "created"}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The caller's own database."""
    file = tmp_path / "app.db"
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE charges (customer INTEGER, amount TEXT)")
    connection.execute("CREATE TABLE invoices (number TEXT PRIMARY KEY)")
    connection.commit()
    connection.close()
    return file


Opens = Callable[..., Coloured]


@pytest.fixture(params=COLOURS)
def opens(request: pytest.FixtureRequest) -> Iterator[Opens]:
    """Opens gates of one colour."""
    with ExitStack() as stack:

        def opened(url: str, **options: Any) -> Coloured:
            gate = Coloured(request.param, url, **options)
            stack.callback(gate.close)
            return gate

        yield opened


@pytest.fixture
def gate(path: Path, opens: Opens) -> Coloured:
    """A gate on that database, of either colour."""
    return opens(f"sqlite:///{path}", scope="live:acme", wait=0)


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    """The caller's own connection."""
    connection = sqlite3.connect(path, timeout=10)
    yield connection
    connection.close()


def rows(path: Path, table: str = "charges") -> int:
    """What another connection sees."""
    other = sqlite3.connect(path)
    (count,) = other.execute(f"SELECT count(*) FROM {table}").fetchone()
    other.close()
    return int(count)


def charging(connection: sqlite3.Connection) -> Any:
    """A function that charges on a connection."""

    def charge(operation: Operation) -> dict[str, object]:
        connection.execute("INSERT INTO charges VALUES (1, '12.5000')")
        return CREATED

    return charge


@pytest.mark.requirement("E06", "E07", "E15")
def test_the_first_call_commits_both_and_later_ones_replay(
    gate: Coloured, connection: sqlite3.Connection, path: Path
) -> None:
    """
    With no transaction open, one is opened and committed: record and row. The second call replays 201 as 201.
    """
    first = gate.atomic(connection, "charge:1", charging(connection), request={"amount": "12.50"})
    second = gate.atomic(connection, "charge:1", charging(connection), request={"amount": "12.50"})
    stored = gate.get("charge:1")

    assert CREATED == first == second
    assert rows(path) == 1
    assert not connection.in_transaction
    assert stored is not None
    assert stored.result == CREATED


@pytest.mark.requirement("E16")
def test_an_error_undoes_both(gate: Coloured, connection: sqlite3.Connection, path: Path) -> None:
    """
    Whatever the function raises, its rows and the record are undone, and the same key runs again.
    """

    def failing(operation: Operation) -> None:
        connection.execute("INSERT INTO charges VALUES (1, '12.50')")
        raise TimeoutError("after the row, before the end")

    with pytest.raises(TimeoutError):
        gate.atomic(connection, "charge:1", failing)

    assert rows(path) == 0
    assert gate.get("charge:1") is None
    assert gate.atomic(connection, "charge:1", charging(connection)) == CREATED
    assert rows(path) == 1


@pytest.mark.requirement("E21")
def test_a_unique_violation_of_the_callers_own_table_surfaces_unchanged(
    gate: Coloured, connection: sqlite3.Connection, path: Path
) -> None:
    """
    Only the record's own constraint is ours to handle; the caller's IntegrityError is the caller's.
    """
    connection.execute("INSERT INTO invoices VALUES ('R-1')")
    connection.commit()

    def invoice(operation: Operation) -> None:
        connection.execute("INSERT INTO invoices VALUES ('R-1')")

    with pytest.raises(sqlite3.IntegrityError, match=r"invoices\.number"):
        gate.atomic(connection, "invoice:1", invoice)
    assert gate.get("invoice:1") is None


@pytest.mark.requirement("E40")
def test_the_same_key_for_another_amount_or_customer_is_refused(
    gate: Coloured, opens: Opens, connection: sqlite3.Connection, path: Path
) -> None:
    """
    Same key and another request never replays; another tenant's gate has the key to itself.
    """
    gate.atomic(connection, "charge:1", charging(connection), request={"customer": 1, "amount": "12.50"})
    with pytest.raises(KeyReused):
        gate.atomic(connection, "charge:1", charging(connection), request={"customer": 1, "amount": "99.00"})
    with pytest.raises(KeyReused):
        gate.atomic(connection, "charge:1", charging(connection), request={"customer": 2, "amount": "12.50"})
    other = opens(f"sqlite:///{path}", scope="live:other")
    other.atomic(connection, "charge:1", charging(connection), request={"customer": 2, "amount": "1.00"})

    assert rows(path) == 2


def test_inside_the_callers_transaction_the_caller_commits(
    gate: Coloured, connection: sqlite3.Connection, path: Path
) -> None:
    """
    Joined to an open transaction, nothing is committed until the caller does; a rollback undoes both.
    """
    connection.execute("BEGIN IMMEDIATE")
    gate.atomic(connection, "charge:1", charging(connection))
    inside = connection.in_transaction
    connection.rollback()

    assert inside
    assert rows(path) == 0
    assert gate.get("charge:1") is None

    connection.execute("INSERT INTO invoices VALUES ('R-2')")
    gate.atomic(connection, "charge:1", charging(connection))
    connection.commit()

    assert (rows(path), rows(path, "invoices")) == (1, 1)
    assert gate.atomic(connection, "charge:1", charging(connection)) == CREATED
    assert rows(path) == 1


def test_a_failure_inside_the_callers_transaction_undoes_only_itself(
    gate: Coloured, connection: sqlite3.Connection, path: Path
) -> None:
    """
    A savepoint keeps the caller's other rows: the transaction goes on, and stays usable.
    """

    def failing(operation: Operation) -> None:
        connection.execute("INSERT INTO charges VALUES (1, '12.50')")
        raise ValueError

    connection.execute("INSERT INTO invoices VALUES ('R-3')")
    with pytest.raises(ValueError):
        gate.atomic(connection, "charge:1", failing)
    gate.atomic(connection, "charge:2", charging(connection))
    connection.commit()

    assert (rows(path), rows(path, "invoices")) == (1, 1)
    assert gate.get("charge:1") is None


def test_nested_atomic_operations_keep_to_their_own_keys(
    gate: Coloured, connection: sqlite3.Connection, path: Path
) -> None:
    """
    An atomic operation inside another has its own record; undoing the inner one leaves the outer one whole.
    """

    def outer(operation: Operation) -> str:
        connection.execute("INSERT INTO invoices VALUES ('R-4')")
        gate.atomic(connection, "inner:1", charging(connection))
        with pytest.raises(ZeroDivisionError):
            gate.atomic(connection, "inner:2", lambda op: 1 // 0)
        return "done"

    assert gate.atomic(connection, "outer:1", outer) == "done"
    assert (rows(path), rows(path, "invoices")) == (1, 1)
    assert gate.get("inner:2") is None
    assert gate.get("inner:1") is not None


def test_the_block_form_settles_and_replays(gate: Coloured, connection: sqlite3.Connection, path: Path) -> None:
    """
    `with gate.atomic(...)`: the block says what is stored, and a later block is shown it.
    """
    with gate.atomic(connection, "charge:1", request=1) as operation:
        connection.execute("INSERT INTO charges VALUES (1, '12.50')")
        operation.settle(CREATED)
        fresh = operation.replayed
    with gate.atomic(connection, "charge:1", request=1) as operation:
        seen = (operation.replayed, operation.value, operation.attempt)

    assert fresh is False
    assert seen == (True, CREATED, 1)
    assert rows(path) == 1


def test_a_block_that_does_not_settle_or_settles_a_replay_raises(
    gate: Coloured, connection: sqlite3.Connection, path: Path
) -> None:
    """
    Leaving a block unsettled undoes it and says so; settling a replay is a mistake that is said, too.
    """
    with pytest.raises(ConfigurationError, match="settle"), gate.atomic(connection, "charge:1"):
        connection.execute("INSERT INTO charges VALUES (1, '12.50')")
    assert rows(path) == 0

    with gate.atomic(connection, "charge:1") as operation:
        operation.settle(None)
    with pytest.raises(ConfigurationError, match="replay"), gate.atomic(connection, "charge:1") as operation:
        operation.settle(None)


def test_a_block_that_raises_undoes_both_and_lets_the_error_through(
    gate: Coloured, connection: sqlite3.Connection, path: Path
) -> None:
    """
    The error that left the block is the error that the caller sees.
    """
    error = ValueError("mine")
    with pytest.raises(ValueError) as caught, gate.atomic(connection, "charge:1") as operation:
        connection.execute("INSERT INTO charges VALUES (1, '12.50')")
        operation.settle(1)
        raise error

    assert error is caught.value
    assert rows(path) == 0
    assert gate.get("charge:1") is None


def test_a_connection_in_autocommit_is_refused(gate: Coloured, path: Path) -> None:
    """
    In autocommit the record would commit alone, so it is refused, with advice; a spoken BEGIN is welcome.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(ConfigurationError, match="autocommit"):
        gate.atomic(connection, "charge:1", charging(connection))
    connection.execute("BEGIN IMMEDIATE")
    gate.atomic(connection, "charge:1", charging(connection))
    connection.execute("COMMIT")
    connection.close()

    assert rows(path) == 1


@pytest.mark.parametrize("claim", ["first", "last"])
@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_a_function_that_ends_a_spoken_transaction_gets_no_record_of_its_own(
    gate: Coloured, path: Path, claim: Literal["first", "last"], ending: str
) -> None:
    """
    With isolation_level=None the connection is in autocommit again: nothing is settled as if it had been in one.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")

    def ends() -> None:
        connection.execute("INSERT INTO charges VALUES (1, '12.50')")
        connection.execute(ending)

    with pytest.raises(IllegalMove, match="ended the transaction"):
        gate.atomic(connection, "charge:1", ends, claim=claim)
    connection.close()

    found = gate.get("charge:1")
    assert found is None or found.state == "in_doubt"
    assert ending == "COMMIT" or rows(path) == 0


def test_another_database_or_another_store_is_refused(gate: Coloured, opens: Opens, tmp_path: Path) -> None:
    """
    Atomic works only where record and rows share one database: otherwise the same key would live twice.
    """
    other = sqlite3.connect(tmp_path / "other.db")
    with pytest.raises(ConfigurationError, match="one database"):
        gate.atomic(other, "charge:1", charging(other))
    memory = opens("memory://", scope="live:acme")
    with pytest.raises(ConfigurationError, match="not a SQLite file"):
        memory.atomic(other, "charge:1", charging(other))
    with pytest.raises(ConfigurationError, match="does not support connections"):
        gate.atomic(object(), "charge:1", lambda: None)
    other.close()


@pytest.mark.requirement("E19", "E20", "E25", "E14", "E22")
@pytest.mark.parametrize("read_first", [1, 0])
def test_racers_wait_at_the_door_and_replay_the_winner(path: Path, read_first: int) -> None:
    """
    Callers that start together: one runs, the others get the same answer in the same shape, one row stands.
    """
    gate = Gate(f"sqlite:///{path}?read_first={read_first}", scope="live:acme")
    barrier = threading.Barrier(8)
    answers: list[object] = []

    def caller() -> None:
        mine = sqlite3.connect(path, timeout=30)
        barrier.wait()
        answers.append(gate.atomic(mine, "charge:1", charging(mine), request=1))
        mine.close()

    threads = [threading.Thread(target=caller) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gate.close()

    assert answers == [CREATED] * 8
    assert rows(path) == 1


def test_a_lock_that_outlasts_the_busy_limit_says_retry_your_transaction(gate: Coloured, path: Path) -> None:
    """
    `database is locked` becomes a typed "retry your transaction", and nothing happened.
    """
    holder = sqlite3.connect(path)
    holder.execute("BEGIN IMMEDIATE")
    mine = sqlite3.connect(path, timeout=0.01)
    with pytest.raises(RetryTransaction) as caught:
        gate.atomic(mine, "charge:1", charging(mine))
    holder.rollback()

    assert caught.value.retry == "same-key"
    assert gate.atomic(mine, "charge:1", charging(mine)) == CREATED
    mine.close()
    holder.close()


def test_a_deferred_transaction_that_has_read_is_told_why_waiting_cannot_help(gate: Coloured, path: Path) -> None:
    """
    A transaction that read before another wrote cannot be upgraded: it is told to begin with BEGIN IMMEDIATE.
    """
    mine = sqlite3.connect(path, timeout=5)
    mine.execute("BEGIN")
    mine.execute("SELECT count(*) FROM charges").fetchone()
    other = sqlite3.connect(path)
    other.execute("INSERT INTO charges VALUES (9, '9')")
    other.commit()
    with pytest.raises(RetryTransaction, match="BEGIN IMMEDIATE"):
        gate.atomic(mine, "charge:1", charging(mine))
    mine.rollback()
    mine.close()
    other.close()


def test_a_result_that_cannot_be_stored_undoes_everything(
    gate: Coloured, connection: sqlite3.Connection, path: Path
) -> None:
    """
    In the caller's transaction "could not store" can be "did not happen": it is undone, and said.
    """

    def unstorable(operation: Operation) -> object:
        connection.execute("INSERT INTO charges VALUES (1, '12.50')")
        return object()

    with pytest.raises(ResultInvalid, match="so nothing happened"):
        gate.atomic(connection, "charge:1", unstorable)
    with pytest.raises(ResultInvalid, match="result_bytes_max"):
        gate.atomic(connection, "charge:1", lambda op: "x" * 100, result_bytes_max=10)
    assert rows(path) == 0


@pytest.mark.requirement("E08", "E39")
def test_a_remembered_failure_keeps_its_record_and_undoes_its_rows(
    gate: Coloured, connection: sqlite3.Connection, path: Path
) -> None:
    """
    remember="all": the failure is stored and replayed as data, the rows are gone; by default nothing is stored.
    """

    def failing(operation: Operation) -> None:
        connection.execute("INSERT INTO charges VALUES (1, '12.50')")
        raise ValueError("card declined")

    for _ in range(2):
        with pytest.raises(ValueError):
            gate.atomic(connection, "default:1", failing)
    with pytest.raises(ValueError):
        gate.atomic(connection, "all:1", failing, remember="all")
    with pytest.raises(RecordedFailure, match="card declined"):
        gate.atomic(connection, "all:1", charging(connection), remember="all")

    assert rows(path) == 0
    assert gate.get("default:1") is None


def test_a_claim_held_outside_the_transaction_is_in_flight(gate: Coloured, connection: sqlite3.Connection) -> None:
    """
    Somebody runs the same key without the transaction: waiting inside it would stop that holder, so it is refused.
    """

    def outside() -> None:
        with pytest.raises(InFlight):
            gate.atomic(connection, "charge:1", charging(connection))

    gate.run("charge:1", outside)


@pytest.mark.parametrize("ending", ["rollback", "commit"])
@pytest.mark.parametrize("raises", [False, True])
def test_a_function_that_ends_the_transaction_itself_is_told(
    gate: Coloured, connection: sqlite3.Connection, path: Path, ending: str, raises: bool
) -> None:
    """
    A commit inside the function parts record and rows: the gate says so, and what was committed never runs again.
    """

    def meddling(operation: Operation) -> None:
        connection.execute("INSERT INTO charges VALUES (1, '12.50')")
        getattr(connection, ending)()
        if raises:
            raise ValueError("afterwards")

    with pytest.raises(ValueError if raises else IllegalMove):
        gate.atomic(connection, "charge:1", meddling)
    record = gate.get("charge:1")

    if ending == "rollback":
        assert record is None
        assert rows(path) == 0
    else:
        assert record is not None
        assert record.state == "in_doubt"
        assert rows(path) == 1
        with pytest.raises(InDoubt):
            gate.atomic(connection, "charge:1", charging(connection))


def test_once_says_where_the_connection_comes_from(gate: Coloured, connection: sqlite3.Connection, path: Path) -> None:
    """
    `@gate.once(guarantee="atomic", connection="conn")`: the parameter is named, and is not part of the request.
    """

    @gate.once(key="charge:{order}", guarantee="atomic", connection="conn")
    def charge(conn: sqlite3.Connection, order: str, amount: str) -> dict[str, object]:
        conn.execute("INSERT INTO charges VALUES (1, ?)", (amount,))
        return CREATED

    again = sqlite3.connect(path)
    assert CREATED == charge(connection, "o-1", "12.50") == charge(again, "o-1", "12.50")
    assert rows(path) == 1
    again.close()
    with pytest.raises(ConfigurationError, match="go together"):
        gate.once(key="charge:{order}", guarantee="atomic")(lambda order: None)
    with pytest.raises(ConfigurationError, match="no parameter"):
        gate.once(key="charge:{order}", guarantee="atomic", connection="nope")(lambda order: None)


def test_a_connection_with_its_own_factories_works(gate: Coloured, path: Path) -> None:
    """
    row_factory and text_factory are the caller's own business, and are left as they were.
    """
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    connection.text_factory = bytes

    assert gate.atomic(connection, "charge:1", charging(connection)) == CREATED
    assert gate.atomic(connection, "charge:1", charging(connection)) == CREATED
    assert (sqlite3.Row, bytes) == (connection.row_factory, connection.text_factory)
    connection.close()


def test_claimed_last_the_key_is_written_with_its_answer(
    gate: Coloured, connection: sqlite3.Connection, path: Path
) -> None:
    """
    claim="last": one write for the record, after the function's own; replay, refusal and rollback as ever.
    """
    written: list[str] = []
    connection.set_trace_callback(lambda sql: written.append(sql.split()[0]))
    first = gate.atomic(connection, "charge:1", charging(connection), request=1, claim="last")
    statements = [word for word in written if word in ("INSERT", "UPDATE")]
    again = gate.atomic(connection, "charge:1", charging(connection), request=1, claim="last")
    with pytest.raises(KeyReused):
        gate.atomic(connection, "charge:1", charging(connection), request=2, claim="last")
    with pytest.raises(ZeroDivisionError):
        gate.atomic(connection, "charge:2", lambda: (charging(connection)(None), 1 // 0), claim="last")

    assert CREATED == first == again
    assert (statements, rows(path)) == (["INSERT", "INSERT"], 1)
    assert gate.get("charge:2") is None


def test_claimed_last_inside_the_callers_transaction_a_key_inside_of_itself_undoes_only_itself(
    gate: Coloured, connection: sqlite3.Connection, path: Path
) -> None:
    """
    The key was settled by the work itself, further in: both go, and nobody is given an answer; the caller's rows stay.
    """

    def outer(operation: Operation) -> str:
        connection.execute("INSERT INTO invoices VALUES ('outer')")
        gate.atomic(connection, "charge:1", charging(connection), request=1)
        return "outer"

    connection.execute("INSERT INTO invoices VALUES ('kept')")
    for request in (1, 2):
        with pytest.raises(IllegalMove, match="used the same key again"):
            gate.atomic(connection, "charge:1", outer, request=request, claim="last")
    connection.commit()

    assert (rows(path, "invoices"), rows(path)) == (1, 0)
    assert gate.get("charge:1") is None


@pytest.mark.parametrize("ending", ["rollback", "commit"])
def test_claimed_last_a_function_that_ends_the_transaction_is_left_in_doubt(
    gate: Coloured, connection: sqlite3.Connection, path: Path, ending: str
) -> None:
    """
    Nothing was claimed, and yet what it may have committed must not run again.
    """

    def meddling(operation: Operation) -> None:
        connection.execute("INSERT INTO charges VALUES (1, '12.50')")
        getattr(connection, ending)()

    with pytest.raises(IllegalMove):
        gate.atomic(connection, "charge:1", meddling, claim="last")
    with pytest.raises(InDoubt):
        gate.atomic(connection, "charge:1", charging(connection), claim="last")

    assert (1 if ending == "commit" else 0) == rows(path)


def test_claim_last_is_for_atomic_mode_only(gate: Coloured) -> None:
    """
    Any other effect could happen twice before the key is written.
    """
    with pytest.raises(ConfigurationError, match=r"gate\.atomic"):
        gate.run("charge:1", lambda: None, claim="last")
    with pytest.raises(ConfigurationError, match="first, last"):
        gate.run("charge:1", lambda: None, claim="middle")


@pytest.mark.requirement("B13")
def test_no_trigger_or_default_makes_keys(gate: Coloured, path: Path) -> None:
    """
    Keys are made by the application: no trigger of the store's schema writes a record, and no identity column has a
    default.
    """
    connection = sqlite3.connect(path)
    triggers = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    columns = connection.execute("PRAGMA table_info(onceward_records)").fetchall()
    defaults = {name: default for _, name, _, _, default, _ in columns if name in ("id", "scope", "key")}
    connection.close()

    written = [re.findall(r"(?:INSERT INTO|UPDATE|DELETE FROM) (onceward_\w+)", body) for (body,) in triggers]
    assert written == [["onceward_blocks"]] * len(triggers)
    assert not [body for (body,) in triggers if "RAISE" in body or "REPLACE" in body]
    assert defaults == {"id": None, "scope": None, "key": None}


@pytest.mark.requirement("A23", "A24", "A30")
def test_the_steps_of_a_plan_may_share_the_callers_transaction(
    gate: Coloured, connection: sqlite3.Connection, path: Path
) -> None:
    """
    Migrate, seed, verify: DDL included. A step that fails is undone; on the re-run what settled replays, the rest runs.
    """
    ran: list[str] = []

    def step(name: str, *statements: str, fails: bool = False) -> Any:
        def run(operation: Operation) -> str:
            ran.append(name)
            for statement in statements:
                connection.execute(statement)
            if fails:
                raise TimeoutError(name)
            return name

        return run

    def migrate(*, broken: bool) -> list[bool]:
        plan = gate.plan("migrate-42")
        create = "CREATE TABLE defaults (name TEXT)"
        return [
            plan.call("create-tables", step("create-tables", create), connection=connection).replayed,
            plan.call("seed-1", step("seed-1", "INSERT INTO defaults VALUES ('a')"), connection=connection).replayed,
            plan.call(
                "seed-2", step("seed-2", "INSERT INTO defaults VALUES ('b')", fails=broken), connection=connection
            ).replayed,
            plan.call("backfill", step("backfill"), connection=connection).replayed,
            plan.call("verify", step("verify"), connection=connection).replayed,
        ]

    with pytest.raises(TimeoutError):
        migrate(broken=True)
    after_failure = rows(path, "defaults")
    rerun = migrate(broken=False)
    again = migrate(broken=False)

    assert after_failure == 1
    assert rerun == [True, True, False, False, False]
    assert again == [True] * 5
    assert ran == ["create-tables", "seed-1", "seed-2", "seed-2", "backfill", "verify"]
    assert rows(path, "defaults") == 2


def test_a_joined_step_inside_an_open_transaction_does_not_block_itself(
    gate: Coloured, connection: sqlite3.Connection, path: Path
) -> None:
    """
    Touching the plan happens on the caller's own connection: it must not wait for the caller's own lock.
    """
    connection.execute("BEGIN IMMEDIATE")
    plan = gate.plan("p-1")

    assert plan.step("a", lambda: 1, connection=connection) == 1
    assert plan.step("a", lambda: 2, connection=connection) == 1
    connection.commit()
    assert plan.step("a", lambda: 3, connection=connection) == 1


@pytest.mark.fault("a-joined-step-takes-any-function")
@pytest.mark.parametrize("shape", ["atomic", "step"])
def test_an_async_function_under_a_blocking_gate_is_refused_before_anything_is_begun(
    connection: sqlite3.Connection, path: Path, shape: str
) -> None:
    """
    It would never run; so nothing is claimed, and the caller's transaction is not touched.
    """

    async def charge() -> None:
        connection.execute("INSERT INTO charges VALUES (1, '12.50')")

    with Gate(f"sqlite:///{path}", scope="live:acme") as gate:
        call = gate.plan("p").step if shape == "step" else None
        with pytest.raises(ConfigurationError, match="this gate blocks"):
            if call is None:
                gate.atomic(connection, "charge:1", charge)
            else:
                call("charge:1", charge, connection=connection)

        assert gate.records.list() == ()
        assert not connection.in_transaction
