"""
What both colours of `AtomicBlock` share: how a block begins, and what leaving it means.
"""

from __future__ import annotations

import sys
from inspect import CO_ASYNC_GENERATOR
from types import FrameType
from typing import Any, Literal

from onceward._core.errors import ConfigurationError
from onceward._core.flow import Raised, Returned
from onceward._core.operation import AtomicOperation, Outcome
from onceward._core.operation_flow import OperationRequest
from onceward._core.record import record_from_claimant
from onceward.gate.running_operation import RunningOperation


class AtomicBlockBase:
    """How a block begins, and what leaving it means, for both colours."""

    def __init__(self, request: OperationRequest) -> None:
        self._request = request
        self._entered = False
        self._operation: AtomicOperation | None = None
        self._running: RunningOperation | None = None

    def _enter(self) -> None:
        if self._entered:
            raise ConfigurationError("an atomic block can be entered only once; call gate.atomic(...) for another")
        self._entered = True

    def _begun(self, found: AtomicOperation | Outcome[Any]) -> AtomicOperation:
        if isinstance(found, Outcome):
            return self._replaying(found)
        self._operation = found
        self._running = RunningOperation(found)
        return found

    def _replaying(self, outcome: Outcome[Any]) -> AtomicOperation:
        seen = {"first_at": outcome.first_at_us, "attempt": outcome.attempt, "fence": outcome.fence}
        shown = AtomicOperation(record_from_claimant(self._request.claimant, **seen), self._request.given)
        shown.show(outcome.value)
        return shown

    def _shown(self, operation: AtomicOperation, outcome: Outcome[Any]) -> Literal[False]:
        """With claim="last" a block may learn at its end that it lost: its work is undone, the winner is shown."""
        if outcome.replayed:
            operation.show(outcome.value)
        return False

    def _left(self, operation: AtomicOperation, error: BaseException | None) -> Returned | Raised:
        if self._running is not None:
            self._running.end()
        if error is not None:
            return Raised(error)
        if operation.settled:
            return Returned(operation.value)
        return Raised(
            ConfigurationError(
                "the block ended without operation.settle(value), so its transaction was rolled back; settle it (None "
                "is a value), or raise"
            )
        )


def is_closing_awaited() -> bool:
    """
    Whether whoever closes the block's function awaits that: `aclose` of an async generator does, `close` of a coroutine
    cannot. The function is the one whose code has the `async with`, or the exit stack, that is being left.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "contextlib":
        frame = frame.f_back
    return frame is not None and bool(frame.f_code.co_flags & CO_ASYNC_GENERATOR)
