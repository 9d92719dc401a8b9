"""
Both colours from one text: a test, or a program that a test starts, says what is done, and not whether it blocks.

    colour.ask(breaker, "admit")    breaker.admit(), or await breaker.aadmit()
    colour.run(gate.close)          gate.close(), of a gate of this colour

Or an awaiting object that a test may use as if it blocked:

    journal = Awaited(AsyncJournal(url, ...))       # or of a coroutine that gives one: Awaited(AsyncAccess.open(url))
    with journal.run("march") as run:               # `async with`
        journal.flush()                             # `await`
    for done in access.erase_tenant("acme"): ...    # `async for`

What such a block gives is turned, too. Everything is awaited in an event loop of its own, which ends with `close`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

COLOURS = ("blocking", "awaiting")


class Colour:
    """Blocks or awaits; everything that one test awaits is awaited on one event loop."""

    def __init__(self, name: str) -> None:
        assert name in COLOURS, name
        self.name, self.awaits = name, name == "awaiting"
        self._runner: asyncio.Runner | None = None

    def pick(self, blocking: T, awaiting: T) -> T:
        """One of two things, by colour."""
        return awaiting if self.awaits else blocking

    def run(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call something of this colour: of what is to be awaited, what comes of it."""
        if not self.awaits:
            return fn(*args, **kwargs)

        async def finish() -> Any:
            made = fn(*args, **kwargs)
            return await made if inspect.isawaitable(made) else made

        return self._loop.run(finish())

    def ask(self, of: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of something that has both: `of.name(...)`, or `await of.aname(...)`."""
        return self.run(getattr(of, f"a{name}" if self.awaits else name), *args, **kwargs)

    def call(self, through: Any, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function through a policy or a breaker."""
        return self.ask(through, "call", self.coloured(fn), *args, **kwargs)

    def guard(self, breaker: Any, body: Callable[[], Any]) -> Any:
        """Do something in a block under a breaker."""
        if not self.awaits:
            with breaker.guard():
                return body()

        async def awaiting() -> Any:
            async with breaker.guard():
                return body()

        return self.run(awaiting)

    def loop(self, policy: Any, body: Callable[..., Any], *, once: bool = False) -> None:
        """Do something in a policy's loop, which is left after the first attempt if that is said."""
        if not self.awaits:
            for attempt in policy.attempts():
                with attempt:
                    body(*[attempt][: _takes(body)])
                if once:
                    break
            return

        async def awaiting() -> None:
            async for attempt in policy.attempts():
                with attempt:
                    body(*[attempt][: _takes(body)])
                if once:
                    break

        self.run(awaiting)

    def coloured(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function in this colour."""
        if not self.awaits:
            return fn

        async def awaiting(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return awaiting

    @property
    def stop(self) -> type[BaseException]:
        """What strikes a call from outside: an interrupt, or a cancellation."""
        return self.pick(KeyboardInterrupt, asyncio.CancelledError)

    @property
    def _loop(self) -> asyncio.Runner:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner

    def forked(self) -> None:
        """In a child: its event loop is its own. The parent's is never closed here: both have one selector."""
        self._parents, self._runner = self._runner, None

    def exit_child(self, code: int) -> None:
        """End a child, with everything that an exit does; or, where the parent's loop would be closed, at once."""
        (os._exit if self.awaits else sys.exit)(code)

    def close(self) -> None:
        """Wait for what was started on the loop, and end it."""
        if self._runner is not None:
            self._runner.close()


def _takes(body: Callable[..., Any]) -> int:
    """Whether a body wants the attempt: 1 or 0."""
    return int("attempt" in getattr(getattr(body, "__code__", None), "co_varnames", ()))


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
