"""
Flows that also count what tenants hold, and ask whether an operation ran: beyond the tables of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from onceward.service.access.access_database import AccessDatabase
from onceward.service.access.effects import AskRecords, CountUsage
from onceward.stores.tables import TablesRunner

OtherUsage = Callable[[Sequence[str]], Iterable[tuple[str, int, int]]]
"""What some tenants hold outside of the store: (scope, records, bytes). Asked in a thread, about once a minute."""


def no_other_usage(tenants: Sequence[str]) -> Iterable[tuple[str, int, int]]:
    """For those who keep everything in the store."""
    return ()


RanLookup = Callable[[Sequence[str]], Mapping[str, float]]
"""Which of these operations ran, by their records, and how many seconds ago. Asked in a thread, after a holder died."""


def nothing_known(operations: Sequence[str]) -> Mapping[str, float]:
    """For those who keep no record of what is charged."""
    return {}


def others_know(operations: Sequence[str]) -> Mapping[str, float]:
    """For those who cannot look where the records are: these may have run just now, so somebody else has to decide."""
    return dict.fromkeys(operations, 0.0)


class AccessTables(TablesRunner):
    """Performs `CountUsage` and `AskRecords`, besides what every `TablesRunner` does."""

    def __init__(self, database: AccessDatabase, elsewhere: OtherUsage, ran: RanLookup = nothing_known) -> None:
        super().__init__(database.driver)
        self._database = database
        self._elsewhere = elsewhere
        self._ran = ran

    def perform(self, effect: Any) -> Any:
        """One effect of a flow."""
        if isinstance(effect, CountUsage):
            return [*self._database.records.counted(), *self._elsewhere(effect.tenants)]
        if isinstance(effect, AskRecords):
            return self._ran(effect.operations)
        return super().perform(effect)

    def close(self) -> None:
        """Let go of files and connections."""
        self._database.close()
