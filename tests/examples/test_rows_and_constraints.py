"""The table's own constraint, as the examples declare it: on SQLite and PostgreSQL, with nothing of ours in between."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from test_examples import EXAMPLES, run

from onceward import Gate, insert_once
from servers import postgres

sys.path.insert(0, str(EXAMPLES))
sys.path.insert(0, str(EXAMPLES / "reconciler"))

import demo_key
import reconcile


@pytest.fixture(params=["sqlite", "postgres"] if postgres.wanted() else ["sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/expenses.db"
        return
    server, name = postgres.running(), f"expenses_{os.urandom(4).hex()}"
    server.execute(f"CREATE DATABASE {name}")
    yield server.url(name)
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def connection(url: str) -> Iterator[Any]:
    """The demonstration's own table."""
    with closing(demo_key.connected(url)) as opened:
        yield opened


def rows(connection: Any) -> list[tuple[Any, ...]]:
    asked = "SELECT worker_id, category, amount, idempotency_key FROM expenses"
    return [(worker, category, str(amount), key) for worker, category, amount, key in connection.execute(asked)]


@pytest.mark.requirement("B34")
@pytest.mark.fault("a-second-insert-counts-as-one", "a-correction-is-dropped")
def test_the_demonstration_writes_one_row_then_none_and_counts_one(url: str, tmp_path: Path) -> None:
    """
    reconciler-v1, Food, 12.50, demo-key-001: 1, 0, count 1; then 13.75 by DO UPDATE, and it is still one row. Run a
    second time it finds that row.
    """
    folder = tmp_path / "empty"
    folder.mkdir()
    first, again = [[line.split() for line in run("demo_key.py", folder, url)] for _ in range(2)]
    with closing(demo_key.connected(url)) as connection:
        found = rows(connection)

    assert first[1:4] == [["1", "1", "1", "12.50"], ["2", "0", "1", "12.50"], ["corrected", "1", "1", "13.75"]]
    assert again[1:4] == [["1", "0", "1", "13.75"], ["2", "0", "1", "13.75"], ["corrected", "1", "1", "13.75"]]
    assert found == [("reconciler-v1", "Food", "13.75", "demo-key-001")]


@pytest.mark.requirement("B34")
@pytest.mark.fault("a-correction-is-not-dated")
def test_a_correction_is_dated_when_it_was_made(connection: Any) -> None:
    """
    `updated_at` is the time of the second attempt; a retry that changes nothing leaves it.
    """
    insert_once(connection, "expenses", demo_key.EXPENSE, key=demo_key.KEY)
    connection.execute("UPDATE expenses SET updated_at = '2001-02-03 04:05:06'")
    insert_once(connection, "expenses", demo_key.EXPENSE, key=demo_key.KEY)
    (before,) = connection.execute("SELECT updated_at FROM expenses").fetchone()
    insert_once(connection, "expenses", demo_key.CORRECTED, key=demo_key.KEY, on_duplicate=demo_key.CORRECT)
    (after,) = connection.execute("SELECT updated_at FROM expenses").fetchone()

    assert str(before).startswith("2001-02-03")
    assert str(after) > "2026"


@pytest.mark.requirement("B35")
@pytest.mark.fault("a-second-insert-counts-as-one")
def test_three_attempts_in_a_row_write_one_none_none_and_count_one_after_each(url: str, tmp_path: Path) -> None:
    """
    By the library, and as the demonstration prints it.
    """
    folder = tmp_path / "empty"
    folder.mkdir()
    printed = [line.split()[:3] for line in run("demo_key.py", folder, url, "--times", "3")[1:4]]
    seen = []
    with closing(demo_key.connected(url)) as connection:
        connection.execute("DELETE FROM expenses")
        for _ in range(3):
            affected = insert_once(connection, "expenses", demo_key.EXPENSE, key=demo_key.KEY)
            seen.append((affected, demo_key.stands(connection)[0]))

    assert printed == [["1", "1", "1"], ["2", "0", "1"], ["3", "0", "1"]]
    assert seen == [(1, 1), (0, 1), (0, 1)]


@pytest.mark.requirement("B03")
@pytest.mark.fault("a-second-insert-counts-as-one")
def test_with_the_library_remembering_nothing_the_constraint_keeps_one_row(connection: Any) -> None:
    """
    Every attempt has a gate of its own whose records are gone at once, so each runs: and the table has one row.
    """
    ran, affected = [], []

    def add() -> None:
        ran.append("ran")
        affected.append(insert_once(connection, "expenses", demo_key.EXPENSE, key=demo_key.KEY))

    for _ in range(4):
        with Gate("memory://", scope="test:books") as gate:
            gate.run("demo-key-001", add)
    add()

    assert len(ran) == 5
    assert affected == [1, 0, 0, 0, 0]
    assert demo_key.stands(connection)[0] == 1


@pytest.mark.requirement("B39")
@pytest.mark.fault("a-confirmation-is-unique-by-something-else", "a-confirmation-is-unique-by-its-run-alone")
def test_confirmations_are_unique_by_run_and_expense_and_by_nothing_else(url: str) -> None:
    """
    A second one of the same run and expense affects no row, whatever else is in it. Another expense of the run, and
    the same expense in another run, are confirmations of their own.
    """
    books = reconcile.Books(url)
    mark = "?" if url.startswith("sqlite") else "%s"
    confirmations = [
        ("run-1", 7, "alice@example.com", "k-1"),
        ("run-1", 7, "alice@example.com", "k-1"),
        ("run-1", 7, "bob@example.com", "k-2"),
        ("run-1", 8, "alice@example.com", "k-1"),
        ("run-2", 7, "alice@example.com", "k-1"),
    ]
    sql = (
        "INSERT INTO confirmation_emails (worker_id, run_id, expense_id, recipient, idempotency_key) "
        f"VALUES ('reconciler-v1', {', '.join([mark] * 4)}) ON CONFLICT DO NOTHING"
    )
    affected = [books.connection.execute(sql, values).rowcount for values in confirmations]
    (count,) = books.connection.execute("SELECT count(*) FROM confirmation_emails").fetchone()
    books.close()

    assert affected == [1, 0, 0, 1, 1]
    assert count == 3
