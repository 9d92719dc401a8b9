"""
Adding a message with sqlite3 and psycopg: in the caller's transaction, refused where that would not hold.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from outbox_support import World, admin

from colours import COLOURS
from onceward import ConfigurationError, KeyReused
from onceward.errors import IllegalMove, RequestInvalid
from onceward.messaging.outbox.message_writer import PAYLOAD_BYTES_MAX
from servers import postgres
from servers.postgres import kinds

on_postgres = pytest.mark.skipif(not postgres.wanted(), reason="STORES leaves postgres out")


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    """Whether the caller's gate and connection block or await."""
    return str(request.param)


@pytest.fixture(params=kinds())
def world(request: pytest.FixtureRequest, tmp_path: Path, colour: str) -> Iterator[World]:
    """An empty outbox on SQLite and on PostgreSQL, in both colours."""
    made = World(str(request.param), tmp_path, colour)
    yield made
    made.close()


@pytest.fixture
def on_server(tmp_path: Path, colour: str) -> Iterator[World]:
    """The same, on PostgreSQL only."""
    made = World("postgres", tmp_path, colour)
    yield made
    made.close()


@pytest.fixture
def on_file(tmp_path: Path, colour: str) -> Iterator[World]:
    """The same, on SQLite only."""
    made = World("sqlite", tmp_path, colour)
    yield made
    made.close()


@pytest.mark.requirement("E37")
def test_a_rolled_back_transaction_leaves_no_message_and_a_committed_one_does(world: World) -> None:
    """
    Also where the message is the first thing in the transaction, and inside of a savepoint.
    """
    connection = world.connect()
    outbox = world.outbox(connection)

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

    assert (undone, unseen, world.states()) == ({}, {}, {"waiting": 1})


def test_a_connection_in_autocommit_is_refused_outside_of_a_transaction(world: World) -> None:
    """
    Inside of one that the caller began by hand, it is welcome.
    """
    by_itself: Any = {"isolation_level": None} if world.kind == "sqlite" else {"autocommit": True}
    connection = world.connect(**by_itself)
    outbox = world.outbox(connection)
    with pytest.raises(ConfigurationError, match="in autocommit"):
        outbox.add("billing", 1, topic="t")
    refused = world.states()
    connection.execute("BEGIN")
    outbox.add("billing", 1, topic="t")
    connection.execute("COMMIT")
    connection.close()

    assert (refused, world.states()) == ({}, {"waiting": 1})


def test_odd_settings_of_a_connection_do_not_matter(world: World) -> None:
    """
    Row factories, text factories and cursor classes are the caller's own business.
    """
    connection = world.connect()
    world.outbox(connection).add("billing", 1, topic="t")
    connection.commit()
    if world.kind == "sqlite":
        connection.row_factory = lambda *_: pytest.fail("not for our rows")
        connection.text_factory = bytes
    else:
        bare = getattr(connection, "inner", connection)
        bare.row_factory = psycopg.rows.dict_row
        bare.cursor_factory = psycopg.AsyncClientCursor if world.awaits else psycopg.ClientCursor
        connection.execute("SET search_path = pg_catalog")
    outbox = world.outbox(connection)
    ids = [outbox.add("billing", {"ü": "%s"}, topic="t", aggregate="a", id="mine") for _ in range(2)]
    connection.commit()
    connection.close()

    assert (ids, world.states()) == (["mine"] * 2, {"waiting": 2})


@pytest.mark.requirement("E37")
def test_an_id_of_ones_own_makes_repeats_one_message(world: World) -> None:
    """
    The same content again is the same message; other content is refused, and the transaction continues.
    """
    connection = world.connect()
    outbox = world.outbox(connection)
    ids = [outbox.add("billing", 1, topic="t", id="mine") for _ in range(2)]
    with pytest.raises(KeyReused):
        outbox.add("billing", 2, topic="t", id="mine")
    connection.commit()
    connection.close()

    assert (ids, world.states()) == (["mine"] * 2, {"waiting": 1})


@on_postgres
def test_a_connection_of_the_other_colour_is_refused(on_server: World) -> None:
    """
    It would block the event loop, or could not be awaited; the message says which gate it wants.
    """
    other = World("postgres", on_server.path.parent, "blocking" if on_server.awaits else "awaiting")
    connection = other.connect()
    with pytest.raises(ConfigurationError, match="use Gate" if on_server.awaits else "use AsyncGate"):
        on_server.outbox(connection).add("billing", 1, topic="t")
    connection.close()
    other.close()

    assert on_server.states() == {}


