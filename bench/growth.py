"""The process of one table of the growth group: so many rows, then claims and purges through our own store."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.worker import Broken
from onceward._core import record
from onceward._core.codec import encode
from onceward._core.fingerprint import fingerprint
from onceward._core.keys import record_id
from onceward._core.record import Claimant, Guarantee
from onceward.stores.sqlite import SqliteStore

SECOND = 1_000_000
DAY = 86_400 * SECOND
PURGE = 1_000
"""Rows in a purge: what a gate's own housekeeping asks for."""
DUE_MAX = 10_000
IN_A_TRANSACTION = 50_000
INSERT = f"INSERT INTO onceward_records VALUES ({', '.join('?' * 22)})"


def rows(many: int, due: int) -> Iterator[tuple[Any, ...]]:
    """Settled records as a gate leaves them; the first `due` are to be forgotten, the next `due` to be shrunk."""
    chance = random.Random(many)
    kept = encode({"charge": "ch_000000000001", "status": "succeeded", "amount": 129900})
    now = time.time_ns() // 1000
    for number in range(many):
        key = f"live:charge:order-{number:08d}"
        settled = now - chance.randrange(SECOND, DAY // 2)
        replay_until = settled + DAY if number >= 2 * due else now - chance.randrange(SECOND, DAY)
        forget_at = replay_until + 30 * DAY if number >= due else now - chance.randrange(SECOND, DAY)
        yield (
            record_id("key", "live:acme", key),
            "key",
            "live:acme",
            key,
            "charge",
            None,
            "settled",
            "blind",
            0,
            b"\x01" + chance.randbytes(32),
            chance.randbytes(16),
            chance.randbytes(16),
            settled,
            1,
            settled,
            settled,
            None,
            replay_until,
            forget_at,
            kept.codec,
            kept.data,
            None,
        )


class Growth:
    """A store of so many rows. Its slices are claims; `count purge N` is N purges."""

    def __init__(self, folder: Path, many: str) -> None:
        self._path = folder / "growth.db"
        self._rows = int(many)
        self._claims = 0
        self._fingerprint = fingerprint({"amount": 1})
        SqliteStore(self._path).close()  # The schema.
        begin = time.perf_counter()
        self._fill()
        self._built = time.perf_counter() - begin
        self._bytes = self._path.stat().st_size
        self._store = SqliteStore(self._path)

    def _fill(self) -> None:
        """Straight into the table, in the random order of ids that claims come in, so that pages are as full."""
        connection = sqlite3.connect(self._path, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -600000")
        made = rows(self._rows, min(self._rows // 10, DUE_MAX))
        for begin in range(0, self._rows, IN_A_TRANSACTION):
            connection.execute("BEGIN")
            chunk = (next(made) for _ in range(min(IN_A_TRANSACTION, self._rows - begin)))
            connection.executemany(INSERT, chunk)
            connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        descriptor = os.open(self._path, os.O_RDWR)
        os.fsync(descriptor)
        os.close(descriptor)

    def check(self) -> None:
        """The rows are there, and they are records to us."""
        found = self._store.load(record_id("key", "live:acme", f"live:charge:order-{self._rows - 1:08d}"))
        if found is None or found.state != "settled" or found.replay_left is None or found.replay_left <= 0:
            raise Broken(f"the last row does not read as a settled record: {found}")

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """Claims, each durable, of keys that were never used."""
        done, cpu, begin = 0, time.process_time(), time.perf_counter()
        while time.perf_counter() - begin < seconds:
            self._claim()
            done += 1
        return {"operations": done, "seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu}

    def _claim(self) -> None:
        self._claims += 1
        key = f"live:{case_key(self._claims)}"
        claimant = Claimant(
            record_id("key", "live:acme", key),
            "key",
            "live:acme",
            key,
            "charge",
            None,
            Guarantee.BLIND.value,
            self._fingerprint,
            60 * SECOND,
            DAY,
            False,
        )
        chance = os.urandom(32)
        write = record.claim(claimant, record.FRESH, token=chance[:16], version=chance[16:])
        if not self._store.put(write, None).landed:
            raise Broken("a claim of a new key did not land")

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """Purges: while there is something due, and one when there is nothing left."""
        times: list[float] = []
        for _ in range(operations):
            begin = time.perf_counter()
            purged = self._store.purge(PURGE)
            took = time.perf_counter() - begin
            if not any(purged):
                return {"bytes": self._bytes, "built": self._built, "purges": times, "idle": took}
            times.append(took)
        raise Broken(f"{case}: still something due after {operations} purges of {PURGE}")

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def case_key(number: int) -> str:
    """A key that the table does not have."""
    return f"refund:order-{number:08d}"
