"""Failures: a store that is closed says so in our words, and a caller that goes away takes nothing with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from onceward._core.errors import StoreUnavailable
from onceward.runtime.environment import REAL
from onceward.stores import Selection
from onceward.testing.store_suite.fixtures import Do
from onceward.testing.store_suite.rows import row, settled, without_durations

CALLS: dict[str, Callable[[Any, str], Any]] = {
    "put": lambda store, scope: store.put(row(scope), None),
    "put_back": lambda store, scope: store.put_back(row(scope), ()),
    "erase": lambda store, scope: store.erase([row(scope).id]),
    "load": lambda store, scope: store.load(row(scope).id),
    "extend": lambda store, scope: store.extend(bytes(32), 1, 1),
    "scan": lambda store, scope: store.scan(b"", 1, Selection(scope=scope)),
    "purge": lambda store, scope: store.purge(1),
}


class TestAClosedStore:
    """After `close`."""

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
    def test_it_works_or_says_that_it_is_away(
        self, do: Do, store: Any, scope: str, call: Callable[[Any, str], Any]
    ) -> None:
        """
        Nobody has to know a driver's exceptions: a store that does not open again raises `StoreUnavailable`.
        """
        do(store.put(row(scope, "before"), None))
        do(store.close())

        with suppress(StoreUnavailable):
            do(call(store, scope))

    def test_closing_twice_is_fine(self, do: Do, store: Any) -> None:
        """
        Also before first use.
        """
        assert [do(store.close()), do(store.close())] == [None, None]

    def test_another_handle_goes_on(self, do: Do, store: Any, another: Any, scope: str) -> None:
        """
        What one handle wrote stands for another, also when the first is closed.
        """
        written = do(store.put(row(scope), None)).record
        do(store.close())

        assert without_durations(written) == without_durations(do(another.load(written.id)))
        assert True is do(another.put(settled(written), written.version)).landed


class TestCancellation:
    """An awaiting caller that is cancelled while its put is on the way."""

    @pytest.mark.parametrize("turns", [0, 1, 2, 5])
    def test_a_cancelled_put_stands_whole_or_not_at_all(
        self, do: Do, store: Any, scope: str, loop: asyncio.AbstractEventLoop, turns: int
    ) -> None:
        """
        Cancelled after so many turns of the loop, some puts of a crowd: the others land, and none is half there.
        """
        writes = [row(scope, f"k{n}", operation=f"k{n}") for n in range(30)]

        async def crowd() -> list[Any]:
            tasks = [asyncio.create_task(store.put(write, None)) for write in writes]
            for _ in range(turns):
                await REAL.asleep(0)
            for task in tasks[::3]:
                task.cancel()
            return await asyncio.gather(*tasks, return_exceptions=True)

        answers = do(crowd())
        found = [do(store.load(write.id)) for write in writes]

        spared = [n for n in range(30) if n % 3]
        assert [answers[n].landed for n in spared] == [True] * 20
        assert [writes[n].version for n in spared] == [found[n].version for n in spared]
        assert {(w.version, w.operation, w.fingerprint) for w in writes} >= {
            (one.version, one.operation, one.fingerprint) for one in found if one is not None
        }
        assert {asyncio.CancelledError} >= {
            type(answers[n]) for n in range(0, 30, 3) if not hasattr(answers[n], "landed")
        }

    def test_the_store_goes_on_after_it(self, do: Do, store: Any, scope: str, loop: asyncio.AbstractEventLoop) -> None:
        """
        A cancelled put, sent again, lands or is recognised by its version.
        """
        write = row(scope)

        async def cancelled() -> None:
            task = asyncio.create_task(store.put(write, None))
            await REAL.asleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        do(cancelled())

        assert write.version == do(store.put(write, None)).record.version
