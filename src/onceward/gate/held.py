"""
A flow whose function is not called: it stops there, and whoever holds the operation (a block, a stream) says later how
that ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onceward import failpoints
from onceward._core.errors import IllegalMove, RetryTransaction
from onceward._core.flow import Call, Effect, Flow, HandOver, Raised, Returned
from onceward._core.operation import Operation, Outcome
from onceward.gate.strict import Running, begin


class Held:
    """A claim that is ended once, for both colours."""

    def __init__(self, operation: Operation, flow: Flow[Outcome[Any]]) -> None:
        self.operation = operation
        self._flow: Flow[Outcome[Any]] | None = flow
        self._running: Running = begin(operation)

    def _ending(self, ended: Returned | Raised) -> Flow[Outcome[Any]]:
        flow, self._flow = self._flow, None
        if flow is None:
            raise IllegalMove("this operation has been ended already")
        self._running.end()
        return resumed(flow, ended)


def until_called(flow: Flow[Outcome[Any]]) -> Flow[Call | Outcome[Any]]:
    """A flow up to the moment at which its function is to be called; or to its end, if it does not come to that."""
    return _advance(flow, lambda: next(flow), stops=True)


def resumed(flow: Flow[Outcome[Any]], ended: Returned | Raised) -> Flow[Outcome[Any]]:
    """The rest of it."""

    def tell() -> Effect:
        failpoints.hit("call.after")
        return flow.send(ended)

    return _advance(flow, tell, stops=False)


def _advance(flow: Flow[Outcome[Any]], first: Callable[[], Effect], *, stops: bool) -> Flow[Any]:
    try:
        effect = first()
        while True:
            try:
                if type(effect) is not Call:
                    answer = yield effect
                elif stops:
                    # If this fails, or a cancellation strikes, nothing has run: the flow takes its claim back.
                    yield HandOver(effect.operation)
                    return effect
                else:
                    raise _cannot_run_again()
            except GeneratorExit:
                raise
            except BaseException as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(answer)
    except StopIteration as stop:
        return stop.value


def _cannot_run_again() -> RetryTransaction:
    return RetryTransaction(
        "somebody else had this key and has let it go, and a block cannot be run twice: what it did is undone; run it "
        "again with the same key"
    )
