"""
One expense, inserted again and again under one key: one row, and the database itself says so.

    python examples/demo_key.py                                   SQLite, in a temporary folder
    python examples/demo_key.py sqlite:///expenses.db             in a file that stays
    python examples/demo_key.py postgresql:///books --times 3     PostgreSQL; three attempts instead of two

Nothing of the library remembers anything here: the table's own constraint refuses the second row. A retry that brings
a corrected amount may overwrite the first one, if that is asked for (`Update`); it is still one row.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
from contextlib import closing
from decimal import Decimal
from typing import Any

from onceward import Update, insert_once

KEY = ["worker_id", "idempotency_key"]
EXPENSE = {
    "worker_id": "reconciler-v1",
    "user_id": "alice",
    "category": "Food",
    "amount": Decimal("12.50"),
    "idempotency_key": "demo-key-001",
}
CORRECTED = EXPENSE | {"amount": Decimal("13.75")}
CORRECT = Update(["amount"], touch="updated_at")

TABLE = """CREATE TABLE IF NOT EXISTS expenses (
    worker_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    category TEXT NOT NULL,
    amount {money} NOT NULL,
    idempotency_key TEXT NOT NULL,
    updated_at {instant},
    CONSTRAINT expenses_worker_idem_key UNIQUE (worker_id, idempotency_key)
)"""
SQLITE = {"money": "TEXT", "instant": "TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP"}
POSTGRESQL = {"money": "NUMERIC", "instant": "TIMESTAMPTZ NOT NULL DEFAULT now()"}


def connected(url: str) -> Any:
    """A connection that commits each statement, to a database with the table in it."""
    if url.startswith("sqlite:///"):
        connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        words = SQLITE
    else:
        import psycopg

        connection, words = psycopg.connect(url, autocommit=True), POSTGRESQL
    connection.execute(TABLE.format(**words))
    return connection


def stands(connection: Any) -> tuple[int, str]:
    """How many rows have the key, and their amount."""
    of_the_key = "worker_id = 'reconciler-v1' AND idempotency_key = 'demo-key-001'"
    count, amount = connection.execute(f"SELECT count(*), max(amount) FROM expenses WHERE {of_the_key}").fetchone()
    return int(count), str(amount)


def main(url: str, times: int) -> None:
    """Attempts, and then one with another amount."""
    with closing(connected(url)) as connection:
        print("attempt     rows affected   rows with the key   amount")
        for number in range(1, times + 1):
            affected = insert_once(connection, "expenses", EXPENSE, key=KEY)
            print(f"{number:<12}{affected:<16}{stands(connection)[0]:<20}{stands(connection)[1]}")
        affected = insert_once(connection, "expenses", CORRECTED, key=KEY, on_duplicate=CORRECT)
        print(f"{'corrected':<12}{affected:<16}{stands(connection)[0]:<20}{stands(connection)[1]}")
        print(f"expenses under demo-key-001: {stands(connection)[0]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One expense under one key, inserted again and again.")
    parser.add_argument("url", nargs="?", help="sqlite:///FILE or postgresql://... (a temporary file)")
    parser.add_argument("--times", type=int, default=2, help="attempts with the first amount (2)")
    told = parser.parse_args()
    if told.url:
        main(told.url, told.times)
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(f"sqlite:///{folder}/expenses.db", told.times)
