"""Both colours behind one handle, so that a test is written once and called from threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from onceward._core.record import Write
from onceward.stores import open_async_store, open_store

COLOURS = ("blocking", "awaiting")


class Deferred(str):
    """
    A URL for the conformance suite that is filled in when a test uses it.

    It reads the same in every worker (the names of tests must), although each worker has a server of its own.
    """

    _fill: Callable[[], str]

    def __new__(cls, name: str, fill: Callable[[], str]) -> Deferred:
        made = super().__new__(cls, name)
        made._fill = fill
        return made

    def replace(self, *_: Any) -> str:
        """The suite fills in its placeholders with this."""
        return self._fill()


class Handle:
    """A store of either colour, called from threads: an awaiting one lives in a loop of its own."""

    def __init__(self, url: str, colour: str, **options: Any) -> None:
        self.colour = colour
        self._loop: asyncio.AbstractEventLoop | None = None
        if colour == "awaiting":
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever)
            self._thread.start()
            self.store: Any = open_async_store(url, **options)
        else:
            self.store = open_store(url, **options)

    def start(self, method: str, *arguments: Any) -> Future[Any]:
        """Call, without waiting for the answer."""
        if self._loop is not None:
            return asyncio.run_coroutine_threadsafe(self._call(method, arguments), self._loop)
        future: Future[Any] = Future()

        def call() -> None:
            try:
                future.set_result(getattr(self.store, method)(*arguments))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=call).start()
        return future

    def call(self, method: str, *arguments: Any) -> Any:
        """Call, and wait for the answer."""
        return self.start(method, *arguments).result(30)

    def put(self, write: Write, expect: bytes | None = None) -> Any:
        """Put, and wait for the answer."""
        return self.call("put", write, expect)

    def together(self, puts: list[tuple[Write, bytes | None]]) -> list[Any]:
        """All at once; answers and errors, in order."""
        if self._loop is not None:

            async def crowd() -> list[Any]:
                return await asyncio.gather(*(self.store.put(*put) for put in puts), return_exceptions=True)

            return asyncio.run_coroutine_threadsafe(crowd(), self._loop).result(60)
        running = [self.start("put", *put) for put in puts]
        return [one.exception(60) or one.result() for one in running]

    async def _call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        return await getattr(self.store, method)(*arguments)

    def close(self) -> None:
        """Close the store, and end the loop."""
        self.call("close")
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


@contextmanager
def handle(url: str, colour: str, **options: Any) -> Iterator[Handle]:
    """A store of that colour, closed at the end."""
    one = Handle(url, colour, **options)
    try:
        yield one
    finally:
        one.close()
