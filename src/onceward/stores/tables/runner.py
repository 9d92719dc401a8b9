"""
Runs flows over tables: `TablesRunner` in the caller's thread, `AsyncTablesRunner` in a few threads of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from onceward._core.flow import Flow as CoreFlow
from onceward.runtime.flow_driver import arun, run
from onceward.stores.tables.sql_steps import Flow, TablesDriver, Transact

T = TypeVar("T")

THREADS = 4
"""Of an awaiting shell: as many calls of the database at once."""


class TablesRunner:
    """Runs flows by blocking. Safe for threads."""

    def __init__(self, driver: TablesDriver) -> None:
        self.driver = driver

    @classmethod
    def over(cls, tables: TablesRunner, name: str) -> TablesRunner:
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


class AsyncTablesRunner:
    """
    Same as `TablesRunner`, but awaits: the database is asked by threads. Cancelling never undoes half a write.

    Written by hand: one pool of threads is all the difference between the two, and every other shell is made of it.
    """

    def __init__(self, tables: TablesRunner, name: str) -> None:
        self._tables = tables
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"onceward-{name}")

    @classmethod
    def over(cls, tables: TablesRunner, name: str) -> AsyncTablesRunner:
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
