"""Behind a real PgBouncer: the suite's puts and races, batches, transactions of callers, and what is left behind."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from postgres_support import COLOURS, handle, query

from onceward import ConfigurationError, Gate, StoreUnavailable
from onceward.stores import open_async_store, open_store
from onceward.testing.store_suite.rows import row, settled
from onceward.testing.store_suite.suite import (
    TestExtend,
    TestForgetting,
    TestPuttingWhereAVersionIsExpected,
    TestPuttingWhereNothingStands,
    TestRacesForOnePlace,
    TestRacesSideBySide,
    TestShrinking,
    another,
    clock,
    do,
    loop,
    opened,
    place,
    pytest_generate_tests,
    runner,
    scope,
    store,
    together,
)
from servers.pgbouncer import PgBouncer, needed_pgbouncer, pooled, version
from servers.postgres import PostgresServer, needed, running

__all__ = [
    "TestExtend",
    "TestForgetting",
    "TestPuttingWhereAVersionIsExpected",
    "TestPuttingWhereNothingStands",
    "TestRacesForOnePlace",
    "TestRacesSideBySide",
    "TestShrinking",
    "another",
    "clock",
    "do",
    "loop",
    "opened",
    "place",
    "pytest_generate_tests",
    "runner",
    "scope",
    "store",
    "together",
]

needed()
needed_pgbouncer()

OURS = "onceward_bouncer=1"


@functools.cache
def _shared() -> PgBouncer:
    """This worker's pooler in transaction mode: with fewer connections to the server than clients have to it."""
    holder = pooled(running(), "transaction", default_pool_size=3)
    _holders.append(holder)
    return holder.__enter__()


_holders: list[Any] = []


@pytest.fixture(scope="module", autouse=True)
def _end() -> Iterator[None]:
    yield
    while _holders:
        _holders.pop().__exit__(None, None, None)
    _shared.cache_clear()


def transaction_pooling(colour: str, environment: Any) -> Any:
    """Opens stores behind the pooler, for the suite."""
    opener: Any = open_store if colour == "blocking" else open_async_store
    return opener(_shared().url("onceward", options=OURS), environment=environment)


STORES = (transaction_pooling,)


@pytest.fixture
def bouncer() -> PgBouncer:
    return _shared()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_crowd_shares_statements_and_each_gets_its_own_answer(bouncer: PgBouncer, colour: str) -> None:
    """
    Two hundred callers, three connections to the server: claims and settles land once each.
    """
    writes = [row("test:crowd", f"k{n}", operation=f"op{n}") for n in range(200)]
    with handle(bouncer.url("onceward", options=OURS), colour) as store:
        held = store.together([(write, None) for write in writes])
        ended = store.together([(settled(one.record), one.record.version) for one in held])
        again = store.together([(row("test:crowd", f"k{n}"), None) for n in range(200)])

    assert [True] * 200 == [one.landed for one in held] == [one.landed for one in ended]
    assert [(False, f"op{n}") for n in range(200)] == [(one.landed, one.record.operation) for one in again]


@pytest.mark.parametrize("colour", COLOURS)
def test_what_a_statement_sets_ends_with_it(server: PostgresServer, colour: str) -> None:
    """
    With one connection to the server, the next client on it finds the lock timeout and the durability it always had.
    """
    ask = "SELECT current_setting('lock_timeout'), current_setting('synchronous_commit'), pg_backend_pid()"
    with pooled(server, "transaction", default_pool_size=1) as narrow:
        options = f"{OURS}&onceward_lock_timeout=3.21&onceward_settle=relaxed"
        with handle(narrow.url("onceward", options=options), colour) as store:
            store.put(row("test:leak", "warm"))
            before = query(narrow.url("onceward"), ask)
            held = [one.record for one in store.together([(row("test:leak", f"k{n}"), None) for n in range(10)])]
            store.together([(settled(one)._replace(relaxed=True), one.version) for one in held])
            store.call("purge", 10)
            after = query(narrow.url("onceward"), ask)

    assert before[0][:2] == ("0", "on")
    assert before == after, "the same connection to the server, with the same settings"


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (OURS, {}),
        ("", {"ignore_startup_parameters": "options"}),
        pytest.param(
            "",
            {"ignore_startup_parameters": "options", "max_prepared_statements": 100},
            marks=pytest.mark.skipif(
                version() < (1, 21),
                reason=f"NOT TESTED HERE: PgBouncer {version()} has no max_prepared_statements (1.21 has)",
            ),
        ),
    ],
    ids=["declared", "noticed", "a pooler that knows prepared statements"],
)
def test_nothing_is_prepared_on_a_connection_that_others_will_use(
    server: PostgresServer, options: str, settings: dict[str, Any]
) -> None:
    """
    Declared in the URL, or noticed because the pooler swallows startup parameters; connections to the server may be
    replaced at any time.
    """
    with pooled(server, "transaction", default_pool_size=1, **settings) as narrow:
        store = open_store(narrow.url("onceward", options=options))
        landed = []
        for n in range(6):
            landed.append(store.put(row("test:prepared", f"k{n}"), None).landed)
            prepared = query(narrow.url("onceward"), "SELECT count(*) FROM pg_prepared_statements")
            query(narrow.url("pgbouncer"), "RECONNECT")
        store.close()

    assert landed == [True] * 6
    assert prepared == [(0,)]


