"""
Flows that also count what tenants hold: records are the store's, and more may be elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from onceward.service.access.access_database import AccessDatabase
from onceward.service.access.effects import CountUsage
from onceward.stores.tables import TablesRunner

OtherUsage = Callable[[Sequence[str]], Iterable[tuple[str, int, int]]]
"""What some tenants hold outside of the store: (scope, records, bytes). Asked in a thread, about once a minute."""


def no_other_usage(tenants: Sequence[str]) -> Iterable[tuple[str, int, int]]:
    """For those who keep everything in the store."""
    return ()


class AccessTables(TablesRunner):
    """Performs `CountUsage`, besides what every `TablesRunner` does."""

    def __init__(self, database: AccessDatabase, elsewhere: OtherUsage) -> None:
        super().__init__(database.driver)
        self._database = database
        self._elsewhere = elsewhere

    def perform(self, effect: Any) -> Any:
        """One effect of a flow."""
        if isinstance(effect, CountUsage):
            return [*self._database.records.counted(), *self._elsewhere(effect.tenants)]
        return super().perform(effect)

    def close(self) -> None:
        """Let go of files and connections."""
        self._database.close()
