"""
An operation that its caller runs by himself, piece by piece.

    found = gate.hold(key, request=...)
    if isinstance(found, Outcome): ...          somebody was here before
    found.operation                             claimed: do the work, as slowly as it goes
    found.end(Returned(value))                  or Raised(error): settled, released or in doubt, as after `gate.call`

Under an awaiting gate both are awaited.

A stream is such work: it is done when its reader has read it, long after the function that made it has returned.
The flow is the same as that of `gate.call`; it only pauses where the function would be called. Whoever holds must end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from onceward import failpoints
from onceward._core.errors import IllegalMove
from onceward._core.flow import Call, Effect, Flow, Raised, Returned
from onceward._core.operation import Operation, Outcome
from onceward.gate.strict import Running


class _Held:
    """What both colours share: a claim that is ended once."""

    def __init__(self, operation: Operation, flow: Flow[Outcome[Any]], running: Running) -> None:
        self.operation = operation
        self._flow: Flow[Outcome[Any]] | None = flow
        self._running = running

    def _ending(self, ended: Returned | Raised) -> Flow[Outcome[Any]]:
        flow, self._flow = self._flow, None
        if flow is None:
            raise IllegalMove("this operation has been ended already")
        self._running.end()
        failpoints.hit("call.after")
        return _resumed(flow, ended)


class Holding(_Held):
    """A claimed operation, until `end`."""

    def __init__(
        self,
        operation: Operation,
        flow: Flow[Outcome[Any]],
        running: Running,
        finish: Callable[[Flow[Outcome[Any]], Operation], Outcome[Any]],
    ) -> None:
        super().__init__(operation, flow, running)
        self._finish = finish
        self.left: Callable[[Returned | Raised], None] | None = None
        """Who else is told how it ended: the operation's breaker and budget."""

    def end(self, ended: Returned | Raised) -> Outcome[Any]:
        """Tell how it ended; the outcome, or what `gate.call` would raise."""
        rest = self._ending(ended)
        if self.left is not None:
            self.left(ended)
        return self._finish(rest, self.operation)


class AsyncHolding(_Held):
    """Same as `Holding`, but awaits."""

    def __init__(
        self,
        operation: Operation,
        flow: Flow[Outcome[Any]],
        running: Running,
        finish: Callable[[Flow[Outcome[Any]], Operation], Awaitable[Outcome[Any]]],
    ) -> None:
        super().__init__(operation, flow, running)
        self._finish = finish
        self.left: Callable[[Returned | Raised], Awaitable[None]] | None = None
        """Same as `Holding.left`, but awaits."""

    async def end(self, ended: Returned | Raised) -> Outcome[Any]:
        """Same as `Holding.end`, but awaits."""
        rest = self._ending(ended)
        if self.left is not None:
            await self.left(ended)
        return await self._finish(rest, self.operation)


def until_called(flow: Flow[Outcome[Any]]) -> Flow[Call | Outcome[Any]]:
    """A flow up to the moment at which its function is to be called; or to its end, if it does not come to that."""
    return _advance(flow, lambda: next(flow))


def _resumed(flow: Flow[Outcome[Any]], ended: Returned | Raised) -> Flow[Any]:
    """The rest of it."""
    return _advance(flow, lambda: flow.send(ended))


def _advance(flow: Flow[Outcome[Any]], first: Callable[[], Effect]) -> Flow[Any]:
    try:
        effect = first()
        while type(effect) is not Call:
            try:
                answer = yield effect
            except GeneratorExit:
                raise
            except BaseException as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(answer)
        return effect
    except StopIteration as stop:
        return stop.value
