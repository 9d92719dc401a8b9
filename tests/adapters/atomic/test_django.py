"""
Atomic mode as Django's users know their transactions: atomic(), on_commit, durable, ATOMIC_REQUESTS.
"""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django_desk
import pytest
from desks import CREATED, Kind
from django.db import DatabaseError, IntegrityError, connection, connections, transaction
from django.http import HttpRequest, JsonResponse
from django.test import Client, TestCase
from django.test.utils import CaptureQueriesContext
from django.urls import path
from django_desk import DjangoDesk

from onceward import AsyncGate, ConfigurationError, Gate
from onceward.errors import IllegalMove, RetryTransaction
from servers.postgres import wanted

ALIAS = "app"


@pytest.fixture(params=["sqlite", "postgresql"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DjangoDesk]:
    """A gate and an alias on one database."""
    if request.param == "postgresql" and not wanted():
        pytest.skip("STORES leaves postgres out")
    desk = DjangoDesk(Kind("django", request.param), tmp_path)
    desk.point_at(ALIAS)
    yield desk
    django_desk.forget(ALIAS)
    for alias in django_desk.ALIASES:
        django_desk.forget(alias)
    desk.gate.close()


@pytest.fixture
def gate(desk: DjangoDesk) -> Gate:
    """That gate."""
    gate: Gate = desk.gate
    return gate


@pytest.fixture
def db(desk: DjangoDesk) -> Any:
    """The caller's connection, as Django hands it out."""
    return connections[ALIAS]


def charge() -> dict[str, Any]:
    """The caller's work."""
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("INSERT INTO charges VALUES (%s, %s)", [1, "12.50"])
    return CREATED


def spoil() -> None:
    """Work that fails after its row."""
    charge()
    raise ZeroDivisionError


class TestOnCommit:
    """Hooks run after the real commit, and only then."""

    def test_a_hook_runs_once_after_the_commit_and_never_for_a_replay(
        self, gate: Gate, db: Any, desk: DjangoDesk
    ) -> None:
        """
        When it runs, another connection sees row and record.
        """
        seen: list[Any] = []

        def book() -> dict[str, Any]:
            transaction.on_commit(lambda: seen.append((desk.place.rows(), desk.place.states())), using=ALIAS)
            return charge()

        for _ in range(3):
            gate.atomic(db, "charge:1", book)

        assert seen == [(1, {"charge:1": "settled"})]

    def test_inside_the_callers_atomic_it_waits_for_that(self, gate: Gate, db: Any) -> None:
        """
        Releasing our savepoint is no commit. A hook of an operation that was undone never runs.
        """
        seen: list[str] = []

        def book(name: str, fails: bool = False) -> Any:
            def work() -> None:
                transaction.on_commit(lambda: seen.append(name), using=ALIAS)
                if fails:
                    raise ZeroDivisionError

            return work

        with transaction.atomic(using=ALIAS):
            gate.atomic(db, "kept", book("kept"))
            with pytest.raises(ZeroDivisionError):
                gate.atomic(db, "undone", book("undone", fails=True))
            before = list(seen)
        with pytest.raises(ZeroDivisionError):
            gate.atomic(db, "alone", book("alone", fails=True))

        assert (before, seen) == ([], ["kept"])

    @pytest.mark.parametrize("error", [ValueError("hook"), DatabaseError("hook")])
    def test_a_hook_that_raises_is_the_callers_news_and_the_operation_stands(
        self, gate: Gate, db: Any, desk: DjangoDesk, error: Exception
    ) -> None:
        """
        As Django has it: the transaction is committed, the error comes out as it is, and a retry replays.
        """

        def fail() -> None:
            raise error

        def book() -> dict[str, Any]:
            transaction.on_commit(fail, using=ALIAS)
            return charge()

        with pytest.raises(type(error), match="hook"):
            gate.atomic(db, "charge:1", book)

        assert (desk.place.rows(), desk.place.states()) == (1, {"charge:1": "settled"})
        assert gate.atomic(db, "charge:1", book) == CREATED
        assert not db.in_atomic_block


class TestWhoCommits:
    """Outside of atomic() we do; inside, and where autocommit is off, the caller."""

    def test_the_proxy_and_the_connection_are_one(self, desk: DjangoDesk, gate: Gate) -> None:
        """
        `django.db.connection` is a proxy for the default alias.
        """
        desk.point_at("default")
        with connection.cursor() as cursor:
            gate.atomic(connection, "charge:1", lambda: cursor.execute("INSERT INTO charges VALUES (1, '1')") and None)
        gate.atomic(connections["default"], "charge:1", spoil)

        assert (desk.place.rows(), desk.place.states()) == (1, {"charge:1": "settled"})
        connection.close()

    @pytest.mark.parametrize("writes_first", [False, True])
    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    def test_where_autocommit_is_off_the_caller_commits(
        self, gate: Gate, db: Any, desk: DjangoDesk, ending: str, writes_first: bool
    ) -> None:
        """
        `set_autocommit(False)` means that transactions are ended by hand: a savepoint is used, on SQLite as well.
        """
        transaction.set_autocommit(False, using=ALIAS)
        if writes_first:
            charge()
        gate.atomic(db, "charge:1", charge)
        with pytest.raises(ZeroDivisionError):
            gate.atomic(db, "charge:2", spoil)
        before = (desk.place.rows(), desk.place.states())
        getattr(transaction, ending)(using=ALIAS)
        transaction.set_autocommit(True, using=ALIAS)

        assert before == (0, {})
        kept = (2 if writes_first else 1, {"charge:1": "settled"}) if ending == "commit" else (0, {})
        assert kept == (desk.place.rows(), desk.place.states())

    def test_durable_blocks_stay_durable(self, gate: Gate, db: Any, desk: DjangoDesk) -> None:
        """
        A durable block may hold operations; inside an operation a durable block is refused, as Django has it.
        """

        def durable() -> None:
            with transaction.atomic(using=ALIAS, durable=True):
                charge()

        with transaction.atomic(using=ALIAS, durable=True):
            gate.atomic(db, "charge:1", charge)
        with pytest.raises(RuntimeError, match="durable"):
            gate.atomic(db, "charge:2", durable)

        assert (desk.place.rows(), desk.place.states()) == (1, {"charge:1": "settled"})

    def test_atomic_requests_decide_for_the_whole_view(self, gate: Gate, desk: DjangoDesk) -> None:
        """
        ATOMIC_REQUESTS: a view that fails later undoes the operation with everything else, and the retry runs it.
        """
        fails = [True, False, False]

        def view(request: HttpRequest) -> JsonResponse:
            answer = gate.atomic(connections[ALIAS], "charge:1", charge)
            if fails.pop(0):
                raise ZeroDivisionError
            return JsonResponse(answer)

        desk.point_at(ALIAS, ATOMIC_REQUESTS=True)
        django_desk.urlpatterns.append(path("charge", view))
        client = Client(raise_request_exception=False)
        statuses, rows = [], []
        for _ in range(3):
            statuses.append(client.post("/charge").status_code)
            rows.append(desk.place.rows())
        django_desk.urlpatterns.clear()

        assert (statuses, rows) == ([500, 200, 200], [0, 1, 1])


class TestFailures:
    """What goes wrong in Django's own way is said in ours, and nothing is kept by halves."""

    def test_a_block_that_was_doomed_cannot_be_settled(self, gate: Gate, db: Any, desk: DjangoDesk) -> None:
        """
        set_rollback(True), or an error swallowed around an atomic(savepoint=False): Django would undo without a word.
        """

        def doom() -> None:
            charge()
            transaction.set_rollback(True, using=ALIAS)

        def swallow() -> None:
            charge()
            try:
                with transaction.atomic(using=ALIAS, savepoint=False):
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass

        for work in (doom, swallow):
            for remember in ("success", "all"):
                with pytest.raises(IllegalMove, match="do not catch that error"):
                    gate.atomic(db, "charge:1", work, remember=remember)
        with transaction.atomic(using=ALIAS):
            transaction.set_rollback(True, using=ALIAS)
            with pytest.raises(IllegalMove, match="do not catch that error"):
                gate.atomic(db, "charge:1", charge)

        assert (desk.place.rows(), desk.place.states(), db.in_atomic_block) == (0, {}, False)
        assert gate.atomic(db, "charge:1", charge) == CREATED

    def test_a_deferred_constraint_surfaces_at_the_commit(self, gate: Gate, db: Any, desk: DjangoDesk) -> None:
        """
        Foreign keys are checked at COMMIT in Django: still its IntegrityError, and nothing happened.
        """
        desk.place.ask("DROP TABLE IF EXISTS lines")
        desk.place.ask("CREATE TABLE lines (number TEXT REFERENCES invoices DEFERRABLE INITIALLY DEFERRED)")

        def insert() -> None:
            with db.cursor() as cursor:
                cursor.execute("INSERT INTO lines VALUES ('nowhere')")

        with pytest.raises(IntegrityError):
            gate.atomic(db, "line:1", insert)

        assert (desk.place.rows("lines"), desk.place.states(), db.in_atomic_block) == (0, {}, False)
        desk.place.ask("DROP TABLE lines")

    def test_a_transaction_that_read_first_on_sqlite_is_told_why(self, tmp_path: Path) -> None:
        """
        Django begins deferred: having read, it cannot get the lock once another has written. IMMEDIATE does not read.
        """
        desk = DjangoDesk(Kind("django", "sqlite"), tmp_path)
        desk.point_at(ALIAS)
        with pytest.raises(RetryTransaction, match="BEGIN IMMEDIATE"), transaction.atomic(using=ALIAS):
            with connections[ALIAS].cursor() as cursor:
                cursor.execute("SELECT count(*) FROM charges")
                cursor.fetchall()
            desk.place.ask("INSERT INTO charges VALUES (9, '9')")
            desk.gate.atomic(connections[ALIAS], "charge:1", charge)

        assert desk.gate.atomic(connections[ALIAS], "charge:1", charge) == CREATED
        django_desk.forget(ALIAS)
        desk.gate.close()

    def test_an_awaiting_gate_says_what_to_do_instead(self, desk: DjangoDesk, db: Any) -> None:
        """
        Django's transactions belong to a thread: sync_to_async and a blocking gate.
        """

        async def scenario() -> None:
            async with AsyncGate(desk.place.gate_url(), scope="live:acme") as awaiting:
                for target in (db, connection):
                    with pytest.raises(ConfigurationError, match="sync_to_async"):
                        await awaiting.atomic(target, "k", lambda: None)

        asyncio.run(scenario())

    def test_the_handler_of_all_connections_is_not_a_connection(self, gate: Gate) -> None:
        """
        `connections` without a name cannot say which database is meant.
        """
        with pytest.raises(ConfigurationError, match="connections"):
            gate.atomic(connections, "k", lambda: None)


def test_a_database_in_memory_is_refused(gate: Gate) -> None:
    """
    It belongs to its connection alone, so no gate can be open on it.
    """
    django_desk.forget("default")
    connections.settings["default"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    connections.settings = connections.configure_settings(connections.settings)
    with pytest.raises(ConfigurationError, match="one database"):
        gate.atomic(connection, "k", lambda: None)
    connection.close()


def test_in_a_test_case_everything_is_rolled_back_with_it(gate: Gate, desk: DjangoDesk) -> None:
    """
    Django's TestCase is a transaction around each test: operations run and replay in it, and nothing is left.
    """
    answers: list[Any] = []

    class Charging(TestCase):
        databases = {ALIAS}

        def test_it(self) -> None:
            answers.extend(gate.atomic(connections[ALIAS], "charge:1", charge) for _ in range(2))

    result = unittest.TestResult()
    unittest.TestSuite([Charging("test_it")]).run(result)

    assert (result.errors, result.failures) == ([], [])
    assert answers == [CREATED] * 2
    assert (desk.place.rows(), desk.place.states()) == (0, {})


def test_it_works_while_django_records_its_queries(gate: Gate, db: Any, desk: DjangoDesk) -> None:
    """
    With DEBUG on, Django formats every statement it runs, with its parameters; ours must not break that.
    """
    with CaptureQueriesContext(db) as queries:
        gate.atomic(db, "charge:1", charge)

    assert any("charges" in query["sql"] for query in queries)
    assert desk.place.rows() == 1


def test_the_same_under_sync_to_async(gate: Gate, desk: DjangoDesk) -> None:
    """
    The documented way under asyncio: the transaction in a function, the function in Django's thread.
    """
    from asgiref.sync import sync_to_async

    def book() -> dict[str, Any]:
        try:
            return gate.atomic(connections[ALIAS], "charge:1", charge)
        finally:
            connections[ALIAS].close()

    async def scenario() -> list[Any]:
        return list(await asyncio.gather(*(sync_to_async(book, thread_sensitive=False)() for _ in range(3))))

    assert asyncio.run(scenario()) == [CREATED] * 3
    assert desk.place.rows() == 1
