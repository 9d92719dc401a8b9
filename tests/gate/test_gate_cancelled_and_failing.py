"""A caller that is cancelled while its store call is under way, and then the call fails: it stays cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onceward import AsyncGate, StoreUnavailable
from onceward.runtime.flow_driver import PendingCancellation, await_to_end
from onceward.stores.memory import AsyncMemoryStore


class Stalling(AsyncMemoryStore):
    """A store whose n-th put waits to be let go, and then fails."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._before = number
        self.stalled, self.let_go = asyncio.Event(), asyncio.Event()

    async def put(self, write: Any, expect: Any) -> Any:
        self._before -= 1
        if self._before:
            return await super().put(write, expect)
        self.stalled.set()
        await self.let_go.wait()
        raise StoreUnavailable("gone")


async def _cancelled_in(store: Stalling, task: asyncio.Task[Any]) -> BaseException | None:
    """Cancel it in the middle of that put; what became of it."""
    await store.stalled.wait()
    task.cancel()
    await asyncio.sleep(0)
    store.let_go.set()
    try:
        await task
    except BaseException as said:
        return said
    return None


@pytest.mark.parametrize("number", [1, 2], ids=["claim", "settle"])
def test_a_cancelled_call_stays_cancelled_when_its_store_fails(number: int) -> None:
    """
    Whoever catches the store's error and goes on would never end. The error is told along with it.
    """

    async def main() -> tuple[BaseException | None, list[int]]:
        store, ran = Stalling(number), list[int]()

        async def work() -> int:
            ran.append(1)
            return 1

        gate = AsyncGate(store, scope="test:cancelled")
        said = await _cancelled_in(store, asyncio.create_task(gate.run("k", work)))
        await gate.close()
        return said, ran

    said, ran = asyncio.run(main())

    assert isinstance(said, asyncio.CancelledError)
    assert number - 1 == len(ran)
    if number == 1:
        assert isinstance(said.__cause__, StoreUnavailable)


def test_a_timeout_is_a_timeout_when_the_store_fails_after_it() -> None:
    """
    `asyncio.timeout` is a cancellation, and knows its own by hearing of it.
    """

    async def main() -> None:
        store = Stalling(1)
        gate = AsyncGate(store, scope="test:cancelled")
        asyncio.get_running_loop().call_later(0.02, store.let_go.set)
        try:
            async with asyncio.timeout(0.01):
                await gate.run("k", lambda: 1)
        finally:
            await gate.close()

    with pytest.raises(TimeoutError):
        asyncio.run(main())


def test_not_cancelled_the_error_is_the_stores() -> None:
    """
    The other way round: without a cancellation nothing changes.
    """

    async def main() -> None:
        store = Stalling(1)
        store.let_go.set()
        gate = AsyncGate(store, scope="test:cancelled")
        try:
            await gate.run("k", lambda: 1)
        finally:
            await gate.close()

    with pytest.raises(StoreUnavailable):
        asyncio.run(main())


def test_work_that_is_itself_cancelled_says_so() -> None:
    """
    When the loop is torn down, the call under way is cancelled, too: nobody waits for it.
    """

    async def main() -> PendingCancellation:
        kept = PendingCancellation()
        work = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(work.cancel)
        with pytest.raises(asyncio.CancelledError):
            await await_to_end(work, kept)
        return kept

    assert asyncio.run(main()).cancelled is None
