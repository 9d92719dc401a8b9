"""The hot statements: bytes that PostgreSQL reads as we mean them, and a look that never stands for a claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from postgres_support import COLOURS, Handle, handle, query
from psycopg.waiting import Ready

from onceward.stores import _postgres_wire as wire
from onceward.stores._postgres_errors import ServerSilent
from onceward.testing.store_suite.rows import row, settled
from servers.postgres import PostgresServer, needed

needed()

ARRAYS = {
    "bytea": [(b"",), (b"one", b"two"), (b"\x00\xff" * 300, b"", None), (None, None)],
    "text": [("",), ("one", "two"), ("grün", "漢字", None, "a" * 500), (None,)],
    "bigint": [(0,), (1, -1, 2**63 - 1, -(2**63)), (None, 7)],
    "smallint": [(0, 1, -32768, 32767), (None, 2)],
    "boolean": [(True,), (False, True), (None, True, False)],
}


@pytest.fixture(params=COLOURS)
def store(request: pytest.FixtureRequest, url: str) -> Iterator[Handle]:
    with handle(url, str(request.param)) as one:
        one.call("load", bytes(32))
        yield one


@pytest.mark.parametrize("kind", ARRAYS)
def test_an_array_is_read_as_it_was_meant(kind: str, url: str) -> None:
    """
    Equal lengths, unequal ones, nulls among values, nothing but nulls: the server gives back what was sent.
    """
    statement = wire.numbered_statement(f"echo_{kind}", f"SELECT %(values)b::{kind}[]".encode(), ("values",))
    with psycopg.connect(url, autocommit=True) as connection:
        line = wire.StatementSender(connection)
        for values in ARRAYS[kind]:
            [(back,)] = connection.wait(line.talk(statement, [wire.array_of(wire._KINDS[kind], values)]))

            assert list(values) == back


def test_a_failed_statement_raises_the_drivers_error_and_leaves_the_line_usable(url: str) -> None:
    """
    What a statement fails with has its code, prepared or not; the next one is answered.
    """
    for threshold in (None, 1):
        with psycopg.connect(url, autocommit=True, prepare_threshold=threshold) as connection:
            line = wire.StatementSender(connection)
            divide = wire.numbered_statement("divide", b"SELECT 1 / %(by)s::bigint", ("by",))
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.wait(line.talk(divide, [wire.int8(0)]))

            assert connection.wait(line.talk(divide, [wire.int8(1)])) == [(1,)]


@pytest.mark.fault("the-silence-of-a-statement-is-not-counted", "bytes-do-not-end-a-silence")
def test_a_statement_counts_the_silence_of_the_server_and_bytes_end_it(url: str) -> None:
    """
    So many looks that find nothing are an error; whatever is heard in between, and it counts anew.
    """
    sleep = wire.numbered_statement("sleep", b"SELECT 1 FROM pg_sleep(600)", ())
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        talk = wire.StatementSender(connection).talk(sleep, [], 0.5)
        next(talk)
        told, looks = "", 0
        try:
            for ready in (0, 0, 0, 0, Ready.R, 0, 0, 0, 0, 0, 0, 0, 0, 0):
                looks += 1
                talk.send(ready)
        except ServerSilent as error:
            told = str(error)
        connection.pgconn.finish()

    assert (told, looks) == ("was silent for 0.5 s", 10)


@pytest.mark.parametrize("options", ["", "client_encoding=latin1"])
def test_words_are_the_same_in_a_database_of_another_encoding(options: str, server: PostgresServer) -> None:
    """
    The database is kept in LATIN1, and so is the caller's wish: a key is found under its name all the same.
    """
    if not server.execute("SELECT 1 FROM pg_database WHERE datname = 'latin'"):
        server.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with handle(server.url("latin", options=options), "blocking") as store:
        put = store.put(row("test:latin", f"grün{options}"))
        found = store.call("load", put.record.id)
        [(name,)] = server.execute(f"SELECT key FROM onceward_records WHERE key LIKE 'gr_n{options}'", "latin")

    assert [found.key, name] == [f"grün{options}"] * 2


def _settle(store: Handle, key: str) -> Any:
    held = store.put(row("test:wire", key)).record
    return store.put(settled(held), held.version).record


def test_what_was_seen_settled_and_is_gone_is_claimed(store: Handle, url: str) -> None:
    """
    The look finds nothing, so the claim follows: alone and among others. It is the constraint that decides.
    """
    gone = [_settle(store, f"k{number}") for number in range(3)]
    query(url, "DELETE FROM onceward_records")
    alone = store.put(row("test:wire", "k0"))
    others = store.together([(row("test:wire", f"k{number}"), None) for number in (1, 2)])

    assert [one.landed for one in (alone, *others)] == [True] * 3
    assert 3 == len(gone) == len(query(url, "SELECT 1 FROM onceward_records WHERE state = 'claimed'"))


def test_what_was_seen_settled_is_shown_as_it_stands_now(store: Handle, url: str) -> None:
    """
    Somebody else has changed the row since: the look shows that, as a claim would, alone and among others.
    """
    kept = [_settle(store, f"k{number}") for number in range(3)]
    query(url, "UPDATE onceward_records SET state = 'released', attempt = 7")
    alone = store.put(row("test:wire", "k0"))
    others = store.together([(row("test:wire", f"k{number}"), None) for number in (1, 2)])

    assert [(one.landed, one.record.state, one.record.attempt) for one in (alone, *others)] == [
        (False, "released", 7)
    ] * 3
    assert [one.id for one in kept] == [one.record.id for one in (alone, *others)]