@on_postgres
def test_transactions_that_add_to_one_aggregate_take_turns(on_server: World, colour: str) -> None:
    """
    Numbers are given when a message is added and seen when it commits. So the later of two waits for the earlier:
    otherwise a relay could deliver the second before there is a first.
    """
    world, elsewhere = on_server, World("postgres", on_server.path.parent, colour)
    earlier, later, other = world.connect(), elsewhere.connect(), world.connect()
    world.outbox(earlier).add("billing", 1, topic="t", aggregate="a")
    world.outbox(other).add("billing", 0, topic="t", aggregate="b")  # Waits for nobody.
    added = threading.Event()

    def add() -> None:
        elsewhere.outbox(later).add("billing", 2, topic="t", aggregate="a", id="later")
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
    assert world.rows("SELECT payload FROM onceward_outbox_messages WHERE aggregate = 'a' ORDER BY seq") == [
        (b"1",),
        (b"2",),
    ]
    for connection in (earlier, later, other):
        connection.close()
    elsewhere.close()


def test_on_sqlite_tables_are_never_made_inside_a_writing_transaction(on_file: World, tmp_path: Path) -> None:
    """
    They are made on a connection of their own, by the blocking gate when it is asked for an outbox, by the awaiting one
    with its first message; if the caller's transaction is in the way, it is told what to do, and its rows are as they
    were.
    """
    gate = on_file.opened(f"sqlite:///{tmp_path}/new.db")
    connection = sqlite3.connect(tmp_path / "new.db")
    connection.execute("CREATE TABLE charges (amount TEXT)")
    connection.execute("INSERT INTO charges VALUES ('1')")
    with pytest.raises(ConfigurationError, match="onceward relay init"):
        on_file.outbox(connection, gate).add("billing", 1, topic="t")
    connection.commit()
    outbox = on_file.outbox(connection, gate)
    if on_file.awaits:
        outbox.add("billing", 1, topic="t")
        connection.rollback()
    connection.execute("INSERT INTO charges VALUES ('2')")
    outbox.add("billing", 1, topic="t")
    on_file.outbox(connection, gate).add("billing", 2, topic="t")
    connection.commit()

    assert connection.execute("SELECT count(*) FROM charges").fetchall() == [(2,)]
    assert connection.execute("SELECT count(*) FROM onceward_outbox_messages").fetchall() == [(2,)]
    connection.close()
    gate.close()


def test_a_store_that_shares_no_transaction_is_refused(on_file: World) -> None:
    """
    Nothing can commit together with a row and with a record in memory.
    """
    gate = on_file.opened("memory://")
    connection = sqlite3.connect(":memory:")
    with pytest.raises(ConfigurationError, match="neither a SQLite file"):
        on_file.outbox(connection, gate).add("billing", 1, topic="t")
    connection.close()
    gate.close()


@on_postgres
def test_a_transaction_that_has_failed_is_not_written_to(on_server: World) -> None:
    """
    PostgreSQL keeps nothing of it: the caller swallowed an error, and is told so.
    """
    connection = on_server.connect()
    with pytest.raises(psycopg.Error):
        connection.execute("SELECT 1 / 0")
    with pytest.raises(IllegalMove, match="had failed"):
        on_server.outbox(connection).add("billing", 1, topic="t")
    connection.close()


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
        {"payload": {"a": 1j}},
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
def test_what_could_never_be_delivered_is_refused_at_once(on_file: World, wrong: dict[str, Any]) -> None:
    """
    Before anything is written, and in words; the transaction goes on without it.
    """
    connection = on_file.connect()
    given = {"to": "billing", "payload": 1, "topic": "t", **wrong}
    with pytest.raises((ConfigurationError, RequestInvalid)):
        on_file.outbox(connection).add(given.pop("to"), given.pop("payload"), **given)
    on_file.outbox(connection).add("billing", b"x" * PAYLOAD_BYTES_MAX, topic="t")
    connection.commit()
    connection.close()

    assert on_file.states() == {"waiting": 1}
