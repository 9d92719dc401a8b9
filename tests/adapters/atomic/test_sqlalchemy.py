"""
Atomic mode as SQLAlchemy's users know their sessions: autobegin, flush, expiry, savepoints, SQLite's late BEGIN.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from desks import CREATED, Place
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from onceward import AsyncGate, ConfigurationError, Gate
from onceward.errors import IllegalMove, RetryTransaction
from servers.postgres import wanted


class Base(DeclarativeBase):
    """The caller's own models."""


class Invoice(Base):
    """A row that may be there once."""

    __tablename__ = "invoices"
    number: Mapped[str] = mapped_column(primary_key=True)


class Expense(Base):
    """A row of the caller's."""

    __tablename__ = "expenses"
    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[str]


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The caller's database."""
    if request.param == "postgresql" and not wanted():
        pytest.skip("STORES leaves postgres out")
    place = Place(request.param, tmp_path)
    place.ask("DROP TABLE IF EXISTS expenses")
    place.ask("CREATE TABLE expenses (id INTEGER PRIMARY KEY, amount TEXT)")
    return place


@pytest.fixture
def gate(place: Place) -> Iterator[Gate]:
    """A gate on it."""
    with Gate(place.gate_url(), scope="live:acme", wait=0) as gate:
        yield gate


@pytest.fixture
def engine(place: Place) -> Iterator[sa.Engine]:
    """The caller's engine."""
    engine = sa.create_engine(_url(place))
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: sa.Engine) -> Iterator[Session]:
    """The caller's session."""
    with Session(engine) as session:
        yield session


def _url(place: Place) -> str:
    return place.url.replace("postgresql:", "postgresql+psycopg:", 1)


def adding(session: Session, id: int = 1) -> Any:
    """An operation that adds an object and leaves the flush to others."""

    def add() -> dict[str, Any]:
        session.add(Expense(id=id, amount="12.50"))
        return CREATED

    return add


