"""A purge runs after the response: nobody waits for it, closing lets it end, and where nobody is left it is made."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from typing import Any

import pytest

from onceward import AsyncGate, Gate
from onceward._core.store_protocols import PurgeResult
from onceward.errors import StoreUnavailable
from onceward.gate import purger
from onceward.gate.call_factory import PurgeSchedule
from onceward.stores.memory import AsyncMemoryStore, MemoryStore

RUNS = PurgeSchedule.PURGE_EVERY
PATIENCE = 60


class Slow(MemoryStore):
    """A store whose purges take until they are told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.purged: list[str] = []
        self.closed_after: int | None = None
        self.trouble: BaseException | None = None

    def purge(self, limit: int) -> Any:
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        if self.trouble is not None:
            raise self.trouble
        self.purged.append(threading.current_thread().name)
        return super().purge(limit)

    def close(self) -> None:
        self.closed_after = len(self.purged)
        super().close()


class AsyncSlow(AsyncMemoryStore):
    """The same for tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.purged = 0
        self.closed_after: int | None = None
        self.trouble: BaseException | None = None

    async def purge(self, limit: int) -> Any:
        self.begun.set()
        await self.go_on.wait()
        if self.trouble is not None:
            raise self.trouble
        self.purged += 1
        return await super().purge(limit)

    async def close(self) -> None:
        self.closed_after = self.purged
        await super().close()


def heard(gate: Gate, key: str) -> Any:
    """What a caller hears: the result, or the store's error if that gets through."""
    try:
        return gate.run(key, lambda: "done")
    except OSError as error:
        return error


async def done() -> str:
    """What an awaiting gate runs."""
    return "done"


IN_VAIN = PurgeResult(0, 0)


def runs_to_next(schedule: PurgeSchedule) -> int:
    """How many runs there are until a purge is due."""
    runs = 0
    while not schedule.is_due():
        schedule.left -= 1
        runs += 1
    return runs


class TestHowOften:
    """What finds nothing to do comes more and more seldom, and as soon as there is something, as often as before."""

    @pytest.mark.fault("purges-in-vain-come-as-often", "a-purge-that-found-something-is-followed-late")
    @pytest.mark.parametrize("found", [PurgeResult(1, 0), PurgeResult(0, 1)], ids=["forgotten", "shrunk"])
    def test_each_purge_in_vain_doubles_the_way_to_the_next(self, found: PurgeResult) -> None:
        """
        Up to a limit; and one deleted or shrunk row takes it back.
        """
        schedule = PurgeSchedule()
        ways = [runs_to_next(schedule)]
        for result in (*[IN_VAIN] * 6, found, found, IN_VAIN):
            schedule.found(result)
            ways.append(runs_to_next(schedule))

        assert ways == [10, 100, 200, 400, 800, 800, 800, 50, 50, 100]
        assert (PurgeSchedule.PURGE_EVERY, PurgeSchedule.PURGE_EVERY_MAX) == (50, 800)

    @pytest.mark.fault("purges-in-vain-come-as-often")
    @pytest.mark.parametrize("colour", ["blocking", "awaiting"])
    def test_a_gate_tells_its_schedule_what_a_purge_found(self, colour: str) -> None:
        """
        Nothing is due for a day: after 10 runs, and after 100 more.
        """

        def blocking() -> int:
            store = Slow()
            store.go_on.set()
            with Gate(store, scope="acme") as gate:
                for number in range(4 * RUNS):
                    gate.run(f"k:{number}", lambda: "done")
                    gate._purger.wait()
            return len(store.purged)

        async def awaiting() -> int:
            store = AsyncSlow()
            store.go_on.set()
            async with AsyncGate(store, scope="acme") as gate:
                for number in range(4 * RUNS):
                    await gate.run(f"k:{number}", done)
                    await gate._purger.wait()
            return store.purged

        assert (blocking() if colour == "blocking" else asyncio.run(awaiting())) == 2


