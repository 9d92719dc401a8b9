"""
The operation that is running here (`current_operation`), and functions that refuse to run without one (`needs_key`).

    @needs_key
    def wire(amount: Decimal) -> str: ...

    gate.run("wire:17", lambda: wire(amount))    # runs
    wire(amount)                                 # KeyMissing, and nothing has run

A gate notes which operation it is running, in a context variable: it follows the code into what it calls, into tasks
and into `asyncio.to_thread`. An operation that has ended no longer counts, whoever still remembers it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast, overload

from onceward._core.errors import ConfigurationError, KeyMissing
from onceward._core.operation import Operation
from onceward.gate.function_inspection import function_name, is_async
from onceward.runtime.event_stream import EVENT_STREAM

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")

_REFUSE: Any = object()
"""Stands for no default: None is one."""


class RunningOperation:
    """The operation that a gate is running, from when this is made until `end`."""

    __slots__ = ("leave", "operation", "outer")

    def __init__(self, operation: Operation) -> None:
        self.operation: Operation | None = operation
        self.outer = _running.get()
        self.leave: Callable[[], None] | None = None
        _running.set(self)
        if EVENT_STREAM.surroundings:
            self.leave = EVENT_STREAM.enter(operation.scope, operation.digest, operation.fence)

    def end(self) -> None:
        """The function has returned or raised: from now on nothing runs under this key."""
        self.operation = None
        if _running.get() is self:  # A coroutine that nobody awaited to its end is closed in whatever context there is.
            _running.set(self.outer)
            if self.leave is not None:
                self.leave()


_running: ContextVar[RunningOperation | None] = ContextVar("onceward_running", default=None)


@overload
def current_operation() -> Operation: ...


@overload
def current_operation(default: D) -> Operation | D: ...


def current_operation(default: Any = _REFUSE) -> Any:
    """
    The operation that a gate is running around whoever asks.

    Where none is running: `KeyMissing`, or the default if one is given, as in `current_operation(None)`.
    """
    running = _running.get()
    operation = None if running is None else running.operation
    if operation is not None:
        return operation
    if default is _REFUSE:
        raise KeyMissing(
            "no gate is running an operation here: this code was called directly, or for a request without a key. Call "
            "it in a function that a gate runs: gate.run(key, ...), @gate.once(key=...). Where both may happen, use "
            "current_operation(None). In a thread of your own, start it with contextvars.copy_context().run"
        )
    return default


def needs_key(fn: Callable[P, T]) -> Callable[P, T]:
    """
    Declare that a function has side effects and never runs without a key: outside a gate it raises `KeyMissing`.

    Put it on what does the effect (the call of the provider, the sending of the mail). Inside a running operation of
    any gate it is the function itself; elsewhere nothing of it runs.
    """
    if not callable(fn):
        raise ConfigurationError(f"needs_key is for functions, and {type(fn).__name__} cannot be called")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise ConfigurationError(
            f"{function_name(fn)} is a generator, which runs piece by piece as its values are read; put "
            "needs_key on the function that has the effect"
        )
    if is_async(fn):

        @wraps(fn)
        async def awaiting(*args: P.args, **kwargs: P.kwargs) -> Any:
            _check(fn)
            return await cast("Any", fn(*args, **kwargs))

        return cast("Callable[P, T]", awaiting)

    @wraps(fn)
    def blocking(*args: P.args, **kwargs: P.kwargs) -> T:
        _check(fn)
        return fn(*args, **kwargs)

    return blocking


def _check(fn: Callable[..., Any]) -> None:
    running = _running.get()
    if running is None or running.operation is None:
        raise KeyMissing(
            f"{function_name(fn)} has side effects and was called without a key, so a retry could repeat them; nothing "
            "was run. Call it in a function that a gate runs: gate.run(key, ...), @gate.once(key=...). In a thread of "
            "your own, start it with contextvars.copy_context().run"
        )