class TestAutobegin:
    """Who commits is decided by whether the session has begun; SQLAlchemy begins it at its first use."""

    def test_a_session_that_was_not_used_yet_is_committed(self, gate: Gate, session: Session, place: Place) -> None:
        """
        Nobody began it, so it is begun and committed here.
        """
        gate.atomic(session, "expense:1", adding(session))

        assert (
            session.in_transaction(),
            place.rows("expenses"),
            place.states(),
        ) == (False, 1, {"expense:1": "settled"})

    @pytest.mark.parametrize("ending", ["commit", "close"])
    def test_a_session_that_has_merely_read_is_the_callers_to_commit(
        self, gate: Gate, session: Session, place: Place, ending: str
    ) -> None:
        """
        The SELECT has begun a transaction: what happens here is in it. Without the caller's commit both are gone,
        record and rows, so that the same key runs again.
        """
        session.scalars(sa.select(Expense)).all()
        gate.atomic(session, "expense:1", adding(session))
        before = (session.in_transaction(), place.rows("expenses"), place.states())
        getattr(session, ending)()

        assert before == (True, 0, {})
        both = (1, {"expense:1": "settled"}) if ending == "commit" else (0, {})
        assert both == (place.rows("expenses"), place.states())

    def test_what_was_added_before_goes_with_the_callers_commit(
        self, gate: Gate, session: Session, place: Place
    ) -> None:
        """
        A pending object has begun the session, too; it is flushed first, and stays when the operation is undone.
        """
        session.add(Expense(id=7, amount="1.00"))
        with pytest.raises(ZeroDivisionError):
            gate.atomic(session, "expense:1", lambda: (adding(session)(), 1 // 0))
        session.commit()

        assert (place.ask("SELECT id FROM expenses"), place.states()) == ([(7,)], {})

    def test_begin_says_it_best(self, gate: Gate, engine: sa.Engine, place: Place) -> None:
        """
        With `Session.begin()` there is no question: reads, operations and rows commit at the end of the block.
        """
        with Session(engine) as session, session.begin():
            session.scalars(sa.select(Expense)).all()
            gate.atomic(session, "expense:1", adding(session))

        assert (place.rows("expenses"), place.states()) == (1, {"expense:1": "settled"})

    def test_a_session_without_autobegin_is_begun(self, gate: Gate, engine: sa.Engine, place: Place) -> None:
        """
        `autobegin=False` forbids SQLAlchemy to begin by itself, not us to begin on purpose.
        """
        with Session(engine, autobegin=False) as session:
            gate.atomic(session, "expense:1", adding(session))

        assert place.rows("expenses") == 1


class TestObjects:
    """Objects of the session are flushed before the record settles, and expire as SQLAlchemy does it."""

    def test_a_constraint_that_the_flush_violates_is_the_operations_failure(
        self, gate: Gate, session: Session, place: Place
    ) -> None:
        """
        The IntegrityError comes out unchanged; no record says that it worked, and the session can be used again.
        """
        place.ask("INSERT INTO expenses VALUES (1, '1.00')")
        with pytest.raises(sa.exc.IntegrityError):
            gate.atomic(session, "expense:1", adding(session, id=1))
        undone = (session.in_transaction(), place.states())
        gate.atomic(session, "expense:1", adding(session, id=2))

        assert undone == (False, {})
        assert (place.rows("expenses"), place.states()) == (2, {"expense:1": "settled"})

    def test_such_a_failure_leaves_the_callers_transaction_usable(
        self, gate: Gate, session: Session, place: Place
    ) -> None:
        """
        It was flushed inside the savepoint: the rest of the transaction goes on. The same with remember="all".
        """
        place.ask("INSERT INTO expenses VALUES (1, '1.00')")
        with session.begin():
            session.add(Invoice(number="R-1"))
            for remember in ("success", "all"):
                with pytest.raises(sa.exc.IntegrityError):
                    gate.atomic(session, "expense:1", adding(session, id=1), remember=remember)
            gate.atomic(session, "expense:2", adding(session, id=2))

        assert (place.rows("expenses"), place.rows("invoices"), place.states()) == (2, 1, {"expense:2": "settled"})

    def test_what_the_caller_had_added_wrongly_is_the_callers_own_news(
        self, gate: Gate, session: Session, place: Place
    ) -> None:
        """
        A pending object that cannot be flushed fails before the operation begins, and SQLAlchemy's error says so. A
        session that waits for its rollback is told to do not catch that error.
        """
        place.ask("INSERT INTO expenses VALUES (1, '1.00')")
        session.add(Expense(id=1, amount="2.00"))
        with pytest.raises(sa.exc.IntegrityError):
            gate.atomic(session, "expense:9", adding(session, id=9))
        with pytest.raises(IllegalMove, match="do not catch that error"):
            gate.atomic(session, "expense:9", adding(session, id=9))
        session.rollback()

        assert (place.rows("expenses"), place.states()) == (1, {})

    def test_objects_that_were_changed_and_undone_expire(self, gate: Gate, session: Session, place: Place) -> None:
        """
        After a rollback an object shows what the database holds, not what the operation had tried.
        """
        place.ask("INSERT INTO expenses VALUES (1, '1.00')")
        kept = session.get_one(Expense, 1)

        def change() -> None:
            kept.amount = "99.00"
            session.flush()
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            gate.atomic(session, "expense:1", change)

        assert kept.amount == "1.00"

    def test_a_deferred_constraint_surfaces_at_the_commit(self, gate: Gate, session: Session, place: Place) -> None:
        """
        PostgreSQL may check as late as COMMIT: still the caller's own error, and nothing happened.
        """
        if place.database == "sqlite":
            place.ask("CREATE TABLE lines (number TEXT REFERENCES invoices DEFERRABLE INITIALLY DEFERRED)")
        else:
            place.ask("DROP TABLE IF EXISTS lines")
            place.ask("CREATE TABLE lines (number TEXT REFERENCES invoices DEFERRABLE INITIALLY DEFERRED)")

        def insert() -> None:
            session.execute(sa.text("INSERT INTO lines VALUES ('nowhere')"))

        if place.database == "sqlite":
            session.execute(sa.text("PRAGMA foreign_keys = ON"))
            session.rollback()
        with pytest.raises(sa.exc.IntegrityError):
            gate.atomic(session, "line:1", insert)

        assert (place.rows("lines"), place.states(), session.in_transaction()) == (0, {}, False)
        place.ask("DROP TABLE lines")


class TestSqlite:
    """SQLite through SQLAlchemy: the driver's own late BEGIN, and the ways around it."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        """A SQLite file."""
        place = Place("sqlite", tmp_path)
        place.ask("CREATE TABLE expenses (id INTEGER PRIMARY KEY, amount TEXT)")
        return place

    def test_a_savepoint_never_becomes_the_transaction(self, gate: Gate, session: Session, place: Place) -> None:
        """
        With nothing written yet, sqlite3 has begun nothing, and releasing a savepoint would commit. It does not.
        """
        session.execute(sa.text("SELECT 1"))
        gate.atomic(session, "expense:1", adding(session))
        session.rollback()

        assert (place.rows("expenses"), place.states()) == (0, {})

    def test_a_lock_that_outlasts_the_busy_limit_says_retry_your_transaction(self, gate: Gate, place: Place) -> None:
        """
        `database is locked` becomes a typed "retry your transaction", and nothing happened.
        """
        engine = sa.create_engine(place.url, connect_args={"timeout": 0.01})
        with engine.connect() as holder, Session(engine) as session:
            holder.exec_driver_sql("BEGIN IMMEDIATE")
            with pytest.raises(RetryTransaction):
                gate.atomic(session, "expense:1", adding(session))
            holder.rollback()
            gate.atomic(session, "expense:1", adding(session))
        engine.dispose()

        assert place.rows("expenses") == 1

    @pytest.mark.parametrize("begins", [True, False])
    def test_an_engine_that_says_begin_itself_works_and_one_that_nobody_begins_is_refused(
        self, gate: Gate, place: Place, begins: bool
    ) -> None:
        """
        The recipe of SQLAlchemy's documentation: isolation_level None, and an event that says BEGIN. Racers included.
        """
        engine = sa.create_engine(place.url, connect_args={"timeout": 30, "isolation_level": None})
        if begins:
            event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        answers: list[Any] = []

        def race() -> None:
            with Session(engine) as session:
                answers.append(gate.atomic(session, "expense:1", adding(session)))

        if not begins:
            with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
                race()
        else:
            threads = [threading.Thread(target=race) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        engine.dispose()

        assert (answers, place.rows("expenses")) == ([CREATED] * 4, 1) if begins else place.rows("expenses") == 0

    def test_a_commit_in_sql_is_noticed_before_anything_commits_alone(self, gate: Gate, place: Place) -> None:
        """
        Behind SQLAlchemy's back, and with nobody to begin anew: the operation is left in doubt.
        """
        engine = sa.create_engine(place.url, connect_args={"isolation_level": None})
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        with Session(engine) as session:

            def meddle() -> None:
                session.execute(sa.text("INSERT INTO expenses VALUES (1, '1.00')"))
                session.execute(sa.text("COMMIT"))

            with pytest.raises(IllegalMove):
                gate.atomic(session, "expense:1", meddle)
        engine.dispose()

        assert (place.rows("expenses"), place.states()) == (1, {"expense:1": "in_doubt"})


def test_autocommit_is_refused(gate: Gate, engine: sa.Engine, place: Place) -> None:
    """
    As an option of the engine or of the connection: the record would commit alone.
    """
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with (
        Session(autocommit) as session,
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
    ):
        for target in (session, connection):
            with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
                gate.atomic(target, "expense:1", lambda: "never")
            assert not target.in_transaction()

    assert place.states() == {}


def test_a_scoped_session_is_the_session_of_its_scope(gate: Gate, engine: sa.Engine, place: Place) -> None:
    """
    What web frameworks hand out is a proxy; the session behind it is joined.
    """
    scoped = scoped_session(sessionmaker(engine))
    gate.atomic(scoped, "expense:1", adding(scoped()))
    scoped.remove()

    assert (place.rows("expenses"), place.states()) == (1, {"expense:1": "settled"})


def test_a_session_of_several_databases_has_to_name_one(gate: Gate, engine: sa.Engine, place: Place) -> None:
    """
    It is refused with advice, and the connection that the advice names is joined.
    """
    with Session(binds={Expense: engine}) as session:
        with pytest.raises(ConfigurationError, match="bind_arguments"):
            gate.atomic(session, "expense:1", adding(session))
        connection = session.connection(bind_arguments={"mapper": sa.inspect(Expense)})
        gate.atomic(connection, "expense:1", lambda: (adding(session)(), session.flush()) and "added")
        session.commit()

    assert (place.rows("expenses"), place.states()) == (1, {"expense:1": "settled"})


def test_each_colour_of_gate_names_the_sessions_that_it_knows(gate: Gate, engine: sa.Engine, place: Place) -> None:
    """
    An AsyncSession on a Gate, a Session on an AsyncGate, an Engine on either: refused, with what would do.
    """
    asynchronous = create_async_engine(_url(place).replace("sqlite:", "sqlite+aiosqlite:"))
    awaiting = AsyncGate(place.gate_url(), scope="live:acme")

    async def scenario() -> None:
        async with AsyncSession(asynchronous) as session:
            for target in (session, engine, asynchronous.connect()):
                with pytest.raises(ConfigurationError, match="AsyncGate"):
                    gate.atomic(target, "k", lambda: None)
        with Session(engine) as blocking:
            for target in (blocking, engine):
                with pytest.raises(ConfigurationError, match="Session and Connection on a Gate"):
                    await awaiting.atomic(target, "k", lambda: None)
        with pytest.raises(ConfigurationError, match="not open"):
            await awaiting.atomic(asynchronous.connect(), "k", lambda: None)
        await awaiting.close()
        await asynchronous.dispose()

    asyncio.run(scenario())


def test_an_async_scoped_session_is_joined_and_a_cancelled_caller_leaves_nothing(place: Place) -> None:
    """
    The task is cancelled inside the function: rows and record are undone, and the next caller runs.
    """

    async def scenario() -> None:
        engine = create_async_engine(_url(place).replace("sqlite:", "sqlite+aiosqlite:"))
        scoped = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        gate = AsyncGate(place.gate_url(), scope="live:acme")
        reached = asyncio.Event()

        async def add(hangs: bool = False) -> str:
            scoped.add(Expense(id=1, amount="1.00"))
            await scoped.flush()
            if hangs:
                reached.set()
                await asyncio.Event().wait()
            return "added"

        async def hang() -> None:
            try:
                await gate.atomic(scoped, "expense:1", lambda: add(hangs=True))
            finally:
                await scoped.remove()

        task = asyncio.create_task(hang())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        undone = (place.rows("expenses"), place.states())
        answer = await gate.atomic(scoped, "expense:1", add)
        await scoped.remove()
        await gate.close()
        await engine.dispose()

        assert undone == (0, {})
        assert (answer, place.rows("expenses"), place.states()) == ("added", 1, {"expense:1": "settled"})

    asyncio.run(scenario())


def test_once_takes_the_session_from_a_parameter(gate: Gate, session: Session, place: Place) -> None:
    """
    `@gate.once(guarantee="atomic", connection="db")`: the session is not part of the request.
    """

    @gate.once(key="expense:{number}", guarantee="atomic", connection="db")
    def record(db: Session, number: int, amount: str) -> str:
        db.add(Expense(id=number, amount=amount))
        return "created"

    assert "created" == record(session, 1, "1.00") == record(session, 1, "1.00")
    assert place.rows("expenses") == 1
