"""Settled inside a transaction, and the store forgot the claim: what was committed with it is gone with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coloured import COLOURS, Coloured
from counters import OPTIONS

from onceward import Operation
from onceward.errors import NotSettled, StoreForgot
from onceward.stores.sqlite import AsyncSqliteStore, SqliteStore
from onceward.testing.clock import StillEnvironment


class Bench:
    """A gate of either colour on a store that can forget, and a connection of the caller's."""

    def __init__(self, folder: Path, colour: str) -> None:
        self.clock = StillEnvironment()
        path = folder / "app.db"
        made: Any = AsyncSqliteStore if colour == "awaiting" else SqliteStore
        self.store = made.from_url(f"sqlite:///{path}", environment=self.clock)
        self.heard: list[str] = []
        listen = [lambda event: self.heard.append(event.type.value)]
        self.gate = Coloured(colour, self.store, scope="acme", environment=self.clock, lease=60, listeners=listen)
        self.connection = sqlite3.connect(path)
        with self.connection:
            self.connection.execute("CREATE TABLE charges (amount TEXT)")

    def charge(self, operation: Operation) -> None:
        """A row and the answer, in one transaction."""
        with self.connection:
            self.connection.execute("INSERT INTO charges VALUES ('12.50')")
            self.gate.settle(operation, self.connection, "charged")

    def forget(self, operation: Operation) -> None:
        """The store loses the record, as in a failover."""
        self.gate.do(self.store.erase([operation.id]))

    @property
    def rows(self) -> int:
        [(count,)] = self.connection.execute("SELECT count(*) FROM charges").fetchall()
        return int(count)


@pytest.fixture(params=COLOURS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, request.param)
    yield made
    made.gate.close()
    made.connection.close()


@pytest.mark.fault("forgotten-inside-is-overtaken")
def test_a_claim_that_is_gone_cannot_be_settled_and_its_rows_are_undone(bench: Bench) -> None:
    """
    Nothing has happened: the same key may be used again, and runs once.
    """

    def fn(operation: Operation) -> None:
        bench.forget(operation)
        bench.charge(operation)

    with pytest.raises(Exception) as told:
        bench.gate.run("k", fn, **OPTIONS)

    assert (NotSettled, 0) == (type(told.value), bench.rows)
    assert told.value.retry.value == "same-key"
    assert bench.gate.run("k", bench.charge, **OPTIONS) == "charged"
    assert bench.rows == 1


@pytest.mark.fault("forgotten-inside-is-overtaken")
def test_a_settled_record_that_is_gone_took_its_rows_along(bench: Bench) -> None:
    """
    Committed, and lost by the store with everything that was committed with it: nobody is told that it stands.
    """

    def fn(operation: Operation) -> None:
        bench.charge(operation)
        with bench.connection:  # A failover loses both.
            bench.connection.execute("DELETE FROM charges")
        bench.forget(operation)

    with pytest.raises(Exception) as told:
        bench.gate.run("k", fn, **OPTIONS)

    assert NotSettled is type(told.value)
    assert bench.heard == ["claimed", "store_forgot", "released"]
    assert bench.gate.run("k", bench.charge, **OPTIONS) == "charged"
    assert bench.rows == 1


def test_rows_that_may_stand_alone_are_in_doubt(bench: Bench) -> None:
    """
    The function never settled: whether its rows were committed after the store had forgotten, nobody knows.
    """

    def fn(operation: Operation) -> None:
        bench.forget(operation)
        with bench.connection:
            bench.connection.execute("INSERT INTO charges VALUES ('12.50')")

    with pytest.raises(Exception, match="may have happened"):
        bench.gate.run("k", fn, **OPTIONS)

    assert bench.gate.get("k").state == "in_doubt"


def test_whoever_began_since_is_told_apart_from_a_takeover(bench: Bench) -> None:
    """
    The store forgot, another caller came, and this one hears that: not that it was overtaken.
    """

    def fn(operation: Operation) -> None:
        bench.forget(operation)
        bench.gate.run("k", bench.charge, **OPTIONS)

    with pytest.raises(StoreForgot):
        bench.gate.run("k", fn, **OPTIONS)

    assert bench.rows == 1
