"""
Adding a message with sqlite3 and psycopg: in the caller's transaction, refused where that would not hold.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from outbox_support import World, admin

from onceward import AsyncGate, ConfigurationError, Gate, IllegalMove, KeyReused, RequestInvalid
from onceward.outbox.writing import PAYLOAD_BYTES_MAX
from servers import postgres

on_postgres = pytest.mark.skipif(not postgres.wanted(), reason="STORES leaves postgres out")


@pytest.mark.requirement("E37")
def test_a_rolled_back_transaction_leaves_no_message_and_a_committed_one_does(world: World) -> None:
    """
    Also where the message is the first thing in the transaction, and inside of a savepoint.
    """
    connection = world.connect()
    outbox = world.gate.outbox(connection)

    outbox.add("billing", 1, topic="t")
    connection.rollback()
    undone = world.states()
    outbox.add("billing", 2, topic="t")
    connection.execute("SAVEPOINT mine")
    outbox.add("billing", 3, topic="t")
    connection.execute("ROLLBACK TO mine")
    unseen = world.states()
    connection.commit()
    connection.close()

    assert ({}, {}, {"waiting": 1}) == (undone, unseen, world.states())


def test_a_connection_in_autocommit_is_refused_outside_of_a_transaction(world: World) -> None:
    """
    Inside of one that the caller began by hand, it is welcome.
    """
    connection: Any
    if world.kind == "sqlite":
        connection = sqlite3.connect(world.path, isolation_level=None)
    else:
        connection = psycopg.connect(world.url, autocommit=True)
    outbox = world.gate.outbox(connection)
    with pytest.raises(ConfigurationError, match="in autocommit"):
        outbox.add("billing", 1, topic="t")
    refused = world.states()
    connection.execute("BEGIN")
    outbox.add("billing", 1, topic="t")
    connection.execute("COMMIT")
    connection.close()

    assert ({}, {"waiting": 1}) == (refused, world.states())


def test_odd_settings_of_a_connection_do_not_matter(world: World) -> None:
    """
    Row factories, text factories and cursor classes are the caller's own business.
    """
    connection = world.connect()
    world.gate.outbox(connection).add("billing", 1, topic="t")
    connection.commit()
    if world.kind == "sqlite":
        connection.row_factory = lambda *_: pytest.fail("not for our rows")
        connection.text_factory = bytes
    else:
        connection.row_factory = psycopg.rows.dict_row
        connection.cursor_factory = psycopg.ClientCursor
        connection.execute("SET search_path = pg_catalog")
    outbox = world.gate.outbox(connection)
    ids = [outbox.add("billing", {"ü": "%s"}, topic="t", aggregate="a", id="mine") for _ in range(2)]
    connection.commit()
    connection.close()

    assert (["mine"] * 2, {"waiting": 2}) == (ids, world.states())


@on_postgres
@pytest.mark.requirement("E37")
def test_an_async_connection_adds_in_its_transaction(tmp_path: Path) -> None:
    """
    psycopg's other colour, under an AsyncGate; a blocking connection is refused there.
    """
    world = World("postgres", tmp_path)

    async def scenario() -> list[dict[str, int]]:
        seen = []
        async with AsyncGate(world.url, scope="live:acme") as gate:
            async with await psycopg.AsyncConnection.connect(world.url) as connection:
                await gate.outbox(connection).add("billing", 1, topic="t", aggregate="a")
                await connection.rollback()
                seen.append(world.states())
                first = await gate.outbox(connection).add("billing", 1, topic="t", id="mine")
                assert first == await gate.outbox(connection).add("billing", 1, topic="t", id="mine")
                with pytest.raises(KeyReused):
                    await gate.outbox(connection).add("billing", 2, topic="t", id="mine")
                await connection.commit()
                seen.append(world.states())
                await connection.set_autocommit(True)
                with pytest.raises(ConfigurationError, match="in autocommit"):
                    await gate.outbox(connection).add("billing", 1, topic="t")
            with psycopg.connect(world.url) as blocking, pytest.raises(ConfigurationError, match="use Gate"):
                await gate.outbox(blocking).add("billing", 1, topic="t")
        return seen

    assert [{}, {"waiting": 1}] == asyncio.run(scenario())
    world.close()


def test_an_async_gate_adds_on_a_sqlite_connection(tmp_path: Path) -> None:
    """
    SQLite has one colour: its statements are short.
    """

    async def scenario() -> str:
        async with AsyncGate(f"sqlite:///{tmp_path}/app.db", scope="live:acme") as gate:
            connection = sqlite3.connect(tmp_path / "app.db")
            try:
                id = await gate.outbox(connection).add("billing", 1, topic="t")
                connection.commit()
                [(kept,)] = connection.execute("SELECT id FROM onceward_outbox_messages")
                assert id == kept
                return id
            finally:
                connection.close()

    assert asyncio.run(scenario()).startswith("msg_")


@on_postgres
def test_transactions_that_add_to_one_aggregate_take_turns(tmp_path: Path) -> None:
    """
    Numbers are given when a message is added and seen when it commits. So the later of two waits for the earlier:
    otherwise a relay could deliver the second before there is a first.
    """
    world = World("postgres", tmp_path)
    earlier, later, other = world.connect(), world.connect(), world.connect()
    world.gate.outbox(earlier).add("billing", 1, topic="t", aggregate="a")
    world.gate.outbox(other).add("billing", 0, topic="t", aggregate="b")  # Waits for nobody.
    added = threading.Event()

    def add() -> None:
        world.gate.outbox(later).add("billing", 2, topic="t", aggregate="a")
        added.set()

    waiting = threading.Thread(target=add)
    waiting.start()
    # Seen from outside: it waits for a lock that is ours alone.
    while not admin().execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone():
        assert not added.is_set()
    earlier.commit()
    waiting.join(60)
    later.commit()
    other.commit()

    assert added.is_set()
    assert [(b"1",), (b"2",)] == world.rows(
        "SELECT payload FROM onceward_outbox_messages WHERE aggregate = 'a' ORDER BY seq"
    )
    for connection in (earlier, later, other):
        connection.close()
    world.close()


def test_on_sqlite_tables_are_never_made_inside_a_writing_transaction(tmp_path: Path) -> None:
    """
    They are made when gate.outbox is first asked, on a connection of its own; if the caller's transaction is in the
    way, it is told what to do, and its rows are as they were.
    """
    with Gate(f"sqlite:///{tmp_path}/app.db", scope="live:acme") as gate:
        connection = sqlite3.connect(tmp_path / "app.db")
        connection.execute("CREATE TABLE charges (amount TEXT)")
        connection.execute("INSERT INTO charges VALUES ('1')")
        with pytest.raises(ConfigurationError, match="onceward relay init"):
            gate.outbox(connection)
        connection.commit()
        outbox = gate.outbox(connection)
        connection.execute("INSERT INTO charges VALUES ('2')")
        outbox.add("billing", 1, topic="t")
        gate.outbox(connection).add("billing", 2, topic="t")
        connection.commit()

        assert [(2,)] == connection.execute("SELECT count(*) FROM charges").fetchall()
        assert [(2,)] == connection.execute("SELECT count(*) FROM onceward_outbox_messages").fetchall()
        connection.close()


def test_a_store_that_shares_no_transaction_is_refused() -> None:
    """
    Nothing can commit together with a row and with a record in memory.
    """
    with Gate("memory://", scope="live:acme") as gate, pytest.raises(ConfigurationError, match="neither a SQLite file"):
        gate.outbox(sqlite3.connect(":memory:"))


@on_postgres
def test_a_transaction_that_has_failed_is_not_written_to(tmp_path: Path) -> None:
    """
    PostgreSQL keeps nothing of it: the caller swallowed an error, and is told so.
    """
    world = World("postgres", tmp_path)
    connection = world.connect()
    with pytest.raises(psycopg.Error):
        connection.execute("SELECT 1 / 0")
    with pytest.raises(IllegalMove, match="had failed"):
        world.gate.outbox(connection).add("billing", 1, topic="t")
    connection.close()
    world.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"to": ""},
        {"to": "two words"},
        {"to": "x" * 101},
        {"topic": "line\nbreak"},
        {"topic": None},
        {"aggregate": ""},
        {"aggregate": 7},
        {"id": "ü"},
        {"id": ""},
        {"id": "a.b"},
        {"payload": {"a": math.nan}},
        {"payload": {"a": object()}},
        {"payload": b"x" * (PAYLOAD_BYTES_MAX + 1)},
        {"content_type": "text/plain\r\nX-Evil: 1"},
        {"headers": {"X-Evil": "a\r\nb: c"}},
        {"headers": {"a b": "c"}},
        {"headers": {"webhook-id": "forged"}},
        {"headers": {"Content-Length": "0"}},
        {"headers": [("a", "b")]},
        {"headers": {f"X-{n}": "y" for n in range(30)}},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_what_could_never_be_delivered_is_refused_at_once(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """
    Before anything is written, and in words; the transaction goes on without it.
    """
    with Gate(f"sqlite:///{tmp_path}/app.db", scope="live:acme") as gate:
        connection = sqlite3.connect(tmp_path / "app.db")
        given = {"to": "billing", "payload": 1, "topic": "t", **wrong}
        with pytest.raises((ConfigurationError, RequestInvalid)):
            gate.outbox(connection).add(given.pop("to"), given.pop("payload"), **given)
        gate.outbox(connection).add("billing", b"x" * PAYLOAD_BYTES_MAX, topic="t")
        connection.commit()

        assert [(1,)] == connection.execute("SELECT count(*) FROM onceward_outbox_messages").fetchall()
        connection.close()
