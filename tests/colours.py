"""
Both colours from one text: an awaiting object that a test may use as if it blocked.

    journal = Awaited(AsyncJournal(url, ...))       # or of a coroutine that gives one: Awaited(AsyncAccess.open(url))
    with journal.run("march") as run:               # `async with`
        journal.flush()                             # `await`
    for done in access.erase_tenant("acme"): ...    # `async for`

What such a block gives is turned, too. Everything is awaited in an event loop of its own, which ends with `close`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

COLOURS = ("blocking", "awaiting")


class Awaited:
    """What awaits, for a test that does not."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = asyncio.new_event_loop() if loop is None else loop
        self._owns = loop is None
        self.inner = self.loop.run_until_complete(inner) if inspect.isawaitable(inner) else inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        return self._turned(found) if inspect.isroutine(found) else found

    def close(self) -> None:
        """Close it, and its loop."""
        self.wait(self.inner.aclose() if hasattr(self.inner, "aclose") else self.inner.close())
        if self._owns:
            self.loop.close()

    def wait(self, awaitable: Any) -> Any:
        """What it comes to."""
        return self.loop.run_until_complete(awaitable)

    def also(self, inner: Any) -> Awaited:
        """Another thing, in the same loop."""
        return Awaited(inner, self.loop)

    def _turned(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            made = method(*given, **named)
            if inspect.isawaitable(made):
                return self.wait(made)
            if isinstance(made, AsyncIterator):
                return self._iterated(made)
            return self._block(made) if isinstance(made, AbstractAsyncContextManager) else made

        return call

    def _iterated(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        end = object()
        try:
            while (item := self.wait(anext(items, end))) is not end:
                yield item
        finally:
            if isinstance(items, AsyncGenerator):
                self.wait(items.aclose())

    @contextmanager
    def _block(self, manager: AbstractAsyncContextManager[Any]) -> Iterator[Any]:
        entered = self.wait(manager.__aenter__())
        try:
            yield self.also(entered)
        except BaseException as error:
            if not self.wait(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self.wait(manager.__aexit__(None, None, None))
