"""
What the gate makes of a function that settles inside its own transaction: terms, shapes, renewals, and a store that is
away.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coloured import COLOURS, Coloured
from counters import OPTIONS

from onceward import AsyncGate, ConfigurationError, Gate, InDoubt, Operation, StoreUnavailable, current_operation
from onceward.errors import IllegalMove, NotSettled, ResultInvalid
from onceward.gate import Event
from onceward.stores.sqlite import AsyncSqliteStore, SqliteStore
from onceward.testing.clock import StillEnvironment


class _Away:
    """A store that can be away; it counts its renewals."""

    refuses: frozenset[str] = frozenset()
    renewals = 0

    def load(self, id: bytes) -> Any:
        if "load" in self.refuses:
            raise StoreUnavailable
        return super().load(id)  # type: ignore[misc]

    def put(self, write: Any, expect: bytes | None) -> Any:
        if write.state in self.refuses:
            raise StoreUnavailable
        self.renewals += write.state == "claimed" and not write.rise
        return super().put(write, expect)  # type: ignore[misc]


class Away(_Away, SqliteStore):
    """One that blocks."""


class AsyncAway(_Away, AsyncSqliteStore):
    """One that is awaited."""


class Bench:
    """A gate of either colour, a clock that stands still, and a connection of the caller's."""

    def __init__(self, folder: Path, colour: str) -> None:
        self.clock = StillEnvironment()
        self.path = folder / "app.db"
        away: Any = AsyncAway if colour == "awaiting" else Away
        self.store = away.from_url(f"sqlite:///{self.path}", environment=self.clock)
        self.gate = Coloured(colour, self.store, scope="acme", environment=self.clock, lease=60, wait=0)
        self.gate.get("opened")
        self.connection = sqlite3.connect(self.path, timeout=0.05)
        with self.connection:
            self.connection.execute("CREATE TABLE charges (amount TEXT)")

    def charge(self, operation: Operation, answer: Any = "charged") -> None:
        """A row and the answer, in one transaction."""
        with self.connection:
            self.connection.execute("INSERT INTO charges VALUES ('12.50')")
            self.gate.settle(operation, self.connection, answer)

    def sweep(self, seconds: float) -> None:
        """Time goes by, and the renewer looks."""
        self.clock.advance(seconds)
        self.gate.sweep()

    @property
    def rows(self) -> int:
        [(count,)] = self.connection.execute("SELECT count(*) FROM charges").fetchall()
        return int(count)

    def state(self, key: str = "order:1") -> str:
        found = self.gate.get(key)

        assert found is not None
        return str(found.state)


@pytest.fixture(params=COLOURS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, request.param)
    yield made
    made.connection.close()
    made.gate.close()


