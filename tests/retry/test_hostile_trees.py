"""Frames that outlive each other, switches that overlap, processes that fork: what is shared stays what it is."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from retry_support import REFUSED, UNKNOWN, Script, Sleepless

from colours import Colour
from onceward import Found, Retry, deadline
from onceward.errors import StoreFull
from onceward.retry import Breaker, Budget, CircuitState, time_left
from onceward.retry.call_context import CURRENT
from onceward.stores.memory import AsyncMemoryStore, MemoryStore
from onceward.testing import no_sleeping, retries_off


def memory(colour: Colour, still: Sleepless) -> Any:
    """A store of this colour."""
    return colour.pick(MemoryStore, AsyncMemoryStore)(environment=still)  # type: ignore[call-arg]


class TestFrames:
    """A task sees what is around it, as long as that is still going on."""

    def test_a_task_that_outlives_an_inner_deadline_still_has_the_outer_one(self, still: Sleepless) -> None:
        """
        The inner block is over, the outer one is not: its deadline holds, also for a block and a policy inside.
        """

        async def main() -> list[float | None]:
            go, seen = asyncio.Event(), []

            async def later() -> None:
                await go.wait()
                seen.append(time_left(environment=still))
                with deadline(50, environment=still):
                    seen.append(time_left(environment=still))
                Retry(environment=still).call(lambda: seen.append(time_left(environment=still)))

            with deadline(5, environment=still):
                with deadline(2, environment=still):
                    task = asyncio.create_task(later())
                go.set()
                await task
            return seen

        assert asyncio.run(main()) == [5, 5, 5]

    def test_a_task_that_outlives_an_inner_call_still_has_the_outer_owner(self, still: Sleepless) -> None:
        """
        The inner call is over, the outer one is not: whoever retries in the task, it is not the task.
        """
        script, policy = Script(REFUSED), Retry(environment=still)

        async def later(go: asyncio.Event) -> None:
            await go.wait()
            with deadline(50, environment=still), pytest.raises(REFUSED):
                await policy.acall(failing)

        async def failing() -> None:
            script()

        async def start(go: asyncio.Event) -> asyncio.Task[None]:
            return asyncio.create_task(later(go))

        async def outer() -> None:
            go = asyncio.Event()
            task = await policy.acall(start, go)
            go.set()
            await task

        asyncio.run(policy.acall(outer))
        assert script.calls == 1

    def test_tasks_that_start_each_other_for_ever_keep_nothing(self, still: Sleepless) -> None:
        """
        A chain of calls, each started in the one before, which is then over: the frames before it are let go of.
        """

        async def link(left: int) -> int:
            if not left:
                depth, frame = 0, CURRENT.get()
                while frame is not None:
                    depth, frame = depth + 1, frame.outer
                return depth
            return await (await Retry(environment=still).acall(start, left))

        async def start(left: int) -> asyncio.Task[int]:
            return asyncio.create_task(link(left - 1))

        assert asyncio.run(link(50)) <= 3


class TestSwitches:
    """For tests: they overlap, nest, and reach every thread."""

    def test_they_nest_and_the_last_one_out_turns_them_back(self, still: Sleepless) -> None:
        """
        Two blocks of each kind, one inside the other: off until the outer one ends.
        """
        policy = Retry(environment=still)

        def calls() -> int:
            script = Script(REFUSED)
            with pytest.raises(REFUSED):
                policy.call(script)
            return script.calls

        with retries_off():
            with retries_off(), no_sleeping():
                assert calls() == 1
            assert calls() == 1
        with no_sleeping():
            assert (calls(), still.slept) == (3, [])
        assert calls() == 3
        assert len(still.slept) == 2

    def test_threads_that_turn_them_at_once_leave_them_as_they_were(self, still: Sleepless) -> None:
        """
        Eight threads, in and out, in any order.
        """
        together = threading.Barrier(8)

        def turn() -> None:
            together.wait()
            for _ in range(200):
                with retries_off(), no_sleeping():
                    pass

        threads = [threading.Thread(target=turn) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        script = Script(REFUSED)
        with pytest.raises(REFUSED):
            Retry(environment=still).call(script)
        assert (script.calls, len(still.slept)) == (3, 2)


class TestLoops:
    """The same flow, resumed from outside."""

    def test_a_probe_that_finds_the_effect_ends_a_loop_in_both_colours(self, still: Sleepless) -> None:
        """
        Nothing is left to do, and nothing is raised.
        """
        policy = Retry(probe=lambda attempt: Found("ch_1"), environment=still)
        seen: list[int] = []

        async def awaiting() -> None:
            async for attempt in policy.attempts():
                with attempt:
                    seen.append(attempt.number)
                    raise UNKNOWN

        for attempt in policy.attempts():
            with attempt:
                seen.append(attempt.number)
                raise UNKNOWN
        asyncio.run(awaiting())
        assert seen == [1, 1]


class TestManyAtOnce:
    """Threads, stores and processes."""

    def test_of_fifty_threads_at_a_half_open_circuit_one_probes(self, still: Sleepless) -> None:
        """
        The others are refused, and none waits for the probe.
        """
        breaker = Breaker("p", environment=still)
        breaker.trip()
        still.advance(30)
        together, probing, others = threading.Barrier(50), threading.Event(), threading.Semaphore(0)
        called: list[int] = []

        def slow() -> None:
            called.append(1)
            probing.wait(30)

        def knock() -> None:
            together.wait()
            try:
                Retry(breaker=breaker, environment=still).call(slow)
            except Exception:
                others.release()

        threads = [threading.Thread(target=knock) for _ in range(50)]
        for thread in threads:
            thread.start()
        for _ in range(49):
            assert others.acquire(timeout=30)
        probing.set()
        for thread in threads:
            thread.join()
        assert (len(called), breaker.state) == (1, CircuitState.CLOSED)

    def test_a_store_that_is_full_leaves_the_local_rules(self, colour: Colour, still: Sleepless) -> None:
        """
        Calls go out and are retried by this process's own count; nobody hears of the store.
        """

        store, full = memory(colour, still), []
        put = store.put

        def filling(write: Any, expect: bytes | None) -> Any:
            if full:
                raise StoreFull
            return put(write, expect)

        store.put = filling
        budget = Budget.shared(store, "p", burst=1, environment=still)
        breaker = Breaker.shared(store, "p", threshold=2, environment=still)
        policy = Retry(budget=budget, breaker=breaker, environment=still)
        assert colour.ask(budget, "connect")  # Before that a process has no burst of its own.
        full.append(True)

        assert colour.call(policy, Script(REFUSED, "done")) == "done"
        assert (budget.granted, budget.refused) == (1, 0)
        with pytest.raises(Exception):  # noqa: B017 - the budget is spent now
            colour.call(policy, Script(REFUSED))
        assert (budget.granted, budget.refused) == (1, 1)

    def test_two_kinds_of_rules_under_one_name_are_two_budgets(self, colour: Colour, still: Sleepless) -> None:
        """
        One counts tokens, the other a window. Neither fills the other up: each has what it has.
        """
        store = memory(colour, still)
        window = Budget.shared(store, "p", rule=Budget.finagle(per_second=1, ttl=2).rule, environment=still)
        tokens = Budget.shared(store, "p", burst=2, environment=still)

        granted = [tuple(colour.ask(one, "withdraw") is not None for one in (window, tokens)) for _ in range(6)]
        assert granted[:3] == [(True, True), (True, True), (False, False)]
        assert (window.granted, tokens.granted) == (2, 2)

    def test_two_bursts_under_one_name_are_one_budget_of_the_smaller(self, colour: Colour, still: Sleepless) -> None:
        """
        As while a new version is rolled out: what one takes the other does not have.
        """
        store = memory(colour, still)
        old = Budget.shared(store, "p", burst=9, environment=still)
        new = Budget.shared(store, "p", burst=3, environment=still)

        assert colour.ask(new, "withdraw") is not None
        assert [colour.ask(old, "withdraw") is not None for _ in range(3)] == [True, True, False]

    def test_a_fork_takes_a_shared_budget_along(self, colour: Colour, tmp_path: Path) -> None:
        """
        The child's courier is its own; parent and child have one budget between them, and other dice.
        """
        tests = str(Path(__file__).resolve().parents[1])
        command = [sys.executable, "-c", FORKING, tests, f"sqlite:///{tmp_path}/shared.db", colour.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

        assert (done.stderr, done.returncode) == ("", 0)
        granted = sorted(int(line.split()[0]) for line in done.stdout.splitlines())
        assert sum(granted) == 10
        assert len({line.split()[1] for line in done.stdout.splitlines()}) == 2


FORKING = """
import os, sys
sys.path.insert(0, sys.argv[1])
from colours import Colour
from onceward.runtime.environment import REAL
from onceward.retry import Budget
from onceward.stores import open_async_store, open_store

colour = Colour(sys.argv[3])
budget = Budget.shared(colour.pick(open_store, open_async_store)(sys.argv[2]), "server", patience=20)
first = colour.ask(budget, "withdraw") is not None
child = os.fork()
if not child:
    colour.forked()
granted = sum(colour.ask(budget, "withdraw") is not None for _ in range(5))
if child:
    os.waitpid(child, 0)
    granted += sum(colour.ask(budget, "withdraw") is not None for _ in range(5)) + first
print(granted, REAL.chance(), flush=True)
os._exit(0)
"""
