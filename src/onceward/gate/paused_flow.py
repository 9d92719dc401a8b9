"""
A flow that pauses where its function would be called; the holder (a block, a stream) says later how it ended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from onceward._core.errors import RetryTransaction
from onceward._core.flow import CallFunction, Effect, Flow, HandOver, Raised, Returned
from onceward._core.operation import Outcome
from onceward.runtime import failpoints
from onceward.runtime.flow_driver import rest_of


def pause_at_call(flow: Flow[Outcome[Any]]) -> Flow[CallFunction | Outcome[Any]]:
    """A flow up to the moment at which its function is to be called; or to its end, if it does not come to that."""
    came: CallFunction | Outcome[Any] = yield from rest_of(flow, partial(next, flow), until=CallFunction)
    while type(came) is CallFunction:
        try:
            yield HandOver(came.operation)
            return came
        except GeneratorExit:
            raise
        except BaseException as error:
            # Nothing has run, whether this failed or a cancellation struck: the flow takes its claim back.
            came = yield from rest_of(flow, partial(flow.throw, error), until=CallFunction)
    return came


def resume_after_call(flow: Flow[Outcome[Any]], ended: Returned | Raised) -> Flow[Outcome[Any]]:
    """The rest of it."""

    def tell() -> Effect:
        failpoints.hit("call.after")
        return flow.send(ended)

    return (yield from _without_another_call(flow, tell))


def end_after_call(flow: Flow[Outcome[Any]]) -> Flow[Outcome[Any]]:
    """A flow that is about to be told how its function ended."""
    return (yield from _without_another_call(flow, partial(next, flow)))


def _without_another_call(flow: Flow[Outcome[Any]], resume: Callable[[], Effect]) -> Flow[Outcome[Any]]:
    came: Outcome[Any] | CallFunction = yield from rest_of(flow, resume, until=CallFunction)
    while isinstance(came, CallFunction):
        came = yield from rest_of(flow, partial(flow.throw, _cannot_run_again()), until=CallFunction)
    return came


def _cannot_run_again() -> RetryTransaction:
    return RetryTransaction(
        "another caller had this key and released it, and a block cannot run twice. What it did was rolled back; "
        "run it again with the same key"
    )
