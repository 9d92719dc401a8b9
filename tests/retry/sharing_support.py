"""What the tests of shared budgets and breakers share: stores that count, and who asks them in which colour."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from retry_support import Sleepless

from colours import Colour
from onceward import StoreUnavailable
from onceward.stores import Capabilities, capabilities_of, open_async_store, open_store
from onceward.stores.memory import AsyncMemoryStore, MemoryStore

_numbers = count()

TESTS = str(Path(__file__).resolve().parents[1])


class Counting:
    """A store that counts its calls, and can be away or hang."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls = 0
        self.away = False
        self.hang: threading.Event | None = None

    @property
    def capabilities(self) -> Capabilities:
        return capabilities_of(self._store)

    def load(self, id: bytes) -> Any:
        return self._pass(self._store.load, id)

    def put(self, write: Any, expect: bytes | None) -> Any:
        return self._pass(self._store.put, write, expect)

    def _pass(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        if self.hang is not None:
            self.hang.wait(30)
        return self._answer(call, *arguments)

    def _answer(self, call: Callable[..., Any], *arguments: Any) -> Any:
        if self.away:
            raise StoreUnavailable
        return call(*arguments)


class AsyncCounting(Counting):
    """Same, but awaits."""

    async def load(self, id: bytes) -> Any:
        return await self._wait(self._store.load, id)

    async def put(self, write: Any, expect: bytes | None) -> Any:
        return await self._wait(self._store.put, write, expect)

    async def _wait(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        if self.hang is not None:
            await asyncio.to_thread(self.hang.wait, 30)
        return await self._answer(call, *arguments)


class Way(NamedTuple):
    """Who asks, and of which colour the store is."""

    asks: Colour
    keeps: Colour

    def open(self, url: str) -> Any:
        return self.keeps.pick(open_store, open_async_store)(url)  # type: ignore[operator]

    def memory(self, still: Sleepless) -> Counting:
        if self.keeps.awaits:
            return AsyncCounting(AsyncMemoryStore(environment=still))
        return Counting(MemoryStore(environment=still))

    def close(self, *stores: Any) -> None:
        for store in stores:
            self.asks.run(store.close)
