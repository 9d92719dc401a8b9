"""
What a request has cost: processor time, and room in its database.

Results carry it as `.cost`; of an error `cost_of(error)` tells it, because an error costs what it used, like a result.
Processor time is on the payer's account already when the caller sees it here (`engine.query(..., account=...)`): it is
shown, priced, or looked at, and not taken again. Room is the caller's to count.
"""

from __future__ import annotations

from typing import NamedTuple


class SqlCost(NamedTuple):
    """What one request has used, all attempts at it together."""

    cpu_seconds: float = 0.0
    """Processor time, its share of a common commit included."""
    grown_bytes: int = 0
    """How much more of its database is in use than before, in whole pages; less than zero if pages were freed."""

    def plus(self, other: SqlCost) -> SqlCost:
        """This and another attempt."""
        return SqlCost(self.cpu_seconds + other.cpu_seconds, self.grown_bytes + other.grown_bytes)


NO_COST = SqlCost()


def cost_of(error: BaseException) -> SqlCost:
    """What the request has cost that ended with this error; nothing, if it never ran."""
    found = getattr(error, "sql_cost", NO_COST)
    return found if isinstance(found, SqlCost) else NO_COST


def note_cost(error: BaseException, cost: SqlCost) -> None:
    """Write down what the request has cost that ends with this error."""
    error.sql_cost = cost  # type: ignore[attr-defined]
