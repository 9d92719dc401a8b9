"""
A charge is created once, whoever sends it how often: first run, replay and lost race give one and the same reply.

    python examples/charge_create.py               in a temporary folder
    python examples/charge_create.py charges.db    in a file that stays: run it twice

Charge and record commit together (`gate.atomic`), and the row goes in by `insert_once`, so that the table's own
constraint holds even if the record is gone. Amounts are decimals of four places: text in the database, `Decimal` in
Python, never floats. A violation of any other constraint is not a duplicate, and surfaces.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import threading
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import TypedDict

from onceward import Gate, insert_once

TABLE = """
CREATE TABLE IF NOT EXISTS charges (
    id INTEGER PRIMARY KEY,
    idempotency_key TEXT NOT NULL UNIQUE,
    customer_id INTEGER NOT NULL,
    amount TEXT NOT NULL,
    receipt TEXT UNIQUE
) STRICT
"""

FOUR_PLACES = Decimal("0.0001")
LIMIT = Decimal(10) ** 15  # 19 digits, four of them after the point.


class Reply(TypedDict):
    """What every caller is told, whichever way it got there."""

    status: int
    body: dict[str, str]


def fixed(amount: Decimal) -> Decimal:
    """The amount with four places; refused if that would change it, or if it is no decimal at all."""
    if not isinstance(amount, Decimal) or not amount.is_finite() or abs(amount) >= LIMIT:
        raise ValueError(f"not an amount: {amount!r}; say Decimal('12.50')")
    if amount != amount.quantize(FOUR_PLACES):
        raise ValueError(f"more than four places: {amount}")
    return amount.quantize(FOUR_PLACES)


def charge_create(
    gate: Gate, connection: sqlite3.Connection, key: str, customer_id: int, amount: Decimal, receipt: str | None = None
) -> Reply:
    """Charge a customer, once per key."""
    amount = fixed(amount)
    charge = {"customer_id": customer_id, "amount": amount, "receipt": receipt}

    def create() -> Reply:
        insert_once(connection, "charges", {"idempotency_key": key, **charge}, key=["idempotency_key"])
        return {"status": 201, "body": {"status": "created"}}

    return gate.atomic(connection, key, create, request=charge)


def race(gate: Gate, file: Path, key: str, callers: int) -> list[Reply]:
    """Several callers with one key at one moment, each with a connection of its own."""
    start = threading.Barrier(callers)
    replies: list[Reply] = []

    def caller() -> None:
        with closing(sqlite3.connect(file, timeout=30)) as connection:
            start.wait()
            replies.append(charge_create(gate, connection, key, 8, Decimal("0.1") + Decimal("0.2")))

    threads = [threading.Thread(target=caller) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return replies


def main(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, Gate(f"sqlite:///{file}", scope="test:charges") as gate:
        connection.execute(TABLE)

        first = charge_create(gate, connection, "charge:order-1", 7, Decimal("12.50"), "R-1")
        print(f"first run:  {first}")
        again = charge_create(gate, connection, "charge:order-1", 7, Decimal("12.5"), "R-1")
        print(f"replay:     {again}")
        for reply in race(gate, file, "charge:order-2", 2):
            print(f"in a race:  {reply}")

        try:
            charge_create(gate, connection, "charge:order-3", 7, Decimal("1.00"), "R-1")
        except sqlite3.IntegrityError as error:
            print(f"another charge with the same receipt: {error}")

        amounts = [Decimal(amount) for (amount,) in connection.execute("SELECT amount FROM charges ORDER BY id")]
        print(f"{len(amounts)} charges: {' + '.join(map(str, amounts))} = {sum(amounts)}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "charges.db")
