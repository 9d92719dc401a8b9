"""Atomic mode on the caller's own psycopg connection: record and rows commit together, or neither."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from onceward import ConfigurationError, Gate, IllegalMove, RetryTransaction
from servers.postgres import PostgresServer, needed

needed()


class Spoiled(Exception):
    """The caller's own work went wrong."""


@pytest.fixture
def gate(url: str, admin: psycopg.Connection[Any]) -> Iterator[Gate]:
    admin.execute("CREATE TABLE IF NOT EXISTS effects (name text)")
    admin.execute("DELETE FROM effects")
    with Gate(f"{url}?onceward_lock_timeout=0.5", scope="test:atomic") as one:
        yield one


@pytest.fixture
def connection(gate: Gate, url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url) as one:
        yield one
        one.rollback()


def _book(connection: psycopg.Connection[Any], name: str = "one") -> str:
    connection.execute("INSERT INTO effects VALUES (%s)", (name,))
    return name


def _effects(admin: psycopg.Connection[Any]) -> int:
    [(count,)] = admin.execute("SELECT count(*) FROM effects").fetchall()
    return int(count)


def test_committed_both_stand_and_a_retry_replays(
    gate: Gate, connection: psycopg.Connection[Any], admin: psycopg.Connection[Any]
) -> None:
    """
    One effect, one record, the same answer; the lock timeout and the caller's rows are as they were.
    """
    connection.execute("SET lock_timeout = '7s'")
    connection.commit()
    answers = [gate.atomic(connection, "k", lambda: _book(connection)) for _ in range(3)]
    [timeout] = connection.execute("SHOW lock_timeout").fetchall()

    assert ["one"] * 3 == answers
    assert (1, "settled", ("7s",)) == (_effects(admin), gate.records.get("k").state, timeout)


def test_rolled_back_neither_stands(
    gate: Gate, connection: psycopg.Connection[Any], admin: psycopg.Connection[Any]
) -> None:
    """
    The function fails after its insert: no row, no record, and the next attempt runs.
    """

    def fail() -> None:
        _book(connection)
        raise Spoiled

    with pytest.raises(Spoiled):
        gate.atomic(connection, "k", fail)
    undone = (_effects(admin), gate.records.get("k"))

    assert (0, None) == undone
    assert "one" == gate.atomic(connection, "k", lambda: _book(connection))
    assert 1 == _effects(admin)


def test_inside_the_callers_transaction_the_caller_decides(
    gate: Gate, connection: psycopg.Connection[Any], admin: psycopg.Connection[Any]
) -> None:
    """
    A savepoint is used: what fails is undone alone, and what is kept goes with the caller's commit or rollback.
    """
    _book(connection, "before")
    gate.atomic(connection, "k", lambda: _book(connection))
    connection.rollback()
    rolled_back = (_effects(admin), gate.records.get("k"))
    with connection.transaction():
        gate.atomic(connection, "k", lambda: _book(connection))
        lock_timeout = connection.execute("SHOW lock_timeout").fetchall()

    assert (0, None) == rolled_back
    assert (1, [("0",)]) == (_effects(admin), lock_timeout)


def test_a_racer_waits_for_the_winner_and_replays_it(
    gate: Gate, connection: psycopg.Connection[Any], url: str, admin: psycopg.Connection[Any]
) -> None:
    """
    Eight connections, one key: one effect, and everybody has its answer.
    """
    answers: list[str] = []

    def race(number: int) -> None:
        with psycopg.connect(url) as own:
            answers.append(gate.atomic(own, "k", lambda: _book(own, f"by {number}")))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (8, 1, 1) == (len(answers), len(set(answers)), _effects(admin))


def test_a_held_key_is_waited_for_only_so_long(gate: Gate, connection: psycopg.Connection[Any], url: str) -> None:
    """
    After the lock timeout the transaction has to run again; the caller's transaction is usable.
    """
    with psycopg.connect(url) as other, other.transaction():
        gate.atomic(other, "k", lambda: "theirs")
        with pytest.raises(RetryTransaction):
            gate.atomic(connection, "k", lambda: "ours")

    assert "theirs" == gate.atomic(connection, "k", lambda: "ours")


def test_above_read_committed_the_transaction_has_to_run_again(
    gate: Gate, connection: psycopg.Connection[Any], url: str
) -> None:
    """
    Its snapshot is older than the winner's commit: it can neither win nor see who did.
    """
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute("SELECT 1")
    with psycopg.connect(url) as other:
        gate.atomic(other, "k", lambda: "theirs")
    with pytest.raises(RetryTransaction):
        gate.atomic(connection, "k", lambda: "ours")
    connection.rollback()

    assert "theirs" == gate.atomic(connection, "k", lambda: "ours")


def test_a_function_that_ends_the_transaction_is_told(gate: Gate, connection: psycopg.Connection[Any]) -> None:
    """
    Committed by itself, its rows and the record could no longer commit together.
    """
    with pytest.raises(IllegalMove):
        gate.atomic(connection, "k", lambda: (_book(connection), connection.commit()))


def test_a_connection_that_would_commit_alone_is_refused(gate: Gate, admin: psycopg.Connection[Any]) -> None:
    """
    Autocommit with no transaction open.
    """
    with pytest.raises(ConfigurationError, match="autocommit"):
        gate.atomic(admin, "k", lambda: "never")


def test_another_database_is_refused(gate: Gate, server: PostgresServer) -> None:
    """
    The record would be in one and the rows in the other.
    """
    with psycopg.connect(server.url()) as other, pytest.raises(ConfigurationError, match="one database"):
        gate.atomic(other, "k", lambda: "never")
