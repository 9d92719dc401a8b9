"""
A commit whose wait for the synchronous standby was cancelled: PostgreSQL says success, and only this server has it.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import psycopg
import pytest
from postgres_support import COLOURS, handle, query

from onceward import AsyncGate, Gate, StoreUnavailable
from onceward.runtime.environment import REAL
from onceward.stores import open_store
from onceward.stores.tables import Schema, open_tables
from onceward.stores.tables.sql_steps import Sql, SqlSteps
from onceward.testing.store_suite.rows import HOUR_US, row
from servers.postgres import PostgresServer, needed

needed()

COUNT = "SELECT count(*) FROM onceward_records WHERE scope = 'test:unconfirmed'"


@pytest.fixture(autouse=True)
def _ready(url: str) -> None:
    """The tables are made while the standby is not missed."""
    with open_store_ready(url):
        pass


def open_store_ready(url: str) -> Any:
    gate = Gate(open_store(url), scope="test:unconfirmed")
    gate.records.get("ready")
    return gate


@pytest.mark.fault("a-cancelled-wait-is-success")
@pytest.mark.parametrize("colour", COLOURS)
def test_a_cancelled_wait_is_not_an_acknowledgement(url: str, server: PostgresServer, colour: str) -> None:
    """
    The caller hears that it may have landed. It has, here: which is just what a failover would lose.
    """
    with handle(url, colour) as store, server.without_its_standby():
        with pytest.raises(StoreUnavailable, match="may have landed, and a failover may lose it") as told:
            store.put(row("test:unconfirmed"))

        assert told.value.retry_after_seconds == 1.0
        assert query(url, COUNT) == [(1,)]


@pytest.mark.fault("a-cancelled-wait-is-success")
@pytest.mark.parametrize("colour", COLOURS)
def test_nobody_in_a_batch_is_told_that_it_landed(url: str, server: PostgresServer, colour: str) -> None:
    """
    Writes that travel together are one commit, and so are their answers.
    """
    writes = [row("test:unconfirmed", f"k{number}") for number in range(8)]
    with handle(url, colour) as store, server.without_its_standby():
        answers = store.together([(write, None) for write in writes])

    assert [type(answer) for answer in answers] == [StoreUnavailable] * 8


@pytest.mark.fault("recognised-by-a-read", "a-lone-put-is-recognised-by-a-read")
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("again", ["put", "batch"])
def test_a_write_that_is_sent_again_is_believed_after_one_that_waits(
    url: str, server: PostgresServer, colour: str, again: str
) -> None:
    """
    It finds itself standing by a read, and a read waits for no standby: not told before a write has waited.
    """
    write = row("test:unconfirmed", "again")
    puts = [(write, None), (row("test:unconfirmed", "other"), None)]
    with handle(url, colour) as store:
        with server.without_its_standby():
            with pytest.raises(StoreUnavailable):
                store.put(write)
            told = store.together(puts)[0] if again == "batch" else _error_of(store, write)

            assert type(told) is StoreUnavailable
        standing = store.put(write)

    assert (standing.landed or standing.record.version == write.version) is True


@pytest.mark.fault("a-look-that-finds-this-very-write-is-believed")
@pytest.mark.parametrize("colour", COLOURS)
def test_a_look_that_finds_the_write_itself_is_believed_after_one_that_waits(
    url: str, server: PostgresServer, colour: str
) -> None:
    """
    Its id was seen settled, so it is looked for first; a look waits for no standby, either.
    """
    write = row("test:unconfirmed", "seen", state="settled", lease=None, replay=HOUR_US, codec="json/1", result=b"1")
    with handle(url, colour) as store:
        first = store.put(write)
        found = store.put(row("test:unconfirmed", "seen"))
        assert (first.landed, found.landed, found.record.version) == (True, False, write.version)
        with server.without_its_standby():
            told = _error_of(store, write)
        again = store.put(row("test:unconfirmed", "seen"))

    assert type(told) is StoreUnavailable
    assert (again.landed, again.record.result) == (False, b"1")


@pytest.mark.parametrize("colour", COLOURS)
def test_a_standby_that_answers_again_makes_it_good(url: str, server: PostgresServer, colour: str) -> None:
    """
    One wait was cancelled; the write that is sent behind it waits, is answered, and so the first is acknowledged.
    """
    with handle(url, colour) as store, server.without_its_standby() as enough:
        enough.set()
        running = store.start("put", row("test:unconfirmed"), None)
        _cancel_one(server)
        _wait_for_one(server)
        server._name_standby("")

        assert running.result(30).landed is True


@pytest.mark.parametrize("colour", COLOURS)
def test_what_a_trigger_says_is_no_cancelled_wait(url: str, colour: str) -> None:
    """
    A trigger may warn with the same code: it is where a warning comes from that counts.
    """
    query(
        url,
        "CREATE FUNCTION warns() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE WARNING 'look here'; RETURN NEW; END $$",
    )
    query(url, "CREATE TRIGGER warns BEFORE INSERT ON onceward_records FOR EACH ROW EXECUTE FUNCTION warns()")
    try:
        with handle(url, colour) as store:
            assert store.put(row("test:unconfirmed")).landed is True
    finally:
        query(url, "DROP FUNCTION warns CASCADE")


@pytest.mark.fault("a-cancelled-wait-is-success")
@pytest.mark.parametrize("colour", COLOURS)
def test_nothing_runs_on_a_claim_that_may_be_lost(url: str, server: PostgresServer, colour: str) -> None:
    """
    The claim is what keeps others from running it: until it is acknowledged, the function is not called.
    """
    ran: list[str] = []
    with server.without_its_standby(), pytest.raises(StoreUnavailable):
        _run(url, colour, ran)

    assert ran == []


@pytest.mark.fault("a-joined-commit-is-not-listened-to")
@pytest.mark.parametrize("colour", COLOURS)
def test_atomic_mode_does_not_take_it_for_a_commit(url: str, server: PostgresServer, colour: str) -> None:
    """
    Rows and record would be lost together, so nothing doubles; but the caller must not be told that they stand.
    """
    query(url, "CREATE TABLE IF NOT EXISTS charges_unconfirmed (amount text)")
    with server.without_its_standby(), pytest.raises(StoreUnavailable, match="a failover may lose it"):
        _run_joined(url, colour)


@pytest.mark.fault("a-table-finds-it-done-without-waiting")
def test_what_our_own_tables_found_done_is_waited_for(url: str, server: PostgresServer) -> None:
    """
    Outbox, inbox, ledger and journal: a commit that did not wait is an error, and so is a retry that only finds it.
    """
    query(url, "CREATE TABLE IF NOT EXISTS onceward_seen_unconfirmed (id text PRIMARY KEY)")
    query(url, "DELETE FROM onceward_seen_unconfirmed")
    driver = open_tables(url, Schema("access", "onceward.service.access", 1, ""), REAL, create=True)

    def note() -> SqlSteps[int]:
        insert = "INSERT INTO onceward_seen_unconfirmed VALUES ('e') ON CONFLICT (id) DO NOTHING RETURNING 1"
        return len((yield Sql(insert, {})))

    try:
        with server.without_its_standby():
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="a failover may lose it"):
                    driver.transact("access.erase", note)
        assert driver.transact("access.erase", note) == 0
    finally:
        driver.close()


def _run(url: str, colour: str, ran: list[str]) -> None:
    if colour == "blocking":
        with Gate(url, scope="test:unconfirmed") as gate:
            gate.run("k", lambda: ran.append("ran"))
        return

    async def work() -> None:
        async def fn() -> None:
            ran.append("ran")

        async with AsyncGate(url, scope="test:unconfirmed") as gate:
            await gate.run("k", fn)

    asyncio.run(work())


def _run_joined(url: str, colour: str) -> None:
    charge = "INSERT INTO charges_unconfirmed VALUES ('12.5000')"
    if colour == "blocking":
        with Gate(url, scope="test:unconfirmed") as gate, psycopg.connect(url) as connection:
            gate.atomic(connection, "k", lambda: connection.execute(charge) and None)
        return

    async def work() -> None:
        joined = await psycopg.AsyncConnection.connect(url)
        async with AsyncGate(url, scope="test:unconfirmed") as gate, joined as connection:

            async def fn() -> None:
                await connection.execute(charge)

            await gate.atomic(connection, "k", fn)

    asyncio.run(work())


def _error_of(store: Any, write: Any) -> Any:
    return store.start("put", write, None).exception(30)


def _wait_for_one(server: PostgresServer) -> int:
    """The process that waits for the standby."""
    tick = threading.Event()
    while True:
        found = server.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        if found:
            return int(str(found[0][0]))
        tick.wait(0.005)


def _cancel_one(server: PostgresServer) -> None:
    server.execute(f"SELECT pg_cancel_backend({_wait_for_one(server)})")
