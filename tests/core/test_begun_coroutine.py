"""A coroutine that begins at once and goes on, whoever waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from onceward.runtime.flow_driver import BegunCoroutine


def told(story: Coroutine[Any, Any, None]) -> None:
    """Run a story."""
    asyncio.run(story)


def test_it_begins_before_anybody_waits() -> None:
    """
    And one that never waits is done at once.
    """

    async def story() -> None:
        begun: list[int] = []

        async def quick() -> str:
            begun.append(1)
            return "done"

        work = BegunCoroutine(quick())
        assert (begun, work.done(), await work) == ([1], True, "done")

    told(story())


def test_it_goes_on_when_whoever_waited_was_cancelled() -> None:
    """
    The waiter hears of its cancellation when the result is there.
    """

    async def story() -> None:
        opened, ended = asyncio.Event(), []

        async def slow() -> str:
            await opened.wait()
            await asyncio.sleep(0)
            ended.append(1)
            return "done"

        work = BegunCoroutine(slow())

        async def waits() -> str:
            return await work

        waiter = asyncio.create_task(waits())
        await asyncio.sleep(0)
        waiter.cancel()
        opened.set()
        assert await work == "done"
        assert ended == [1]
        with pytest.raises(asyncio.CancelledError):
            await waiter

    told(story())


def test_what_it_raises_is_raised_where_it_is_awaited() -> None:
    """
    Before and after it has waited for something.
    """

    async def story() -> None:
        async def fails(waits: bool) -> None:
            if waits:
                await asyncio.sleep(0)
            raise ValueError("no")

        for waits in (False, True):
            with pytest.raises(ValueError, match="no"):
                await BegunCoroutine(fails(waits))

    told(story())