class TestTerms:
    """What can be said, and what is refused when it is said."""

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"settle": "inside"}, "goes with guarantee='atomic'"),
            ({"settle": "outside"}, "settle is one of gate, inside"),
            ({**OPTIONS, "claim": "last"}, "leave claim out"),
            ({**OPTIONS, "remember": "all"}, "remember='success'"),
            ({"guarantee": "atomic"}, "or settle='inside'"),
        ],
        ids=str,
    )
    def test_what_cannot_work_is_refused(self, bench: Bench, options: Any, says: str) -> None:
        """
        Before anything is claimed.
        """
        with pytest.raises(ConfigurationError, match=says):
            bench.gate.call("order:1", bench.charge, **options)

        assert None is bench.gate.get("order:1")

    def test_where_the_gate_settles_by_itself_it_is_refused(self, bench: Bench) -> None:
        """
        gate.atomic, sequences, windows and gates' own defaults.
        """
        with pytest.raises(ConfigurationError, match="the gate settles by itself"):
            bench.gate.atomic(bench.connection, "order:1", lambda: None, settle="inside")
        with pytest.raises(ConfigurationError, match="shares your transaction"):
            bench.gate.sequence("orders").call(1, bench.charge, **OPTIONS)
        with pytest.raises(ConfigurationError, match="shares your transaction"):
            bench.gate.window("orders", **OPTIONS).run({"order": 1}, bench.charge)
        with pytest.raises(ConfigurationError, match="cannot be a gate's default"):
            type(bench.gate.gate)(bench.store, scope="acme", **OPTIONS)

    @pytest.mark.parametrize("colour", [Gate, AsyncGate])
    def test_a_store_that_shares_no_transaction_is_refused(self, colour: type[Gate] | type[AsyncGate]) -> None:
        """
        When it is said, and not when the rows are written already.
        """
        with pytest.raises(ConfigurationError, match="the database of your rows"):
            colour("memory://", scope="acme").agreed(**OPTIONS)

    def test_an_operation_that_the_gate_settles_cannot_be_settled_inside(self, bench: Bench) -> None:
        """
        It says how to declare it.
        """
        with pytest.raises(ConfigurationError, match="settle='inside'"):
            bench.gate.run("order:1", bench.charge, guarantee="repeatable")

    def test_awaiting_has_no_place_under_a_blocking_gate(self, tmp_path: Path) -> None:
        """
        The error names the method that there is.
        """
        connection = sqlite3.connect(tmp_path / "app.db")

        def wrong(operation: Operation) -> None:
            operation.settle_inside_async(connection, 1).send(None)

        with (
            Gate(f"sqlite:///{tmp_path}/app.db", scope="acme") as gate,
            pytest.raises(ConfigurationError, match="without await"),
        ):
            gate.run("order:1", wrong, **OPTIONS)
        connection.close()


class TestShapes:
    """Every shape in which the gate claims and a function runs."""

    def test_a_declared_function(self, bench: Bench) -> None:
        """
        `once`: the value is what was settled.
        """

        @bench.gate.once(key="order:{number}", guarantee="atomic", settle="inside")
        def place(number: int, *, operation: Operation) -> None:
            bench.charge(operation, {"number": number})

        assert [place(7), place(7)] == [{"number": 7}, {"number": 7}]
        assert bench.rows == 1

    def test_a_declared_function_joins_no_connection(self, bench: Bench) -> None:
        """
        `connection=` is for what the gate settles.
        """
        with pytest.raises(ConfigurationError, match="and no connection"):
            bench.gate.once(key="order:{number}", connection="number", **OPTIONS)(lambda number: None)

    def test_a_step_of_a_plan(self, bench: Bench) -> None:
        """
        A step settles inside; the next one is the gate's.
        """
        plan = bench.gate.plan("onboarding:1")

        for _ in range(2):
            assert plan.step("charge", bench.charge, **OPTIONS) == "charged"
            assert plan.step("mail", lambda: "mailed") == "mailed"
        assert bench.rows == 1

    def test_the_operation_is_found_without_being_passed_on(self, bench: Bench) -> None:
        """
        `current_operation()`, for handlers that nobody hands it to.
        """

        def handler() -> None:
            bench.charge(current_operation())

        assert None is current_operation(None)
        assert bench.gate.run("order:1", handler, **OPTIONS) == "charged"

    def test_what_is_told(self, bench: Bench) -> None:
        """
        Claimed and settled, once each; then replayed.
        """
        events: list[Event] = []
        bench.gate.listen(events.append)

        for _ in range(2):
            bench.gate.run("order:1", bench.charge, **OPTIONS)
        assert [event.type.value for event in events] == ["claimed", "settled", "replayed"]


def test_settling_after_the_end_is_refused(bench: Bench) -> None:
    """
    A function that kept its operation settles nothing with it any more.
    """
    kept: list[Operation] = []

    def fails(operation: Operation) -> None:
        kept.append(operation)
        raise LookupError

    with pytest.raises(LookupError):
        bench.gate.run("order:1", fails, **OPTIONS)
    with pytest.raises(IllegalMove, match="it while it runs"):
        bench.charge(kept[0])

    assert (bench.rows, bench.state()) == (0, "released")


