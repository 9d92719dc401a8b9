"""
The emitter's thread or task: it wakes up to send, one batch at a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from onceward._core.errors import ConfigurationError

INSIDE = "send cannot flush, tick, resume or close its own emitter; it may emit"


class Pacer:
    """The thread of a blocking emitter."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = threading.Lock()
        """Around sending: held for as long as that takes."""
        self._sender: int | None = None
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None

    def ensure_running(self, work: Callable[[], None] | None) -> None:
        """Start the thread, if there is work and it is not running."""
        if self._thread is None and work is not None:
            self._thread = threading.Thread(target=work, name=self._name, daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """There is something to do."""
        self._woken.set()

    def pause(self, seconds: float) -> None:
        """Wait so long at most, or until somebody wakes us."""
        self._woken.wait(max(seconds, 0.0))
        self._woken.clear()

    def ended(self) -> None:
        """Wait for the end of the work."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only one that sends inside the block; refused inside of `send` itself."""
        if self._sender == threading.get_ident():
            raise ConfigurationError(INSIDE)
        with self._turn:
            self._sender = threading.get_ident()
            try:
                yield
            finally:
                self._sender = None


class AsyncPacer:
    """A task, on the event loop that is running: it may be another one the next time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settle_in()

    def _settle_in(self) -> None:
        self._turn = asyncio.Lock()
        self._sender: asyncio.Task[Any] | None = None
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def ensure_running(self, work: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        """Start the task, if there is work and it is not running. In another event loop everything begins anew."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._settle_in()
        if self._task is None and work is not None:
            self._task = loop.create_task(work(), name=self._name)

    def wake(self) -> None:
        """There is something to do."""
        self._woken.set()

    async def pause(self, seconds: float) -> None:
        """Wait so long at most, or until somebody wakes us."""
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    async def ended(self) -> None:
        """Wait for the end of the work."""
        if self._task is not None:
            await asyncio.wait([self._task])

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Be the only one that sends inside the block; refused inside of `send` itself."""
        if self._sender is not None and self._sender is asyncio.current_task():
            raise ConfigurationError(INSIDE)
        async with self._turn:
            self._sender = asyncio.current_task()
            try:
                yield
            finally:
                self._sender = None
