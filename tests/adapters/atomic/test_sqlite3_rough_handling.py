"""
Atomic mode in rough hands, on the caller's own sqlite3 connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from coloured import COLOURS, Coloured

from onceward import ConfigurationError, InDoubt
from onceward.errors import IllegalMove

pytestmark = pytest.mark.parametrize("claim", ["first", "last"])


@pytest.fixture(params=COLOURS)
def gate(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Coloured]:
    gate = Coloured(request.param, f"sqlite:///{tmp_path}/app.db", scope="live:acme", wait=0)
    yield gate
    gate.close()


@pytest.fixture
def connection(gate: Coloured, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "app.db", timeout=0.1)
    connection.executescript(
        "PRAGMA foreign_keys = ON;"
        "CREATE TABLE customers (id INTEGER PRIMARY KEY);"
        "CREATE TABLE charges (customer INTEGER REFERENCES customers DEFERRABLE INITIALLY DEFERRED)"
    )
    yield connection
    connection.close()


def committed(gate: Coloured) -> tuple[int, str | None]:
    """How many charges are committed, and the state of the record."""
    onlooker = sqlite3.connect(gate.store.path)
    [(count,)] = onlooker.execute("SELECT count(*) FROM charges")
    onlooker.close()
    record = gate.get("charge:1")
    return count, None if record is None else str(record.state)


def test_a_constraint_that_is_checked_at_the_commit_is_heard_as_it_is(
    gate: Coloured, connection: sqlite3.Connection, claim: str
) -> None:
    """
    SQLite refuses the commit and leaves the transaction open: it is undone, nothing is in doubt, the error is theirs.
    """
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        gate.atomic(
            connection, "charge:1", lambda: connection.execute("INSERT INTO charges VALUES (7)").rowcount, claim=claim
        )

    assert (committed(gate), connection.in_transaction) == ((0, None), False)


def test_a_statement_that_is_still_open_is_named(gate: Coloured, connection: sqlite3.Connection, claim: str) -> None:
    """
    A RETURNING that was not read to its end keeps SQLite from committing. Nobody else is in the way, so no "try again".
    """
    cursor = connection.cursor()

    def insert() -> int:
        rows = cursor.execute("INSERT INTO charges VALUES (NULL), (NULL) RETURNING rowid")
        return int(rows.fetchone()[0])

    with pytest.raises(IllegalMove, match="RETURNING"):
        gate.atomic(connection, "charge:1", insert, claim=claim)

    assert (committed(gate), connection.in_transaction) == ((0, None), False)


def test_what_was_committed_before_the_connection_was_closed_is_in_doubt(
    gate: Coloured, connection: sqlite3.Connection, tmp_path: Path, claim: str
) -> None:
    """
    The doubt is told to the store, because the connection is gone; and the function's own error goes through.
    """

    def leaving() -> None:
        connection.execute("INSERT INTO charges VALUES (NULL)")
        connection.commit()
        connection.close()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        gate.atomic(connection, "charge:1", leaving, claim=claim)
    again = sqlite3.connect(tmp_path / "app.db")
    with pytest.raises(InDoubt):
        gate.atomic(again, "charge:1", lambda: "again", claim=claim)
    again.close()

    assert committed(gate)[0] == 1


def test_a_block_is_entered_once(gate: Coloured, connection: sqlite3.Connection, claim: str) -> None:
    """
    A block that is kept for later is refused, with what to do.
    """
    block = gate.atomic(connection, "charge:1", claim=claim)
    with block as operation:
        operation.settle("done")

    with pytest.raises(ConfigurationError, match="for another"), block:
        pass
    assert not connection.in_transaction
