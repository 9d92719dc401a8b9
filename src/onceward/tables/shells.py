"""
How flows over tables are run: `Blocking` in the caller's thread, `Awaiting` in a few threads of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from onceward._core.flow import Flow as CoreFlow
from onceward.drive import arun, run
from onceward.tables.steps import Driver, Flow, Transact

T = TypeVar("T")

THREADS = 4
"""Of an awaiting shell: as many calls of the database at once."""


class Blocking:
    """Runs flows by blocking. Safe for threads."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    @classmethod
    def over(cls, tables: Blocking, name: str) -> Blocking:
        """What a shell asks: the tables themselves."""
        return tables

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        return run(cast("CoreFlow[T]", flow), cast("Any", self.perform))

    def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Something else that talks to the database."""
        return fn(*args)

    def close(self) -> None:
        """Let go of files and connections."""
        self.driver.close()

    def perform(self, effect: Any) -> Any:
        """One effect of a flow."""
        if isinstance(effect, Transact):
            return self.driver.transact(effect.at, effect.steps)
        return self.driver.look(effect.steps)


class Awaiting:
    """
    Same as `Blocking`, but awaits: the database is asked by threads. Cancelling never undoes half a write.

    Written by hand: one pool of threads is all the difference between the two, and every other shell is made of it.
    """

    def __init__(self, tables: Blocking, name: str) -> None:
        self._tables = tables
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"onceward-{name}")

    @classmethod
    def over(cls, tables: Blocking, name: str) -> Awaiting:
        """What a shell asks: the same tables, in threads of this name."""
        return cls(tables, name)

    async def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end."""
        return await arun(cast("CoreFlow[T]", flow), cast("Any", self._tables.perform), self._threaded)

    async def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Something else that talks to the database, in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, fn, *args)

    async def close(self) -> None:
        """Let go of files and connections, when the last call has ended."""
        await asyncio.to_thread(self._threads.shutdown)
        self._tables.close()

    def _threaded(self, effect: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._threads, self._tables.perform, effect)
