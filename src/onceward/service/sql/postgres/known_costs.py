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

    def expected(self, tenant: str, request: SqlRequest) -> float:
        """Processor seconds to set aside."""
        return self._known.get(_name(tenant, request), self.quick)

    def note(self, tenant: str, request: SqlRequest, seconds: float) -> None:
        """It took so long."""
        name = _name(tenant, request)
        if seconds <= self.quick:
            self._known.pop(name, None)
            return
        self._known[name] = min(seconds, self._most)
        self._known.move_to_end(name)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _name(tenant: str, request: SqlRequest) -> int:
    return hash((tenant, tuple(sql for sql, _ in request.statements)))
