"""
A clock that jumps: what is to happen, in the order of its time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class EventQueue:
    """Things that are going to happen, and a clock that stands at the one that is happening."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ahead: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0

    def after(self, seconds: float, happening: Callable[..., None], *arguments: Any) -> None:
        """Let something happen so much later. What is due at the same time happens in the order of asking."""
        self._serial += 1
        heapq.heappush(self._ahead, (self.now + seconds, self._serial, happening, arguments))

    def run(self, until: float) -> None:
        """Let everything happen up to a time."""
        while self._ahead and self._ahead[0][0] <= until:
            self.now, _, happening, arguments = heapq.heappop(self._ahead)
            happening(*arguments)
