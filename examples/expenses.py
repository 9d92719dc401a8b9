"""
An expense and the record of its having been booked, in one transaction: both are there, or neither.

    python examples/expenses.py                in a temporary folder
    python examples/expenses.py expenses.db    in a file that stays: run it twice

The table has a unique constraint of its own, on worker and key. It is the last line of defence: with the gate's
records gone, a row still cannot be doubled. Amounts are text in the database and `Decimal` in Python, never floats.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from onceward import Gate, derive

TABLE = """
CREATE TABLE IF NOT EXISTS expenses (
    id INTEGER PRIMARY KEY,
    worker_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    category TEXT NOT NULL,
    amount TEXT NOT NULL,
    spent_at TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    updated_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    CONSTRAINT uq_expenses_worker_key UNIQUE (worker_id, idempotency_key)
) STRICT
"""

INSERT = """
INSERT INTO expenses (worker_id, user_id, category, amount, spent_at, idempotency_key) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (worker_id, idempotency_key) DO NOTHING
"""


class Expense(NamedTuple):
    """One expense, as the agent was told it."""

    user_id: str
    category: str
    amount: Decimal
    spent_at: str


LUNCH = Expense("u-7", "meals", Decimal("12.50"), "2030-01-02T12:30:00Z")
WORKER = "expense-worker"


def insert(connection: sqlite3.Connection, expense: Expense, key: str) -> int:
    """Insert an expense; how many rows that wrote."""
    values = (WORKER, expense.user_id, expense.category, str(expense.amount), expense.spent_at, key)
    return connection.execute(INSERT, values).rowcount


def book(gate: Gate, connection: sqlite3.Connection, expense: Expense, *, fails: bool = False) -> None:
    """Book an expense once: the row, and the record that says so, commit together."""
    key = derive(worker=WORKER, run="run-42", turn=1, tool="book_expense", input=expense._asdict())
    with gate.atomic(connection, key, request=expense._asdict()) as operation:
        if operation.replayed:
            print(f"  booked before; the first answer was {operation.value}")
            return
        rows = insert(connection, expense, key)
        if fails:
            raise RuntimeError("the process fails after the row was written")
        operation.settle({"rows": rows})
        print(f"  rows written: {rows}")


def main(file: Path) -> None:
    gate = Gate(f"sqlite:///{file}", scope="test:expenses")
    connection = sqlite3.connect(file)
    with connection:
        connection.execute(TABLE)

    print("1st attempt, which fails half-way:")
    try:
        book(gate, connection, LUNCH, fails=True)
    except RuntimeError as error:
        print(f"  {error}; rows in the table: {count(connection)}")
    for attempt in ("2nd", "3rd"):
        print(f"{attempt} attempt:")
        book(gate, connection, LUNCH)

    print("without the gate, the constraint alone:")
    with connection:
        key = connection.execute("SELECT idempotency_key FROM expenses").fetchone()[0]
        print(f"  rows written: {insert(connection, LUNCH, key)}")
    print(f"expenses in the table: {count(connection)}")
    connection.close()
    gate.close()


def count(connection: sqlite3.Connection) -> int:
    """How many expenses there are."""
    rows: int = connection.execute("SELECT count(*) FROM expenses").fetchone()[0]
    return rows


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "expenses.db")
