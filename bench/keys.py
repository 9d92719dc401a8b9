"""The process of one adapter of the keys group."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.work import Work
from bench.worker import Broken

BURST = 20
"""Calls between two looks at the clock: a look takes a tenth of the shortest call."""


def documents() -> dict[str, dict[str, Any]]:
    """Requests of several sizes, the same in every process."""
    chance = random.Random(8785)

    def line(number: int, price: Any) -> dict[str, Any]:
        return {
            "sku": f"SKU-{chance.randrange(10**6):06d}",
            "quantity": chance.randrange(1, 9),
            "price": price,
            "title": f"article number {number}",
            "gift": bool(number % 2),
        }

    def order(lines: int, *, floats: bool = False) -> dict[str, Any]:
        prices = (round(chance.uniform(1, 500), 2) if floats else chance.randrange(100, 50_000) for _ in range(lines))
        return {
            "tool": "place_order",
            "customer": "cus_8f3Kq2LmZp01",
            "currency": "EUR",
            "address": {"street": "Hauptstraße 7", "city": "Köln", "zip": "50667"},
            "lines": [line(number, price) for number, price in enumerate(prices)],
        }

    small = Work().request("charge:order-00000001")
    return {"200B": small, "2KB": order(20), "2KB_floats": order(20, floats=True), "50KB": order(530)}


def _plain(value: Any) -> bytes:
    return sha256(json.dumps(value, sort_keys=True).encode()).digest()


def _function(name: str) -> Callable[[Any], bytes]:
    """What is measured, imported in its own process."""
    if name == "json":
        return _plain
    if name == "rfc8785":
        import rfc8785

        return lambda value: sha256(rfc8785.dumps(value)).digest()
    if name == "ours-pure":
        sys.modules["orjson"] = None  # type: ignore[assignment]  # As if it were not installed.
    from onceward._core.fingerprint import fingerprint

    return fingerprint


class Keys:
    """One function over every document."""

    def __init__(self, _folder: Path, name: str) -> None:
        self._name = name
        self._documents = documents()
        self._function = _function(name)

    def check(self) -> None:
        """The order of names does not matter, the values do; and with orjson or without it is what it says."""
        for document in self._documents.values():
            first = self._function(document)
            if first != self._function(dict(reversed(document.items()))):
                raise Broken("the order of names changed the hash")
            if first == self._function({**document, "tool": "another"}):
                raise Broken("another value gave the same hash")
        if self._name.startswith("ours"):
            from onceward._core import canonical

            if (canonical._dumps is None) != (self._name == "ours-pure"):
                raise Broken("orjson is there where it should not be, or the other way round")

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """As often as fits."""
        function, document, done = self._function, self._documents[case], 0
        burst = range(1 if case == "50KB" else BURST)
        cpu, begin = time.process_time(), time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for _ in burst:
                function(document)
            done += len(burst)
        elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
        # Nothing here waits, so the CPU's time is the time; another's slice of the CPU is not ours to count.
        return {"operations": done, "seconds": cpu, "cpu": cpu, "elapsed": elapsed}

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """There is nothing to trace here."""
        raise Broken(f"no {operations} traced operations of {case}")

    def close(self) -> None:
        """Nothing to let go of."""
