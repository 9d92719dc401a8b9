"""
The work that every adapter does: a request of about 200 bytes, an effect that counts, a result of about 60 bytes.

Nothing here imports the package: the same module runs in the peers' environment.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any, Protocol

SETTLED = 200
"""Keys that are settled before anything is timed; a replay asks for one of them."""
THREADS = 8
TASKS = 50

Request = dict[str, Any]
Result = dict[str, Any]


class Work:
    """Makes keys and requests, and is the effect."""

    def __init__(self) -> None:
        self.effects = 0
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def key(self) -> str:
        """A key that was never used."""
        return f"charge:order-{next(self._numbers):08d}"

    def request(self, key: str) -> Request:
        """A tool call's input, about 200 bytes of JSON."""
        return {
            "tool": "charge_card",
            "order": key,
            "customer": "cus_8f3Kq2LmZp01",
            "amount_cents": 129900,
            "currency": "EUR",
            "lines": [{"sku": "A-1001", "n": 2}, {"sku": "B-77", "n": 1}],
            "note": "second attempt",
        }

    def effect(self) -> Result:
        """What must happen once."""
        with self._lock:
            self.effects += 1
            number = self.effects
        return {"charge": f"ch_{number:012d}", "status": "succeeded", "amount": 129900}


class Adapter(Protocol):
    """One way to do an operation once. `fresh` is called with an unused key, `replay` with a settled one."""

    def fresh(self, key: str, request: Request) -> Result:
        """Run the effect and keep its result."""

    def replay(self, key: str, request: Request) -> Result:
        """Give the kept result."""

    async def afresh(self, key: str, request: Request) -> Result:
        """Same as `fresh`, but awaits."""

    async def areplay(self, key: str, request: Request) -> Result:
        """Same as `replay`, but awaits."""

    def close(self) -> None:
        """Let go of files and threads."""
