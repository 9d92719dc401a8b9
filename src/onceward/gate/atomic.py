"""
`with gate.atomic(connection, key) as operation:` - the block form of atomic mode.

The flow is driven up to the point where it wants the function called; the block is that function. Leaving the block
answers the flow.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from inspect import CO_ASYNC_GENERATOR
from types import FrameType, TracebackType
from typing import Any, Literal

from onceward._core.engine import Ask
from onceward._core.errors import ConfigurationError, RetryTransaction
from onceward._core.flow import INSTANT, Call, Effect, Flow, Raised, Returned
from onceward._core.operation import Outcome, Settling
from onceward._core.record import as_seen
from onceward.drive import Kept, running_loop, to_the_end
from onceward.gate.strict import Running, begin


class _Block:
    """What both colours share: how a block begins, and what leaving it answers."""

    def __init__(self, ask: Ask, flow: Flow[Outcome[Any]]) -> None:
        self._ask = ask
        self._flow = flow
        self._entered = False
        self._operation: Settling | None = None
        self._running: Running | None = None

    def _enter(self) -> Effect:
        if self._entered:
            raise ConfigurationError("an atomic block is entered once; ask gate.atomic(...) for another one")
        self._entered = True
        return next(self._flow)

    def _begun(self, call: Call) -> Settling:
        operation: Settling = call.operation
        operation.started = True
        self._operation = operation
        self._running = begin(operation)
        return operation

    def _replaying(self, outcome: Outcome[Any]) -> Settling:
        seen = {"first_at": outcome.first_at_us, "attempt": outcome.attempt, "fence": outcome.fence}
        shown = Settling(as_seen(self._ask.claimant, **seen), self._ask.given)
        shown.show(outcome.value)
        return shown

    def _ended(self, operation: Settling, outcome: Outcome[Any]) -> Literal[False]:
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


class AtomicBlock(_Block):
    """A block inside the caller's transaction. It settles, or it is shown a replay."""

    def __init__(self, ask: Ask, flow: Flow[Outcome[Any]], perform: Callable[[Effect], Any]) -> None:
        super().__init__(ask, flow)
        self._perform = perform

    def __enter__(self) -> Settling:
        try:
            effect = self._enter()
            while not isinstance(effect, Call):
                effect = self._answer(effect)
        except StopIteration as stop:
            return self._replaying(stop.value)
        return self._begun(effect)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if self._operation is None:
            return False
        try:
            effect = self._flow.send(self._left(self._operation, error))
            while True:
                effect = self._flow.throw(_cannot_run_again()) if isinstance(effect, Call) else self._answer(effect)
        except StopIteration as stop:
            return self._ended(self._operation, stop.value)
        except BaseException as raised:
            if raised is error:
                return False  # Let Python raise it again, with its own traceback.
            raise

    def _answer(self, effect: Effect) -> Effect:
        try:
            answer = self._perform(effect)
        except BaseException as error:
            return self._flow.throw(error)
        return self._flow.send(answer)


class AsyncAtomicBlock(_Block):
    """Same as `AtomicBlock`, but awaits."""

    def __init__(
        self,
        ask: Ask,
        flow: Flow[Outcome[Any]],
        instant: Callable[[Effect], Any],
        perform: Callable[[Effect], Awaitable[Any]],
    ) -> None:
        super().__init__(ask, flow)
        self._instant = instant
        self._perform = perform
        self._kept = Kept()

    async def __aenter__(self) -> Settling:
        running_loop()
        try:
            effect = self._enter()
            while not isinstance(effect, Call):
                effect = await self._answer(effect)
            if (strike := self._kept.taken()) is not None:
                effect = self._flow.send(Raised(strike))
                while True:
                    effect = await self._answer(effect)
        except _Ended as ended:
            return self._replaying(ended.outcome)
        except Exception as raised:
            if self._kept.cancelled is not None:
                raise self._kept.taken() from raised  # type: ignore[misc]
            raise
        return self._begun(effect)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if self._operation is None:
            return False
        left = self._left(self._operation, error)
        if isinstance(error, GeneratorExit) and not _is_awaited():
            # Thrown away, perhaps by the garbage collector: nothing can be awaited. What was not committed is undone
            # with its connection.
            self._flow.close()
            return False
        try:
            effect = self._flow.send(left)
            while True:
                effect = (
                    self._flow.throw(_cannot_run_again()) if isinstance(effect, Call) else await self._answer(effect)
                )
        except _Ended as ended:
            if self._kept.cancelled is not None:
                raise self._kept.taken() from None  # type: ignore[misc]
            return self._ended(self._operation, ended.outcome)
        except BaseException as raised:
            if self._kept.cancelled is not None and isinstance(raised, Exception):
                raise self._kept.taken() from raised  # type: ignore[misc]
            if raised is error:
                return False
            raise

    async def _answer(self, effect: Effect) -> Effect:
        try:
            if type(effect) in INSTANT:
                answer = self._instant(effect)
            else:
                answer = await to_the_end(self._perform(effect), self._kept)
        except BaseException as error:
            return self._flow.throw(error)
        try:
            return self._flow.send(answer)
        except StopIteration as stop:
            raise _Ended(stop.value) from None  # A coroutine cannot raise StopIteration.


def _cannot_run_again() -> RetryTransaction:
    return RetryTransaction(
        "somebody else had this key and has let it go, and a block cannot be run twice: what it did is undone; run it "
        "again with the same key"
    )


class _Ended(Exception):
    """The flow has ended, with this outcome."""

    def __init__(self, outcome: Outcome[Any]) -> None:
        self.outcome = outcome


def _is_awaited() -> bool:
    """
    Whether whoever closes the block's function awaits that: `aclose` of an async generator does, `close` of a coroutine
    cannot. The function is the one whose code has the `async with`, or the exit stack, that is being left.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "contextlib":
        frame = frame.f_back
    return frame is not None and bool(frame.f_code.co_flags & CO_ASYNC_GENERATOR)
