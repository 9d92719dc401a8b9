"""
Renewals and settles of one operation on PostgreSQL, where an open transaction holds the record's row.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from counters import OPTIONS
from desks import Place
from psycopg import IsolationLevel

from onceward import Gate, InFlight, Operation, StoreUnavailable
from onceward._core.operation_flow import renew
from onceward.errors import RetryTransaction
from servers.postgres import wanted

pytestmark = pytest.mark.skipif(not wanted(), reason="STORES leaves postgres out")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place("postgresql", tmp_path)


def _charge(connection: psycopg.Connection[Any], operation: Operation) -> None:
    connection.execute("INSERT INTO charges VALUES (1, '1')")
    operation.settle_inside(connection, "charged")


def test_a_renewal_that_waited_for_the_commit_stops(place: Place) -> None:
    """
    It was under way when the function settled: it waits at the row, finds the record settled, and nobody is overtaken.
    """
    with Gate(place.url, scope="live:acme", lease=60) as gate, psycopg.connect(place.url) as connection:

        def renewed_meanwhile(operation: Operation) -> bool:
            _charge(connection, operation)
            [watched] = gate._renewer._leases.watched.values()
            watched.renewed = 0.0  # As if it had been due before the function settled.
            thread = threading.Thread(target=gate._renewer.sweep)
            thread.start()
            while not place.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
                assert thread.is_alive()
            connection.commit()
            thread.join()
            seen.append((operation.lost, len(gate._renewer._leases.watched)))
            return True

        seen: list[tuple[bool, int]] = []

        assert gate.run("order:1", renewed_meanwhile, **OPTIONS) == "charged"
        assert seen == [(False, 0)]


@pytest.mark.parametrize(
    "level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE], ids=lambda one: one.name
)
def test_above_read_committed_a_renewal_in_between_asks_for_another_try(place: Place, level: IsolationLevel) -> None:
    """
    The snapshot is older than the renewal: RetryTransaction, nothing is written, and the second try settles.
    """
    with Gate(place.url, scope="live:acme") as gate, psycopg.connect(place.url) as connection:
        connection.isolation_level = level

        def twice(operation: Operation) -> None:
            connection.execute("SELECT count(*) FROM charges")
            [watched] = gate._renewer._leases.watched.values()
            gate._renew(watched.request, renew(watched.request, operation.record))
            with pytest.raises(RetryTransaction):
                _charge(connection, operation)
            connection.rollback()
            _charge(connection, operation)
            connection.commit()

        assert gate.run("order:1", twice, **OPTIONS) == "charged"
        assert (place.rows(), place.states()) == (1, {"order:1": "settled"})


def test_while_it_is_about_to_commit_nobody_takes_over(place: Place) -> None:
    """
    Its lease has run out and its transaction is open: a racer waits at the row and gives up; then it is committed.
    """
    with Gate(f"{place.url}?onceward_lock_timeout=0.2", scope="live:acme", wait=0) as gate:
        heard: list[BaseException] = []

        def slow(operation: Operation) -> None:
            with psycopg.connect(place.url) as connection:
                _charge(connection, operation)
                place_lapsed(gate, heard, place)

        outcome = gate.call("order:1", slow, lease=0.05, **OPTIONS)

        assert isinstance(heard[0], StoreUnavailable | InFlight)
        assert (outcome.value, outcome.attempt, place.rows()) == ("charged", 1, 1)


def place_lapsed(gate: Gate, heard: list[BaseException], place: Place) -> None:
    """Wait until the lease is over, then let somebody else try."""
    while not place.ask(
        "SELECT 1 FROM onceward_records WHERE lease_until < extract(epoch FROM clock_timestamp()) * 1000000"
    ):
        pass
    try:
        gate.run("order:1", lambda operation: None, **OPTIONS)
    except Exception as error:
        heard.append(error)


def test_a_transaction_left_open_is_told_and_decided_by_its_commit(place: Place) -> None:
    """
    The release waits at the row and gives up: the claim is left, and the late commit is what counts.
    """
    with (
        Gate(f"{place.url}?onceward_lock_timeout=0.2", scope="live:acme", wait=0) as gate,
        psycopg.connect(place.url) as connection,
    ):
        with pytest.raises(Exception, match="still seems to be open"):
            gate.run("order:1", lambda operation: _charge(connection, operation), **OPTIONS)

        assert place.states() == {"order:1": "claimed"}
        connection.commit()
        assert gate.run("order:1", lambda operation: _charge(connection, operation), **OPTIONS) == "charged"
        assert place.rows() == 1