def test_without_the_option_the_pooler_refuses_and_the_option_is_named(bouncer: PgBouncer) -> None:
    """
    A mistake in the declaration, with its cure and no word about passwords.
    """
    store = open_store(bouncer.url("onceward"))
    with pytest.raises(ConfigurationError, match="add onceward_bouncer=1") as told:
        store.put(row("test:refused"), None)
    store.close()

    assert "password" not in str(told.value)


class TestAtomic:
    """`gate.atomic` where the caller's connection, the store's or both go through the pooler."""

    @pytest.fixture(params=["both", "only the caller's"])
    def gate(self, request: pytest.FixtureRequest, bouncer: PgBouncer, url: str) -> Iterator[Gate]:
        query(url, "CREATE TABLE IF NOT EXISTS shop (item text)")
        query(url, "TRUNCATE shop")
        where = bouncer.url("onceward", options=OURS) if request.param == "both" else url
        with Gate(where, scope="test:pooled") as gate:
            yield gate

    def test_committed_both_stand_and_rolled_back_neither(self, gate: Gate, bouncer: PgBouncer, url: str) -> None:
        """
        One transaction of the server, whoever else uses its connection before and after.
        """

        def buy(connection: psycopg.Connection[Any], fails: bool) -> str:
            connection.execute("INSERT INTO shop VALUES ('book')")
            if fails:
                raise ZeroDivisionError
            return "bought"

        with psycopg.connect(bouncer.url("onceward"), prepare_threshold=None) as connection:
            with pytest.raises(ZeroDivisionError):
                gate.atomic(connection, "k", lambda: buy(connection, True))
            undone = query(url, "SELECT count(*) FROM shop") + query(url, "SELECT count(*) FROM onceward_records")
            answers = [gate.atomic(connection, "k", lambda: buy(connection, False)) for _ in range(3)]

        assert undone == [(0,), (0,)]
        assert (answers, query(url, "SELECT count(*) FROM shop")) == (["bought"] * 3, [(1,)])

    def test_racers_have_one_effect_and_the_same_answer(self, gate: Gate, bouncer: PgBouncer, url: str) -> None:
        """
        Each with a connection of its own to the pooler, which has fewer to the server.
        """
        answers: list[Any] = []
        gate.run("warm", lambda: "the tables are there")

        def race(number: int) -> None:
            with psycopg.connect(bouncer.url("onceward"), prepare_threshold=None) as connection:

                def buy() -> str:
                    connection.execute("INSERT INTO shop VALUES ('book')")
                    return f"bought by {number}"

                answers.append(gate.atomic(connection, "k", buy))

        threads = [threading.Thread(target=race, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (len(answers), len(set(answers))) == (8, 1)
        assert query(url, "SELECT count(*) FROM shop") == [(1,)]


@pytest.mark.parametrize("colour", COLOURS)
def test_session_pooling_is_served_with_the_same_option(server: PostgresServer, colour: str) -> None:
    """
    A connection of the server for each of ours: more than we ask for.
    """
    with (
        pooled(server, "session", default_pool_size=20) as bouncer,
        handle(bouncer.url("onceward", options=OURS), colour) as store,
    ):
        held = store.put(row("test:session")).record
        ended = store.put(settled(held), held.version)

        assert (ended.landed, store.put(row("test:session")).record.result) == (True, b'"done"')


@pytest.mark.parametrize("colour", COLOURS)
def test_statement_pooling_makes_no_tables_and_serves_those_that_are_there(server: PostgresServer, colour: str) -> None:
    """
    Making tables needs a transaction: refused with what to set, and nothing is half made. A put is one statement.
    """
    database = f"stated_{colour}"
    server.execute(f"DROP DATABASE IF EXISTS {database}")
    server.execute(f"CREATE DATABASE {database}")
    with pooled(server, "statement") as bouncer:
        with handle(bouncer.url(database, options=OURS), colour) as store:
            with pytest.raises(ConfigurationError, match="set its pool_mode to transaction"):
                store.put(row("test:stated"))
            half = query(server.url(database), "SELECT to_regclass('onceward_meta'), to_regclass('onceward_records')")
        with handle(server.url(database), colour) as direct:
            direct.put(row("test:stated", "direct"))
        with handle(bouncer.url(database, options=OURS), colour) as store:
            answers = store.together([(row("test:stated", f"k{n}"), None) for n in range(20)])

    assert half == [(None, None)]
    assert [one.landed for one in answers] == [True] * 20


def test_a_pooler_whose_connections_are_all_taken_is_away(server: PostgresServer) -> None:
    """
    A client sits on the only connection: the pooler gives up for us, and we say so; afterwards all is well.
    """
    with (
        pooled(server, "transaction", default_pool_size=1, query_wait_timeout=1) as narrow,
        psycopg.connect(narrow.url("onceward")) as other,
        handle(narrow.url("onceward", options=OURS), "blocking") as store,
    ):
        store.put(row("test:taken", "warm"))
        other.execute("SELECT 1")
        with pytest.raises(StoreUnavailable, match="query_wait_timeout") as told:
            store.put(row("test:taken"))
        other.rollback()

        assert True is store.put(row("test:taken")).landed
        assert told.value.retry_after_seconds is not None
