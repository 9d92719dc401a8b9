# blocking half: held_operation.py
"""
A claimed operation whose work the caller does itself, piece by piece: what `gate.hold` returns.

    found = await gate.hold(key, request=...)
    if isinstance(found, Outcome): ...          somebody was here before
    found.operation                             claimed: do the work, as slowly as it goes
    await found.end(Returned(value))            or Raised(error): settled, released or in doubt, as after `gate.call`

A stream is such work: it is done when its reader has read it, long after the function that made it has returned.
What follows is the same as after `gate.call`. Whoever holds must end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from onceward._core.errors import IllegalMove
from onceward._core.flow import Raised, Returned
from onceward._core.operation import Operation, Outcome
from onceward.gate.running_operation import RunningOperation


class AsyncHeldOperation:
    """A claimed operation, until `end`."""

    def __init__(self, operation: Operation, finish: Callable[[Returned | Raised], Awaitable[Outcome[Any]]]) -> None:
        self.operation = operation
        self._finish: Callable[[Returned | Raised], Awaitable[Outcome[Any]]] | None = finish
        self._running = RunningOperation(operation)
        self.left: Callable[[Returned | Raised], Awaitable[None]] | None = None
        """Who else is told how it ended: the operation's breaker and budget."""

    async def end(self, ended: Returned | Raised) -> Outcome[Any]:
        """Tell how it ended; the outcome, or what `gate.call` would raise."""
        finish, self._finish = self._finish, None
        if finish is None:
            raise IllegalMove("this operation has already ended")
        self._running.end()
        if self.left is not None:
            await self.left(ended)
        return await finish(ended)