class TestBlocking:
    """A thread of the gate's."""

    @pytest.mark.fault("a-purge-is-waited-for")
    def test_the_answer_comes_while_the_purge_is_under_way(self) -> None:
        """
        The purge blocks, and every call has its answer, also those that ask for another purge; closing waits for it.
        """
        store = Slow()
        gate = Gate(store, scope="acme")
        answers: list[Any] = []

        def work() -> None:
            answers.extend(gate.run(f"k:{number}", lambda: "done") for number in range(3 * RUNS))

        caller = threading.Thread(target=work)  # In a thread, so that a gate that waits fails the test and not its run.
        caller.start()
        begun = store.begun.wait(PATIENCE)
        caller.join(PATIENCE)
        was_open = (len(answers), list(store.purged))
        store.go_on.set()
        caller.join(PATIENCE)
        gate.close()

        assert begun
        assert was_open == (3 * RUNS, [])
        assert set(store.purged) == {"onceward-purger"}
        assert store.closed_after == len(store.purged) == 3  # As often as it was asked for.

    @pytest.mark.parametrize("trouble", [StoreUnavailable("away"), ValueError("odd"), SystemExit(1)])
    def test_a_purge_that_raises_is_logged_and_the_next_one_comes(
        self, trouble: BaseException, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        Neither an operation nor closing feels it. That the store is away is no news.
        """
        store = Slow()
        store.trouble = trouble
        store.go_on.set()
        with caplog.at_level(logging.ERROR, "onceward"), Gate(store, scope="acme") as gate:
            answers = {gate.run(f"k:{number}", lambda: "done") for number in range(RUNS)}
            while not store.begun.is_set():
                assert store.begun.wait(PATIENCE)
            store.begun.clear()
            answers |= {gate.run(f"l:{number}", lambda: "done") for number in range(RUNS)}
            came_again = store.begun.wait(PATIENCE)

        assert (answers, came_again) == ({"done"}, True)
        assert ("a purge failed" in caplog.text) == (not isinstance(trouble, StoreUnavailable))

    def test_a_gate_that_is_dropped_does_not_stay_because_of_its_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Nobody closed it: the thread holds it weakly, and ends.
        """
        import gc

        monkeypatch.setattr(purger, "IDLE_SECONDS", 0.01)
        store = Slow()
        store.go_on.set()
        gate = Gate(store, scope="acme")
        for number in range(RUNS):
            gate.run(f"k:{number}", lambda: "done")
        assert store.begun.wait(PATIENCE)
        thread, dropped = gate._purger._thread, weakref.ref(gate)
        del gate
        if thread is not None:
            thread.join(PATIENCE)
        gc.collect()

        assert dropped() is None
        assert thread is None or not thread.is_alive()

    @pytest.mark.fault("a-purge-fails-into-the-call")
    @pytest.mark.parametrize("trouble", [None, OSError("no purge today")], ids=["purges", "fails"])
    def test_without_a_thread_the_purge_is_made_within_the_call(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: Exception | None
    ) -> None:
        """
        A process that may start no more threads keeps its table in bounds all the same; and if the purge fails, the
        call does not.
        """

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        store = Slow()
        store.go_on.set()
        store.trouble = trouble
        gate = Gate(store, scope="acme")
        with monkeypatch.context() as patched:
            patched.setattr(gate._renewer, "watch", lambda *_: None)
            patched.setattr(threading.Thread, "start", refuse)
            answers = [heard(gate, f"k:{number}") for number in range(RUNS)]
        gate.close()

        assert answers == ["done"] * RUNS
        assert store.purged == [threading.current_thread().name] * (trouble is None)
        assert ("a purge failed" in caplog.text) is (trouble is not None)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
    def test_a_forked_child_purges_by_itself_and_closes(self) -> None:
        """
        The parent's thread is under way and holds what it holds; the child starts one of its own, and does not wait
        for one that is not there.
        """
        store = Slow()
        gate = Gate(store, scope="acme")
        for number in range(RUNS):
            gate.run(f"k:{number}", lambda: "done")
        assert store.begun.wait(PATIENCE)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                store.go_on.set()
                for number in range(2 * RUNS):
                    gate.run(f"c:{number}", lambda: "done")
                gate.close()
                status = 0 if store.purged else 2
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        store.go_on.set()
        gate.close()

        assert os.waitstatus_to_exitcode(ended) == 0


class TestAwaiting:
    """A task of the loop that asks."""

    @pytest.mark.fault("a-purge-is-waited-for-in-a-task")
    def test_the_answer_comes_while_the_purge_is_under_way(self) -> None:
        """
        As for threads: every call has its answer, and closing waits for the purges that were asked for.
        """

        async def work() -> tuple[int, int, AsyncSlow]:
            store = AsyncSlow()
            gate = AsyncGate(store, scope="acme")
            answered = 0

            async def calls() -> None:
                nonlocal answered
                for number in range(3 * RUNS):
                    await gate.run(f"k:{number}", done)
                    answered += 1

            caller = asyncio.create_task(calls())
            await asyncio.wait((caller,), timeout=PATIENCE)
            await store.begun.wait()
            before = answered, store.purged
            store.go_on.set()
            await caller
            await gate.close()
            return *before, store

        answered, before, store = asyncio.run(work())

        assert (answered, before) == (3 * RUNS, 0)
        assert (store.purged, store.closed_after) == (3, 3)

    def test_where_loops_end_first_the_next_purge_is_made_within_a_call(self) -> None:
        """
        A loop for every call: what was asked for is cut short with its loop, and the next one is waited for.
        """
        purges: list[int] = []

        class Counting(AsyncMemoryStore):
            async def purge(self, limit: int) -> Any:
                await asyncio.sleep(0)
                purges.append(limit)
                return await super().purge(limit)

        store = Counting()
        gate = AsyncGate(store, scope="acme")
        for number in range(4 * RUNS):
            asyncio.run(gate.run(f"k:{number}", done))

        assert len(purges) >= 1

    @pytest.mark.fault("the-purge-after-a-run-fails-it")
    def test_a_purge_that_raises_is_not_felt(self, caplog: pytest.LogCaptureFixture) -> None:
        """
        It is logged, and closing goes on.
        """

        async def work() -> set[str]:
            store = AsyncSlow()
            store.trouble = ValueError("odd")
            store.go_on.set()
            async with AsyncGate(store, scope="acme") as gate:
                return {await gate.run(f"k:{number}", done) for number in range(RUNS)}

        with caplog.at_level(logging.ERROR, "onceward"):
            answers = asyncio.run(work())

        logged = [one.getMessage() for one in caplog.records if one.name == "onceward"]
        assert (answers, logged) == ({"done"}, ["onceward: a purge failed; the operation is not affected"])
