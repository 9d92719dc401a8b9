"""
An awaitable whose first step runs at once; it is awaited only if it is not done after that.

Most request bodies have arrived before they are read. A timer around a wait that does not take place costs more than
the rest of the reading.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class EagerAwaitable(Generic[T]):
    """The first step is done when this is made; `await` does the others, if there are any."""

    __slots__ = ("_pending", "_steps", "is_done", "value")
    value: T
    """The result, once `is_done`."""

    def __init__(self, work: Awaitable[T]) -> None:
        self._steps = work.__await__()
        self.is_done = False
        try:
            self._pending: Any = next(self._steps)
        except StopIteration as end:
            self.value, self.is_done = end.value, True

    @classmethod
    def after(cls, work: Awaitable[T], pending: Any) -> EagerAwaitable[T]:
        """An awaitable whose first step somebody has done; that gave `pending`, and so it is not done."""
        begun = cls.__new__(cls)
        begun._steps, begun._pending, begun.is_done = work.__await__(), pending, False
        return begun

    def __await__(self) -> Generator[Any, Any, T]:
        while not self.is_done:
            try:
                sent = yield self._pending
            except GeneratorExit:
                getattr(self._steps, "close", _nothing)()
                raise
            except BaseException as error:
                # An iterator that is no generator (a server's, written in another language) cannot be told.
                throw = getattr(self._steps, "throw", None)
                if throw is None:
                    raise
                self._go_on(partial(throw, error))
            else:
                self._go_on(partial(next, self._steps) if sent is None else partial(self._steps.send, sent))
        return self.value

    def _go_on(self, step: Callable[[], Any]) -> None:
        try:
            self._pending = step()
        except StopIteration as end:
            self.value, self.is_done = end.value, True


def _nothing() -> None:
    """In place of a `close` that the iterator does not have."""