class TestAnswers:
    """What may be settled."""

    @pytest.mark.parametrize("answer", [object(), "x" * 2_000], ids=["no stored form", "too long"])
    def test_an_answer_that_cannot_be_kept_is_refused_in_time(self, bench: Bench, answer: Any) -> None:
        """
        The transaction is undone with it, and the key is free.
        """
        with pytest.raises(ResultInvalid, match="your rows are rolled back"):
            bench.gate.run(
                "order:1", lambda operation: bench.charge(operation, answer), result_bytes_max=1_000, **OPTIONS
            )

        assert (bench.rows, bench.state()) == (0, "released")

    def test_a_savepoint_that_was_undone_is_in_doubt(self, bench: Bench) -> None:
        """
        The settle went with the savepoint and the rows around it may stand: SQLAlchemy says that it was in one.
        """
        from sqlalchemy import create_engine, text
        from sqlalchemy.orm import Session

        engine = create_engine(f"sqlite:///{bench.path}")

        def nested(operation: Operation) -> None:
            with Session(engine) as session, session.begin():
                session.execute(text("INSERT INTO charges VALUES ('1')"))
                savepoint = session.begin_nested()
                operation.settle_inside(session, "charged")
                savepoint.rollback()

        with pytest.raises(InDoubt, match="savepoint that is rolled back"):
            bench.gate.run("order:1", nested, **OPTIONS)

        assert (bench.rows, bench.state()) == (1, "in_doubt")
        engine.dispose()


class TestRenewals:
    """While the function runs its lease is renewed; once it has settled, its own commit is awaited first."""

    def test_after_the_settle_renewals_wait_for_the_commit(self, bench: Bench) -> None:
        """
        Not at a third of the lease, as usual, but at two thirds: the open transaction holds the record.
        """
        counts = []

        def slow(operation: Operation) -> None:
            bench.sweep(20)
            counts.append(bench.store.renewals)
            bench.connection.execute("INSERT INTO charges VALUES ('1')")
            bench.gate.settle(operation, bench.connection, "charged")
            bench.sweep(30)
            counts.append(bench.store.renewals)
            bench.connection.commit()

        assert bench.gate.run("order:1", slow, **OPTIONS) == "charged"
        assert counts == [1, 1]

    def test_a_function_that_goes_on_after_a_rollback_keeps_its_claim(self, bench: Bench) -> None:
        """
        Three leases long: nobody else gets the key, and the last transaction settles.
        """

        def stubborn(operation: Operation) -> None:
            for _ in range(9):
                bench.connection.execute("INSERT INTO charges VALUES ('1')")
                bench.gate.settle(operation, bench.connection, "charged")
                bench.connection.rollback()
                bench.sweep(20)
            assert not operation.lost
            bench.charge(operation)

        assert bench.gate.run("order:1", stubborn, **OPTIONS) == "charged"
        assert bench.rows == 1

    def test_a_late_renewal_does_not_take_its_own_commit_for_another_caller(self, bench: Bench) -> None:
        """
        It finds the record settled under its own token, and stops.
        """
        lost = []

        def lingers(operation: Operation) -> None:
            bench.charge(operation)
            bench.sweep(40)
            bench.sweep(40)
            lost.append(operation.lost)

        assert bench.gate.run("order:1", lingers, **OPTIONS) == "charged"
        assert lost == [False]
        assert bench.state() == "settled"

    def test_a_dead_holder_is_simply_followed(self, bench: Bench) -> None:
        """
        A claim whose holder is gone is not in doubt: what it did not settle it did not do.
        """

        class Killed(BaseException):
            pass

        def dies(operation: Operation) -> None:
            bench.connection.execute("INSERT INTO charges VALUES ('1')")
            bench.connection.rollback()
            bench.store.refuses = frozenset(("load", "released"))
            raise Killed

        with pytest.raises(Killed):
            bench.gate.run("order:1", dies, **OPTIONS)
        bench.store.refuses = frozenset()

        assert bench.state() == "claimed"
        bench.clock.advance(61)
        assert bench.state() == "lapsed"
        assert bench.gate.run("order:1", bench.charge, **OPTIONS) == "charged"


