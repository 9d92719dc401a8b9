"""
A flow whose function is not called: it stops there, and whoever holds the operation (a block, a stream) says later how
that ended.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from onceward import failpoints
from onceward._core.errors import IllegalMove, RetryTransaction
from onceward._core.flow import Call, Effect, Flow, HandOver, Raised, Returned
from onceward._core.operation import Operation, Outcome
from onceward.drive import rest_of
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
    came: Call | Outcome[Any] = yield from rest_of(flow, partial(next, flow), until=Call)
    while type(came) is Call:
        try:
            yield HandOver(came.operation)
            return came
        except GeneratorExit:
            raise
        except BaseException as error:
            # Nothing has run, whether this failed or a cancellation struck: the flow takes its claim back.
            came = yield from rest_of(flow, partial(flow.throw, error), until=Call)
    return came


def resumed(flow: Flow[Outcome[Any]], ended: Returned | Raised) -> Flow[Outcome[Any]]:
    """The rest of it."""

    def tell() -> Effect:
        failpoints.hit("call.after")
        return flow.send(ended)

    came: Outcome[Any] | Call = yield from rest_of(flow, tell, until=Call)
    while isinstance(came, Call):
        came = yield from rest_of(flow, partial(flow.throw, _cannot_run_again()), until=Call)
    return came


def _cannot_run_again() -> RetryTransaction:
    return RetryTransaction(
        "somebody else had this key and has let it go, and a block cannot be run twice: what it did is undone; run it "
        "again with the same key"
    )
