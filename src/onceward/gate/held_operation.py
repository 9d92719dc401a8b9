# Made from held_operation_async.py by `make halves`: change that file, not this one.
"""
A claimed operation whose work the caller does itself, piece by piece: what `gate.hold` returns.

    found = gate.hold(key, request=...)
    if isinstance(found, Outcome): ...          somebody was here before
    found.operation                             claimed: do the work, as slowly as it goes
    found.end(Returned(value))            or Raised(error): settled, released or in doubt, as after `gate.call`

A stream is such work: it is done when its reader has read it, long after the function that made it has returned.
The flow is the same as that of `gate.call`; it only pauses where the function would be called. Whoever holds must end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onceward._core.flow import Flow, Raised, Returned
from onceward._core.operation import Operation, Outcome
from onceward.gate.paused_flow import PausedFlow


class HeldOperation(PausedFlow):
    """A claimed operation, until `end`."""

    def __init__(
        self,
        operation: Operation,
        flow: Flow[Outcome[Any]],
        finish: Callable[[Flow[Outcome[Any]], Operation], Outcome[Any]],
    ) -> None:
        super().__init__(operation, flow)
        self._finish = finish
        self.left: Callable[[Returned | Raised], None] | None = None
        """Who else is told how it ended: the operation's breaker and budget."""

    def end(self, ended: Returned | Raised) -> Outcome[Any]:
        """Tell how it ended; the outcome, or what `gate.call` would raise."""
        rest = self._ending(ended)
        if self.left is not None:
            self.left(ended)
        return self._finish(rest, self.operation)
