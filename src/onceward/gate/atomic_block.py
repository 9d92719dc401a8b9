"""
Blocks of atomic mode, whoever waits for them: how one begins, and what leaving it answers.
"""

from __future__ import annotations

import sys
from inspect import CO_ASYNC_GENERATOR
from types import FrameType
from typing import Any, Literal

from onceward._core.engine import Ask
from onceward._core.errors import ConfigurationError
from onceward._core.flow import Call, Flow, Raised, Returned
from onceward._core.operation import Outcome, Settling
from onceward._core.record import as_seen
from onceward.gate.held import until_called
from onceward.gate.strict import Running, begin


class Block:
    """How a block begins, and what leaving it answers, for both colours."""

    def __init__(self, ask: Ask, flow: Flow[Outcome[Any]]) -> None:
        self._ask = ask
        self._flow = flow
        self._entered = False
        self._operation: Settling | None = None
        self._running: Running | None = None

    def _opened(self) -> Flow[Call | Outcome[Any]]:
        if self._entered:
            raise ConfigurationError("an atomic block is entered once; ask gate.atomic(...) for another one")
        self._entered = True
        return until_called(self._flow)

    def _begun(self, found: Call | Outcome[Any]) -> Settling:
        if isinstance(found, Outcome):
            return self._replaying(found)
        operation: Settling = found.operation
        self._operation = operation
        self._running = begin(operation)
        return operation

    def _replaying(self, outcome: Outcome[Any]) -> Settling:
        seen = {"first_at": outcome.first_at_us, "attempt": outcome.attempt, "fence": outcome.fence}
        shown = Settling(as_seen(self._ask.claimant, **seen), self._ask.given)
        shown.show(outcome.value)
        return shown

    def _shown(self, operation: Settling, outcome: Outcome[Any]) -> Literal[False]:
        """With claim="last" a block may learn at its end that it lost: its work is undone, the winner is shown."""
        if outcome.replayed:
            operation.show(outcome.value)
        return False

    def _left(self, operation: Settling, error: BaseException | None) -> Returned | Raised:
        if self._running is not None:
            self._running.end()
        if error is not None:
            return Raised(error)
        if operation.settled:
            return Returned(operation.value)
        return Raised(
            ConfigurationError(
                "the block ended without operation.settle(value), so its transaction was undone; say what is "
                "stored (None is a value), or raise"
            )
        )


def is_awaited() -> bool:
    """
    Whether whoever closes the block's function awaits that: `aclose` of an async generator does, `close` of a coroutine
    cannot. The function is the one whose code has the `async with`, or the exit stack, that is being left.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "contextlib":
        frame = frame.f_back
    return frame is not None and bool(frame.f_code.co_flags & CO_ASYNC_GENERATOR)