class TestNobodyCanSay:
    """The store is away, or the transaction is open still: the claim is left, and time will tell."""

    def test_the_store_is_away_after_the_commit(self, bench: Bench) -> None:
        """
        An honest error; asked again, the answer is there.
        """

        def charges(operation: Operation) -> None:
            bench.charge(operation)
            bench.store.refuses = frozenset(("load",))

        with pytest.raises(StoreUnavailable, match="cannot be asked whether its transaction was committed"):
            bench.gate.run("order:1", charges, **OPTIONS)
        bench.store.refuses = frozenset()

        assert bench.gate.run("order:1", bench.charge, **OPTIONS) == "charged"
        assert bench.rows == 1

    def test_what_was_raised_matters_more(self, bench: Bench) -> None:
        """
        The function's own error comes out, with a note.
        """

        def fails(operation: Operation) -> None:
            bench.store.refuses = frozenset(("load",))
            raise LookupError

        with pytest.raises(LookupError) as raised:
            bench.gate.run("order:1", fails, **OPTIONS)

        assert "the store cannot be asked" in raised.value.__notes__[0]

    def test_a_transaction_that_is_left_open_is_no_success(self, bench: Bench) -> None:
        """
        NotSettled, and nothing is decided: what becomes of it, its commit says.
        """

        def leaves_it_open(operation: Operation) -> None:
            bench.connection.execute("INSERT INTO charges VALUES ('1')")
            bench.gate.settle(operation, bench.connection, "charged")

        bench.store.refuses = frozenset(("released",))  # As a database does for as long as it is open.
        with pytest.raises(NotSettled, match="Commit it before the function returns"):
            bench.gate.run("order:1", leaves_it_open, **OPTIONS)
        bench.store.refuses = frozenset()

        assert bench.state() == "claimed"
        bench.connection.commit()
        assert bench.gate.run("order:1", bench.charge, **OPTIONS) == "charged"
        assert bench.rows == 1

    def test_a_commit_between_the_look_and_the_release_wins(self, bench: Bench) -> None:
        """
        The release names the version that it replaces: it changes nothing, and the answer stands.
        """

        def late(operation: Operation) -> None:
            bench.connection.execute("INSERT INTO charges VALUES ('1')")
            bench.gate.settle(operation, bench.connection, "charged")

        release = type(bench.store).put

        def commits_first(store: Any, write: Any, expect: bytes | None) -> Any:
            if write.state == "released":
                bench.connection.commit()
            return release(store, write, expect)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(bench.store), "put", commits_first)
            outcome = bench.gate.call("order:1", late, **OPTIONS)

        assert (outcome.value, outcome.replayed, bench.rows) == ("charged", False, 1)

    def test_a_waiter_is_woken(self, tmp_path: Path) -> None:
        """
        Whoever waits in the same process hears of the commit at once, and is given the answer.
        """
        gate = Gate(f"sqlite:///{tmp_path}/app.db", scope="acme", wait=30)
        gate.records.get("opened")
        started, answers = threading.Event(), []

        def slow(operation: Operation) -> None:
            connection = sqlite3.connect(tmp_path / "app.db")
            connection.execute("CREATE TABLE charges (amount TEXT)")
            started.set()
            with connection:
                connection.execute("INSERT INTO charges VALUES ('1')")
                operation.settle_inside(connection, "charged")
            connection.close()

        def waits() -> None:
            started.wait()
            answers.append(gate.run("order:1", slow, **OPTIONS))

        thread = threading.Thread(target=waits)
        thread.start()
        answers.append(gate.run("order:1", slow, **OPTIONS))
        thread.join()
        gate.close()

        assert answers == ["charged", "charged"]


def test_a_cancelled_function_is_released(tmp_path: Path) -> None:
    """
    A cancellation strikes between row and settle: the transaction is undone, and the key is free.
    """

    async def whole() -> str:
        async with AsyncGate(f"sqlite:///{tmp_path}/app.db", scope="acme") as gate:

            async def sleeps(operation: Operation) -> None:
                task = asyncio.current_task()

                assert task is not None
                task.cancel()
                await asyncio.sleep(60)

            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(gate.run("order:1", sleeps, **OPTIONS))
            found = await gate.records.get("order:1")

            assert found is not None
            return found.state

    assert asyncio.run(whole()) == "released"
