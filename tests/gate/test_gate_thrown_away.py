"""A coroutine that is thrown away may be closed in the midst of anything: no store is called then."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from onceward import AsyncGate, Operation
from onceward.stores.memory import AsyncMemoryStore


class Watching(AsyncMemoryStore):
    """A memory store that counts its calls, and whose lock says when it would have been waited for in vain."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self._store._rows.lock = Touchy()  # type: ignore[assignment]

    def put(self, write: Any, expect: bytes | None) -> Any:
        self.calls += 1
        return super().put(write, expect)

    def load(self, id: bytes) -> Any:
        self.calls += 1
        return super().load(id)


class Touchy:
    """A lock for one thread: whoever takes it twice would have waited for ever."""

    def __init__(self) -> None:
        self.held = self.deadlocked = False

    def __enter__(self) -> None:
        if self.held:
            self.deadlocked = True
            raise RuntimeError("this thread would wait for itself")
        self.held = True

    def __exit__(self, *_: Any) -> None:
        self.held = False


async def around(times: int = 5) -> None:
    """The event loop goes around."""
    for _ in range(times):
        await asyncio.sleep(0)


@pytest.mark.parametrize("marked", [False, True], ids=["before its effect", "in its effect"])
@pytest.mark.parametrize("collected", [False, True], ids=["closed", "collected"])
@pytest.mark.fault("a-finaliser-calls-the-store")
def test_no_store_is_called_while_a_coroutine_is_closed(marked: bool, collected: bool) -> None:
    """
    Not even if its own thread is inside the store just then. Its loop writes the ending, when it comes around.
    """

    async def main() -> tuple[int, bool, str]:
        store = Watching()
        gate = AsyncGate(store, scope="acme")

        async def body(operation: Operation) -> None:
            if marked:
                with operation.effect():
                    await asyncio.get_running_loop().create_future()
            await asyncio.get_running_loop().create_future()

        thrown: Any = gate.run("k", body, marked=True)
        thrown.send(None)
        before = store.calls
        with store._store._rows.lock:
            if collected:
                cycle: list[Any] = [thrown]
                cycle.append(cycle)
                del thrown, cycle
                gc.collect()
            else:
                thrown.close()
            during = store.calls - before
        await around()
        found = await gate.records.get("k")
        assert found is not None
        return during, store._store._rows.lock.deadlocked, found.state  # type: ignore[attr-defined]

    during, deadlocked, state = asyncio.run(main())

    assert (during, deadlocked) == (0, False)
    # A whole cycle is collected in any order: then the flow may be gone before its coroutine, and the lease lapses.
    assert state in ({"in_doubt" if marked else "released"} | ({"claimed"} if collected else set()))


def test_a_loop_that_has_gone_leaves_the_rest_to_the_lease() -> None:
    """
    Nobody can write any more; nothing is raised.
    """
    gate = AsyncGate("memory://", scope="acme")
    loop = asyncio.new_event_loop()

    async def body() -> None:
        await asyncio.get_running_loop().create_future()

    async def begin() -> Any:
        thrown: Any = gate.run("k", body)
        thrown.send(None)
        return thrown

    thrown = loop.run_until_complete(begin())
    loop.close()
    thrown.close()

    async def state() -> str:
        found = await gate.records.get("k")
        assert found is not None
        return found.state

    assert asyncio.run(state()) == "claimed"


def test_a_claim_that_was_under_way_is_taken_back(tmp_path: Any) -> None:
    """
    Thrown away while its claim was being written: when that has landed, it is released; nobody waits for its lease.
    """

    async def main() -> str:
        async with AsyncGate(f"sqlite:///{tmp_path}/gate.db", scope="acme") as gate:
            thrown: Any = gate.run("k", _never)
            thrown.send(None)
            thrown.close()
            found = None
            while found is None or found.state == "claimed":
                await asyncio.sleep(0)
                found = await gate.records.get("k")
            return found.state

    assert asyncio.run(main()) == "released"


async def _never() -> None:
    raise AssertionError("its caller has gone")


def test_a_waiter_that_is_thrown_away_leaves_without_a_lock() -> None:
    """
    Also while another comes or goes: the bell is kept in single steps.
    """

    async def main() -> tuple[bool, bool]:
        gate = AsyncGate("memory://", scope="acme")
        held = await gate.call("other", _done)
        assert held.value == "done"
        waiting: Any = gate._waiters.pause(b"\x07" * 32, 60)
        task = asyncio.ensure_future(waiting)
        await around(1)
        was = gate._waiters.has_waiters(b"\x07" * 32)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return was, gate._waiters.has_waiters(b"\x07" * 32)

    assert asyncio.run(main()) == (True, False)


async def _done() -> str:
    return "done"


class TestTheJournal:
    """A block that is thrown away is noted as one that was killed: without an end."""

    @pytest.mark.fault("a-finaliser-writes-to-the-journal")
    def test_nothing_is_written_while_a_generator_is_closed(self, tmp_path: Any) -> None:
        """
        The journal's database has locks of its own.
        """
        from onceward.journal import Journal

        with Journal(f"sqlite:///{tmp_path}/journal.db", scope="acme", worker="w") as journal:
            written: list[Any] = []
            write = journal._write
            journal._write = lambda notes: (written.append(notes), write(notes))  # type: ignore[method-assign, assignment, return-value]

            def work() -> Iterator[None]:
                with journal.run("nightly"):
                    yield

            thrown = work()
            next(thrown)
            before = len(written)
            thrown.close()

            assert (before, len(written)) == (1, 1)
