"""
The process of one table of the growth group: so many records, then claims and purges through our own store.

    slice claim SECONDS    claims, each durable, of keys that were never used
    count held N           N batches of a purge, and claims meanwhile: how long the slowest claim took
    count purge N          purges until nothing is due
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from bench.filling import DAY, SECOND, Filled, fill
from bench.worker import Broken
from onceward._core import record
from onceward._core.fingerprint import fingerprint
from onceward._core.keys import record_id
from onceward._core.record import Claimant, Guarantee, PutResult, Record, Write
from onceward._core.store_protocols import PurgeResult
from onceward.stores import open_store

PURGE = 1_000
"""Rows in a purge: what a gate's own housekeeping asks for."""
QUIET_SECONDS = 2.0


class Store(Protocol):
    """What is used of a store here."""

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Put."""

    def load(self, id: bytes) -> Record | None:
        """Read."""

    def purge(self, limit: int) -> PurgeResult:
        """Purge."""

    def close(self) -> None:
        """Close."""


class Growth:
    """A store of so many records."""

    def __init__(self, folder: Path, url: str, many: str) -> None:
        self._rows = int(many)
        self._claims = 0
        self._fingerprint = fingerprint({"amount": 1})
        url = url.format(folder=folder)
        store = open_store(url)
        store.load(bytes(32))  # Opened by now, and the schema is there.
        store.close()
        begin = time.perf_counter()
        self._filled: Filled = fill(url, self._rows)
        self._built = time.perf_counter() - begin
        self._store: Store = open_store(url)

    def check(self) -> None:
        """The records are there, and they are records to us."""
        found = self._store.load(record_id("key", "live:acme", f"live:charge:order-{self._rows - 1:08d}"))
        if found is None or found.state != "settled" or found.replay_left is None or found.replay_left <= 0:
            raise Broken(f"the last row does not read as a settled record: {found}")

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """Claims, one after the other."""
        cpu, begin = time.process_time(), time.perf_counter()
        done = len(self._claim_until(lambda: time.perf_counter() - begin >= seconds))
        return {"operations": done, "seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu}

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """Claims during a purge, or purges."""
        return self._held(operations) if case == "held" else self._purged(operations)

    def _held(self, batches: int) -> dict[str, Any]:
        """What a purge costs those who claim meanwhile."""
        begin = time.perf_counter()
        quiet = self._claim_until(lambda: time.perf_counter() - begin >= QUIET_SECONDS)
        took: list[float] = []
        purged: list[int] = []

        def purge() -> None:
            for _ in range(batches):
                begin = time.perf_counter()
                purged.append(sum(self._store.purge(PURGE)))
                took.append(time.perf_counter() - begin)

        purging = threading.Thread(target=purge)
        purging.start()
        during = self._claim_until(lambda: not purging.is_alive())
        purging.join()
        if not all(purged):
            raise Broken(f"a purge found nothing to do: {purged}")
        return {"quiet": _summary(quiet), "during": _summary(during), "batches": took}

    def _purged(self, most: int) -> dict[str, Any]:
        """While there is something due, and once when there is nothing left."""
        times: list[float] = []
        for _ in range(most):
            begin = time.perf_counter()
            purged = self._store.purge(PURGE)
            took = time.perf_counter() - begin
            if not any(purged):
                return {"bytes": self._filled.bytes, "built": self._built, "purges": times, "idle": took}
            times.append(took)
        raise Broken(f"still something due after {most} purges of {PURGE}")

    def _claim_until(self, enough: Callable[[], bool]) -> list[float]:
        times = []
        while True:
            begin = time.perf_counter()
            self._claim()
            times.append(time.perf_counter() - begin)
            if enough():
                return times

    def _claim(self) -> None:
        self._claims += 1
        key = f"live:refund:order-{self._claims:08d}"
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

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def _summary(times: list[float]) -> dict[str, float]:
    return {
        "claims": len(times),
        "median": statistics.median(times),
        "p99": sorted(times)[len(times) * 99 // 100],
        "longest": max(times),
    }
