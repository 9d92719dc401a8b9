"""
A stored procedure and Python keep the same records: `charge_create.sql`, called from both.

    python examples/postgresql/charge_create.py postgresql://postgres@localhost/shop

It makes the store and its functions, loads the procedure, and calls it: a first run, a replay, a race, a replay by a
Python gate, another request under the same key, and a violation of another constraint. Run it twice: no second charge.
"""

from __future__ import annotations

import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg

from onceward import Gate
from onceward.cli import main as onceward
from onceward.keys import text_fields

PROCEDURE = Path(__file__).with_suffix(".sql")
CALL = "SELECT response_status, response_body FROM charge_create(%s, %s, %s, %s)"


def charge(url: str, key: str, customer: int, amount: Decimal, receipt: str | None = None) -> Any:
    """Call the procedure, as a transaction by itself; what it answers."""
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(CALL, (key, customer, amount, receipt)).fetchone()


def race(url: str, key: str, callers: int) -> list[Any]:
    """Several callers with one key at one moment, each with a connection of its own."""
    start, replies = threading.Barrier(callers), list[Any]()

    def caller() -> None:
        start.wait()
        replies.append(charge(url, key, 8, Decimal("0.1") + Decimal("0.2")))

    threads = [threading.Thread(target=caller) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return replies


def in_python(url: str, key: str, fields: dict[str, str | None]) -> Any:
    """The same key and request under a gate: replayed here, whoever ran it."""
    with Gate(url, scope="test:charges") as gate, psycopg.connect(url) as connection:
        return gate.atomic(connection, key, lambda: "never run here", request=text_fields(fields))


def main(url: str) -> None:
    for command in ("init", "install-functions"):
        if code := onceward(["store", command, "--store", url]):
            raise SystemExit(code)
    with psycopg.connect(url) as connection:
        connection.execute(PROCEDURE.read_bytes())

    print(f"first run:  {charge(url, 'charge:order-1', 7, Decimal('12.50'), 'R-1')}")
    print(f"replay:     {charge(url, 'charge:order-1', 7, Decimal('12.5000'), 'R-1')}")
    for reply in race(url, "charge:order-2", 3):
        print(f"in a race:  {reply}")
    fields = {"customer_id": "7", "amount": "12.5000", "receipt": "R-1"}
    print(f"in Python:  {in_python(url, 'charge:order-1', fields)}")
    print(f"reused key: {charge(url, 'charge:order-1', 7, Decimal('99.00'), 'R-1')}")
    try:
        charge(url, "charge:order-3", 7, Decimal("1.00"), "R-1")
    except psycopg.errors.UniqueViolation as error:
        print(f"another charge with the same receipt: {error.diag.constraint_name}")

    with psycopg.connect(url) as connection:
        amounts = [amount for (amount,) in connection.execute("SELECT amount FROM charge ORDER BY id").fetchall()]
    print(f"{len(amounts)} charges: {' + '.join(map(str, amounts))} = {sum(amounts)}")


if __name__ == "__main__":
    main(sys.argv[1])
