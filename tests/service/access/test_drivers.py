"""What the drivers owe: nothing half-done, connections that die are replaced, cancelling undoes nothing."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from typing import Any

import pytest
from access_support import World, admin

from onceward import StoreUnavailable
from onceward.errors import BalanceExhausted, TokenInvalid
from onceward.service.access import AsyncAccess
from onceward.stores.tables import Sql
from onceward.stores.tables.postgres_driver import translate_sql
from servers.postgres import kinds

pytestmark = pytest.mark.dose(1, of=("kind", "colour"))

UNIT = 1_000_000
KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = 'access'"


def test_a_failure_leaves_nothing_half_done(blocking: Any, world: World) -> None:
    """
    A statement that the database refuses undoes those before it, and the driver goes on.
    """
    blocking.create_tenant("acme", prepaid=True)

    def fails() -> Any:
        yield Sql("UPDATE onceward_tenants SET balance = 7", {})
        yield Sql("INSERT INTO onceward_tenants (name, created_at) VALUES ('acme', :now)", {})

    with pytest.raises(StoreUnavailable):
        blocking._database.driver.transact("access.tenant", fails)
    assert blocking.tenant("acme").balance == 0


def test_a_refusal_keeps_its_connection(blocking: Any, world: World) -> None:
    """
    An empty balance costs no new connection a call, and leaves no transaction open.
    """
    blocking.create_tenant("acme", prepaid=True)
    driver = blocking._database.driver
    idle = getattr(driver, "_pool", driver)._idle
    before = list(idle)

    for _ in range(3):
        with pytest.raises(BalanceExhausted):
            blocking.charge("acme", 1)

    assert before == idle
    assert blocking.create_tenant("other")


def test_a_token_without_a_tenant_cannot_be_written(blocking: Any) -> None:
    """
    The database itself refuses it, in both.
    """

    def orphan() -> Any:
        yield Sql(
            """INSERT INTO onceward_tokens (id, family, tenant, environment, role, pepper, digest, created_at)
            VALUES ('x', 'x', 'nobody', 'live', 'read', 'none', :digest, :now)""",
            {"digest": b"x"},
        )

    with pytest.raises(StoreUnavailable):
        blocking._database.driver.transact("access.token", orphan)


def test_a_closed_place_says_so(world: World) -> None:
    """
    Closing twice is fine; asking afterwards is an error of ours.
    """
    access = world.open()
    access.close()
    access.close()

    with pytest.raises(StoreUnavailable, match="closed"):
        access.tenants()


@pytest.mark.parametrize("kind", kinds()[1:])
def test_connections_that_died_are_replaced(blocking: Any) -> None:
    """
    A server that was restarted: the next look and the next charge go through, on new connections.
    """
    blocking.create_tenant("acme", prepaid=True)
    blocking.top_up("acme", UNIT, reference="first")
    admin().execute(KILL)

    assert blocking.tenant("acme").balance == UNIT
    admin().execute(KILL)
    blocking.commit(blocking.charge("acme", 1))

    assert blocking.tenant("acme").balance == UNIT - 1


@pytest.mark.fault("tables-send-a-lost-commit-again")
@pytest.mark.parametrize("kind", kinds()[1:])
def test_a_commit_whose_answer_is_lost_is_not_sent_again(blocking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Nobody knows whether it landed; the caller hears so, and what was reserved, if it was, lapses.
    """
    from onceward.runtime import failpoints

    blocking.create_tenant("acme", prepaid=True)
    blocking.top_up("acme", UNIT, reference="first")
    begun: list[int] = []

    def cut() -> None:
        begun.append(1)
        admin().execute(KILL)

    failpoints.arm("access.charge.written", cut)
    try:
        with pytest.raises(StoreUnavailable):
            blocking.charge("acme", 1, operation="op")
    finally:
        failpoints.disarm()

    assert begun == [1]
    blocking.commit(blocking.charge("acme", 1, operation="op"))
    assert (blocking.tenant("acme").balance, blocking.tenant("acme").reserved) == (UNIT - 1, 0)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_another_process_that_writes_is_waited_for(world: World, tmp_path: Any) -> None:
    """
    As long as `busy` says; then it is told, and nothing was written.
    """
    import sqlite3

    world.url += "?busy=0.05"
    access = world.open()
    other = sqlite3.connect(tmp_path / "agent.access.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailable, match="locked"):
        access.create_tenant("acme")
    other.execute("ROLLBACK")
    assert access.create_tenant("acme")
    other.close()
    access.close()


def test_many_threads_share_a_place(blocking: Any) -> None:
    """
    Every one of them gets its answer.
    """
    blocking.create_tenant("acme")
    made: list[str] = []

    def make() -> None:
        for _ in range(3):
            text = blocking.create_token("acme").issued.text
            made.append(blocking.authenticate(text).token)

    crowd = [threading.Thread(target=make) for _ in range(8)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()

    assert 24 == len(set(made)) == len(blocking.tokens())


def test_a_cancelled_charge_is_not_half_done(world: World) -> None:
    """
    Whoever is cancelled hears of it when the database has answered; what was reserved is there, and lapses.
    """

    async def play() -> tuple[int, int]:
        async with await AsyncAccess.open(world.url, create=True, environment=world.environment) as access:
            await access.create_tenant("acme", prepaid=True)
            await access.top_up("acme", UNIT, reference="first")
            task = asyncio.create_task(access.charge("acme", 1, lapse=10))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            found = await access.tenant("acme")
            return found.balance, found.reserved

    assert asyncio.run(play()) == (UNIT - 1, 1)


def test_a_remembered_token_needs_no_thread(world: World) -> None:
    """
    On the event loop itself: a service in a burst does not queue for the database.
    """

    async def play() -> list[int]:
        async with await AsyncAccess.open(world.url, create=True, environment=world.environment) as access:
            await access.create_tenant("acme")
            text = (await access.create_token("acme")).issued.text
            await access.authenticate(text)
            threads: list[int] = []
            access._threaded = lambda effect: threads.append(1)  # type: ignore[method-assign,assignment,return-value,func-returns-value]
            for _ in range(100):
                await access.authenticate(text)
            with pytest.raises(TokenInvalid):
                await access.authenticate("ow_live_typo")
            del access._threaded
            return threads

    assert asyncio.run(play()) == []


def test_words_are_translated_as_they_are_meant() -> None:
    """
    Values, the server's time, and the lock; nothing else.
    """
    assert translate_sql("SELECT :now, :nower WHERE a = :a {lock}") == (
        b"SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint, %(nower)s WHERE a = %(a)s FOR UPDATE"
    )


def test_rows_of_schema_1_are_understood(world: World) -> None:
    """
    A reservation that an older version opened, or one of its processes that still runs: it lapses, and the money is
    back; nobody can say whether it ran. What it committed stays committed.
    """
    with closing(world.open()) as access:
        access.create_tenant("acme", prepaid=True)
        access.top_up("acme", 10 * UNIT, reference="first")
        access.commit(access.charge("acme", UNIT))
        access.charge("acme", UNIT, lapse=10)
    # As version 1 wrote them: a reference, and neither an operation nor when it was opened.
    world.rows("UPDATE onceward_reservations SET reference = id || '-of-old', operation = NULL, opened_at = NULL")
    world.pass_time(10)

    with closing(world.open()) as access:
        assert access.sweep() == (UNIT, 0, 0)
        assert (access.tenant("acme").balance, access.tenant("acme").reserved) == (9 * UNIT, 0)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_tables_of_schema_1_are_moved_forward(world: World) -> None:
    """
    At the next open, with what is in them.
    """
    import sqlite3
    from importlib.resources import files

    script = files("onceward.service.access").joinpath("sql/sqlite_0001_access.sql").read_text(encoding="utf-8")
    with closing(sqlite3.connect(world.folder / "agent.access.db")) as old:
        old.executescript(script)
        old.execute("INSERT INTO onceward_tenants (name, created_at, balance) VALUES ('acme', 1, 5000000)")
        old.execute("INSERT INTO onceward_reservations VALUES ('r1', 'acme', 'digest', 1000000, 'open', 1, NULL)")
        old.commit()

    with closing(world.open()) as access:
        access.commit(access.charge("acme", UNIT))
        assert access.sweep() == (UNIT, 0, 0)
        assert (access.tenant("acme").balance, access.tenant("acme").quota_databases) == (5 * UNIT, None)
