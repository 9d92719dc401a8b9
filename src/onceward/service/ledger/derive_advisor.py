"""
Advice to clients that derive a balance after every emit: derive it when somebody asks, on a schedule or before a bill.

It is a header and changes nothing. It is counted in this process, for the customers that were seen last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from onceward.protocol.headers import ADVICE

PAIRS = 5
"""Derivations in a row with a single emit before each: once may be somebody looking, five times is a habit."""
REMEMBERED_MAX = 10_000
TEXT = (
    "derive-per-emit; this customer's balance was derived after each of its last deltas: derive it when someone asks, "
    "on a schedule, or before a receipt"
)


class DeriveAdvisor:
    """Counts emits and derivations by customer. Safe for threads."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self._seen: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()
        """Customer -> emits since the last derivation, and derivations in a row that followed a single emit."""

    def emitted(self, scope: str, customers: Iterable[str]) -> None:
        """Deltas were sent."""
        with self._counting:
            for customer in customers:
                emits, pairs = self._seen.pop((scope, customer), (0, 0))
                self._seen[scope, customer] = (emits + 1, pairs)
            while len(self._seen) > REMEMBERED_MAX:
                self._seen.popitem(last=False)

    def derived(self, scope: str, customer: str) -> tuple[tuple[str, str], ...]:
        """A balance was derived: the headers with advice, if there is any."""
        with self._counting:
            emits, pairs = self._seen.pop((scope, customer), (0, 0))
            pairs = pairs + 1 if emits == 1 else 0
            self._seen[scope, customer] = (0, pairs)
        return ((ADVICE, TEXT),) if pairs >= PAIRS else ()
