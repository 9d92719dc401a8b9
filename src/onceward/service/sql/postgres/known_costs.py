"""
What statements have cost before: so much processor time is set aside for them the next time.

A statement that is new is expected to be quick, as most are. One that took longer is remembered by whose it is and by
its text, without its parameters.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from onceward.service.sql.limits import Limits
from onceward.service.sql.requests import SqlRequest

REMEMBERED: Final = 10_000


class KnownCosts:
    """Of one engine."""

    def __init__(self, limits: Limits) -> None:
        self.quick = min(2 * limits.slice_seconds, limits.statement_seconds)
        """What is set aside for something that is not known to be slow."""
        self._most = limits.statement_seconds
        self._known: OrderedDict[int, float] = OrderedDict()

    @staticmethod
    def text_of(tenant: str, request: SqlRequest) -> int:
        """What a request is remembered by."""
        if len(request.statements) == 1:
            return hash((tenant, request.statements[0][0]))
        return hash((tenant, *[sql for sql, _ in request.statements]))

    def expected(self, text: int) -> float:
        """Processor seconds to set aside."""
        return self._known.get(text, self.quick)

    def note(self, text: int, seconds: float) -> None:
        """It took so long."""
        if seconds <= self.quick:
            if self._known:
                self._known.pop(text, None)
            return
        self._known[text] = min(seconds, self._most)
        self._known.move_to_end(text)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
