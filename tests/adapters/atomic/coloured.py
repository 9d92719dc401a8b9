"""
A gate of either colour whose methods can simply be called, also from inside a function that it is running.

An awaiting gate is given async functions, which run the test's plain ones in a greenlet: whatever these call on the
gate is awaited outside of it, on the same event loop and in the same thread, as sqlite3 wants it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any

from sqlalchemy.util import await_only, greenlet_spawn

from onceward import AsyncGate, Gate
from onceward.gate.function_inspection import inspect_function

COLOURS = ("blocking", "awaiting")


class Coloured:
    """A gate, and the loop that awaits it if need be."""

    def __init__(self, colour: str, store: Any, **options: Any) -> None:
        self.awaits = colour == "awaiting"
        made: Any = AsyncGate if self.awaits else Gate
        self.gate = made(store, **options)
        self.store = self.gate.store
        self._loop = asyncio.new_event_loop()

    def run(self, key: str, fn: Callable[..., Any], **options: Any) -> Any:
        return self.do(self.gate.run(key, self.body(fn), **options))

    def call(self, key: str, fn: Callable[..., Any], **options: Any) -> Any:
        return self.do(self.gate.call(key, self.body(fn), **options))

    def atomic(self, connection: Any, key: str, fn: Callable[..., Any] | None = None, **options: Any) -> Any:
        if fn is None:
            return Block(self, self.gate.atomic(connection, key, **options))
        return self.do(self.gate.atomic(connection, key, self.body(fn), **options))

    def once(self, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
            made = self.gate.once(**options)(self._declared(fn))
            return lambda *args, **kwargs: self.do(made(*args, **kwargs))

        return decorate

    def plan(self, name: str, **options: Any) -> Shape:
        return Shape(self, self.gate.plan(name, **options))

    def sequence(self, name: str, **options: Any) -> Shape:
        return Shape(self, self.gate.sequence(name, **options))

    def window(self, name: str, **options: Any) -> Shape:
        return Shape(self, self.gate.window(name, **options))

    def listen(self, listener: Callable[[Any], None]) -> None:
        self.gate.listen(listener)

    def get(self, key: str) -> Any:
        return self.do(self.gate.records.get(key))

    def settle(self, operation: Any, connection: Any, value: Any) -> None:
        """Settle inside the transaction of this connection."""
        self.do((operation.settle_inside_async if self.awaits else operation.settle_inside)(connection, value))

    def sweep(self) -> None:
        """Renew what is due, as the renewer's thread or timer would."""
        self.do(self.gate._renewer.sweep())

    def close(self) -> None:
        self.do(self.gate.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def body(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function for `run` and `atomic`, in this gate's colour."""
        if not self.awaits:
            return fn
        if inspect_function(fn).takes_operation:

            async def awaiting(operation: Any) -> Any:
                return await greenlet_spawn(fn, operation)
        else:

            async def awaiting() -> Any:  # type: ignore[misc]
                return await greenlet_spawn(fn)

        return awaiting

    def do(self, made: Any) -> Any:
        """The value of what a method of either colour gave back."""
        if not inspect.isawaitable(made):
            return made
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run_until_complete(_finished(made))
        return await_only(_finished(made))

    def _declared(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(fn)
        async def awaiting(*args: Any, **kwargs: Any) -> Any:
            return await greenlet_spawn(fn, *args, **kwargs)

        return awaiting if self.awaits else fn


class Block:
    """An atomic block of either colour."""

    def __init__(self, gate: Coloured, block: Any) -> None:
        self._gate, self._block = gate, block

    def __enter__(self) -> Any:
        return self._gate.do(self._block.__aenter__()) if self._gate.awaits else self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        leave = self._block.__aexit__ if self._gate.awaits else self._block.__exit__
        return self._gate.do(leave(kind, error, trace))


class Shape:
    """A plan, a sequence or a window of either colour."""

    def __init__(self, gate: Coloured, shape: Any) -> None:
        self._gate, self._shape = gate, shape

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._shape, name)
        return lambda what, fn, **options: self._gate.do(method(what, self._gate.body(fn), **options))


async def _finished(made: Any) -> Any:
    return await made
