"""The process of one adapter of the ledger group: deltas booked by hand and by the ledger, and balances derived."""

from __future__ import annotations

import sqlite3
import time
from itertools import count
from pathlib import Path
from typing import Any

from bench.worker import Broken
from onceward.service.ledger import Ledger, LedgerScope, wire

MILLION = 1_000_000
FEW = 100
BATCH = 100
CUSTOMER = "cus_1"
PLACE = LedgerScope.of("test", "bench")
TABLES = (
    "CREATE TABLE records (key TEXT PRIMARY KEY, answer TEXT)",
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, customer TEXT, amount INTEGER, reason TEXT, reference TEXT UNIQUE)",
)
ADD = "INSERT INTO entries (customer, amount, reason, reference) VALUES (?, ?, ?, ?)"
# Rows as they would be, but for hashes that nobody looks at here.
FILL = """INSERT INTO onceward_ledger_entries
    WITH RECURSIVE numbers (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)
    SELECT 'dl_' || n, 'test:bench', 'cus_1', n, 1000000000, 'bench', NULL, NULL, NULL, :period, 0, '', '', 'verified',
        NULL, 0, 'seal' || n FROM numbers"""


class Hand:
    """What is compared with: one transaction over two tables, a record and a row, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "hand.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        for table in TABLES:
            self._connection.execute(table)

    def emit(self, name: str, deltas: int) -> int:
        """So many rows and one record."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO records VALUES (?, ?)", (name, "{}"))
        for number in range(deltas):
            values = (CUSTOMER, -1, "bench", f"{name}-{number}")
            self._connection.execute(
                "INSERT INTO entries (customer, amount, reason, reference) VALUES (?, ?, ?, ?)", values
            )
        self._connection.execute("COMMIT")
        return deltas

    def rows(self) -> int:
        """How many there are."""
        return int(self._connection.execute("SELECT count(*) FROM entries").fetchone()[0])

    def close(self) -> None:
        """Let go of it."""
        self._connection.close()


class Ours:
    """The ledger: the record of a key, chained entries, the customer's row."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "agent.ledger.db"
        self._ledger = Ledger.open(f"sqlite:///{folder}/agent.db", create=True)

    def emit(self, name: str, deltas: int) -> int:
        """So many deltas under one key; how many were booked."""
        flows = self._ledger.flows
        if deltas == 1:
            self._ledger.run(flows.emit(PLACE, _delta(name), name))
        else:
            self._ledger.run(flows.emit_many(PLACE, [_delta(f"{name}-{number}") for number in range(deltas)], name))
        return deltas

    def derive(self) -> str:
        """A balance."""
        return self._ledger.run(self._ledger.flows.derive(PLACE, CUSTOMER)).balance

    def rows(self) -> int:
        """How many there are."""
        return int(self._by_hand("SELECT count(*) FROM onceward_ledger_entries")[0][0])

    def fill(self, before: int, since: int, *, checkpoint: bool) -> None:
        """So many deltas, a checkpoint, and so many more."""
        self._ledger.run(self._ledger.flows.add_customer(PLACE, CUSTOMER))
        if before:
            self._by_hand(FILL, {"first": 1, "last": before, "period": "2020-01"})
        if checkpoint:
            self._ledger.run(self._ledger.flows.checkpoint(PLACE, CUSTOMER, "2020-01"))
        self._by_hand(FILL, {"first": before + 1, "last": before + since, "period": "2020-02"})
        if self.derive() != str(before + since):
            raise Broken(f"the balance of {before + since} deltas of 1 is {self.derive()}")

    def close(self) -> None:
        """Let go of it."""
        self._ledger.close()

    def _by_hand(self, sql: str, values: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self._file)
        try:
            found = connection.execute(sql, values or {}).fetchall()
            connection.commit()
            return found
        finally:
            connection.close()


class Emits:
    """One adapter, delta by delta or in batches."""

    def __init__(self, folder: Path, name: str) -> None:
        self._name = name
        self._adapter: Hand | Ours = Hand(folder) if name == "hand" else Ours(folder)
        self._names = count()

    def check(self) -> None:
        """One delta per name, however often it is sent. By hand a constraint refuses the second, and that is all."""
        for _ in range(3 if self._name == "ours" else 1):
            self._adapter.emit("same", 1)
        if self._adapter.rows() != 1:
            raise Broken(f"{self._adapter.rows()} deltas for one name sent three times")

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """Book for so long, and count the rows."""
        deltas = BATCH if case == "batches" else 1
        before, done = self._adapter.rows(), 0
        began, cpu = time.perf_counter(), time.process_time()
        while time.perf_counter() < began + seconds:
            done += self._adapter.emit(f"key-{next(self._names):09d}", deltas)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        if self._adapter.rows() - before != done:
            raise Broken(f"{done} deltas were answered, and the rows do not add up")
        return {"operations": done, "seconds": took, "cpu": cpu}

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """Not asked for here."""
        raise Broken(f"nothing is counted in {case} ({operations})")

    def close(self) -> None:
        """Clean up."""
        self._adapter.close()


class Derives:
    """Balances of one ledger: few deltas, a million before a checkpoint, or a million without one."""

    def __init__(self, folder: Path, name: str) -> None:
        self._ours = Ours(folder)
        before = 0 if name == "few" else MILLION
        self._ours.fill(before, FEW, checkpoint=name == "ours-checkpoint")

    def check(self) -> None:
        """Was done as it was filled."""

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """Derive for so long."""
        began, cpu, done = time.perf_counter(), time.process_time(), 0
        while not done or time.perf_counter() < began + seconds:
            self._ours.derive()
            done += 1
        return {"operations": done, "seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """Not asked for here."""
        raise Broken(f"nothing is counted in {case} ({operations})")

    def close(self) -> None:
        """Clean up."""
        self._ours.close()


def _delta(reference: str) -> wire.DeltaRequest:
    return wire.DeltaRequest(customer_id=CUSTOMER, delta=-1, reason="bench", reference_id=reference)
