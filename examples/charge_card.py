"""
Charging a card at a provider that honours keys, when the connection breaks at the worst moment.

The bank (bank.py) is a real HTTP server. The first call reaches it, the money is taken, and the answer is lost. With
guarantee="keyed" the gate knows what to do about that: send it again, with the same key for the bank, which
recognises it. The caller does nothing but try again.
"""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TypedDict

from bank import Bank
from bank import charge as ask_bank

from onceward import Gate, KeyReused, Operation


class Charge(TypedDict):
    """What the bank answers, and what is stored."""

    charge: str
    order: str
    amount: Decimal


def main() -> None:
    with Bank() as bank, tempfile.TemporaryDirectory() as folder:
        gate = Gate(f"sqlite:///{Path(folder) / 'shop.db'}", scope="test:shop")
        line_breaks = iter([True, False])

        # How long the bank honours a key is the bank's promise. Past that, an unknown outcome is in doubt.
        @gate.once(key="charge:{order_id}", guarantee="keyed", keyed_for=24 * 3600)
        def charge(operation: Operation, order_id: str, amount: Decimal) -> Charge:
            key = operation.downstream_key("stripe")  # The same on every attempt, in every process.
            answer = ask_bank(bank.url, {"order": order_id, "amount": str(amount)}, key)
            if next(line_breaks):
                raise ConnectionResetError("the line broke after the bank had taken the money")
            return Charge(charge=answer["charge"], order=answer["order"], amount=Decimal(answer["amount"]))

        try:
            charge("o-17", Decimal("12.50"))
        except ConnectionResetError as error:
            print(f"1st call: {error}")
            print(f"          {error.__notes__[0]}")
        print(f"2nd call: {charge('o-17', Decimal('12.50'))['charge']} (sent again under the same key)")
        print(f"3rd call: {charge('o-17', Decimal('12.50'))['charge']} (replayed; the bank was not asked)")
        try:
            charge("o-17", Decimal("99.00"))
        except KeyReused as error:
            print(f"4th call, another amount: refused as {error.code}")
        gate.close()
        print(f"4 calls, {bank.requests} requests to the bank, {len(bank.charges)} charge")


if __name__ == "__main__":
    main()
