"""
Flows that also count what tenants hold: records are the store's, and more may be elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from onceward.service.access.opening import Place
from onceward.service.access.steps import Count
from onceward.tables import Blocking

Elsewhere = Callable[[Sequence[str]], Iterable[tuple[str, int, int]]]
"""What some tenants hold outside of the store: (scope, records, bytes). Asked in a thread, about once a minute."""


def nothing_elsewhere(tenants: Sequence[str]) -> Iterable[tuple[str, int, int]]:
    """For those who keep everything in the store."""
    return ()


class CountingTables(Blocking):
    """Performs `Count`, besides what every `Blocking` does."""

    def __init__(self, place: Place, elsewhere: Elsewhere) -> None:
        super().__init__(place.driver)
        self._place = place
        self._elsewhere = elsewhere

    def perform(self, effect: Any) -> Any:
        """One effect of a flow."""
        if isinstance(effect, Count):
            return [*self._place.records.counted(), *self._elsewhere(effect.tenants)]
        return super().perform(effect)

    def close(self) -> None:
        """Let go of files and connections."""
        self._place.close()
