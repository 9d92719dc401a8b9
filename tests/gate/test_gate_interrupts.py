"""Cancelled, interrupted, closed: at every place where that can happen."""

from __future__ import annotations

import asyncio
import gc
import inspect
from dataclasses import replace
from typing import Any

import pytest

from onceward import AsyncGate, ConfigurationError, InDoubt, OncewardError


class TestInterruptsOfTheFunction:
    """What ends a process ends an operation, too: released before the effect, in doubt from there on."""

    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
    @pytest.mark.parametrize("where", ["before", "inside", "after", "unmarked"])
    def test_the_record_is_honest_and_the_interrupt_goes_on(
        self, world: Any, interrupt: type[BaseException], where: str
    ) -> None:
        """
        Before a marked effect: released. Inside, after, or not marked: in doubt. Never swallowed.
        """
        gate, charge = world.gate(), world.Effect()

        def marked(operation: Any) -> None:
            if where == "before":
                raise interrupt
            with operation.effect():
                charge()
                if where == "inside":
                    raise interrupt
            raise interrupt

        def unmarked() -> None:
            charge()
            raise interrupt

        with pytest.raises(interrupt):
            gate.run("charge:1", unmarked if where == "unmarked" else marked)

        # For an awaiting gate GeneratorExit means that it is being closed: the last write is sent and not waited for.
        while (state := gate.get("charge:1").state) == "claimed":
            world.do(asyncio.sleep(0.001))

        assert ("released" if where == "before" else "in_doubt") == state
        assert charge.count <= 1

    def test_stop_iteration_is_a_failure_like_any_other(self, world: Any) -> None:
        """
        It does not pose as the end of our own flow: nothing is returned, and the record is in doubt.
        """
        gate, charge = world.gate(), world.Effect()

        def pay() -> Any:
            charge()
            return next(iter(()))

        with pytest.raises((StopIteration, RuntimeError)):
            gate.run("charge:1", pay)
        with pytest.raises(InDoubt):
            gate.run("charge:1", pay)

        assert charge.count == 1

    def test_an_exception_that_cannot_be_written_down_leaves_an_honest_record(self, world: Any) -> None:
        """
        Its text raises, and so does adding a note to it; it is raised all the same.
        """

        class Unspeakable(Exception):
            def __str__(self) -> str:
                raise KeyError("no text")

            def add_note(self, note: str) -> None:
                raise KeyError("no notes")

            __repr__ = __str__

        gate, error = world.gate(), Unspeakable()
        try:
            gate.run("charge:1", world.Effect(error))
        except Unspeakable as raised:
            assert raised is error

        with pytest.raises(InDoubt, match="Unspeakable"):
            gate.run("charge:1", world.Effect())


class TestSomethingToAwaitUnderABlockingGate:
    """Nobody there awaits: what was not begun is no result, and what was marked has run."""

    def test_an_async_function_in_disguise_is_refused_and_free_again(self, threads: Any) -> None:
        """
        Work that was only promised did not run, and is not recorded as if it had.
        """
        gate, charge = threads.gate(), threads.Effect()

        async def pay() -> Any:
            return charge()

        with pytest.raises(ConfigurationError, match="AsyncGate"):
            gate.run("charge:1", lambda: pay())

        assert charge.count == 0
        assert gate.get("charge:1").state == "released"

    def test_a_function_that_did_something_before_it_returned_a_coroutine_has_run(self, threads: Any) -> None:
        """
        charge(); return notify() with an async notify: the charge took place.
        """
        gate, charge = threads.gate(), threads.Effect()

        async def notify() -> None:
            raise AssertionError("never awaited")

        def pay(operation: Any) -> Any:
            with operation.effect():
                charge()
            return notify()

        with pytest.raises(ConfigurationError, match="AsyncGate"):
            gate.run("charge:1", pay)

        assert gate.get("charge:1").state == "in_doubt"


class Cancelled:
    """Awaits something, and has its task cancelled when that waits for the n-th time (0: before it begins)."""

    def __init__(self, work: Any, at: int) -> None:
        self._work = work
        self._at = at
        self.struck = at == 0

    def __await__(self) -> Any:
        inner, waits, cancel = self._work.__await__(), 0, asyncio.current_task().cancel  # type: ignore[union-attr]
        step, argument = inner.send, None
        while True:
            try:
                waiting_for = step(argument)
            except StopIteration as stop:
                return stop.value
            waits += 1
            if waits == self._at:
                self.struck = True
                asyncio.get_running_loop().call_soon(cancel)
            try:
                step, argument = inner.send, (yield waiting_for)
            except BaseException as error:
                step, argument = inner.throw, error


class ClosedWhen:
    """Awaits something until `signs` has something in it, and closes it then, while it waits."""

    def __init__(self, signs: list[Any], work: Any) -> None:
        self._signs = signs
        self._work = work

    def __await__(self) -> Any:
        inner = self._work.__await__()
        while True:
            waiting_for = inner.send(None)
            if self._signs:
                self._work.close()
                return
            yield waiting_for


async def ended(work: Any) -> Any:
    """What came of it."""
    try:
        return await work
    except asyncio.CancelledError:
        return "cancelled"
    except OncewardError as error:
        return error


class Slow:
    """A store whose every call takes a few steps of the loop, like a real one's."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.capabilities = replace(store.capabilities, peek=None)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.ismethod(method):
            return method

        async def slowly(*arguments: Any) -> Any:
            await asyncio.sleep(0)
            answer = await method(*arguments)
            await asyncio.sleep(0)
            return answer

        return slowly


def test_cancelled_wherever_it_waits_the_effect_takes_place_once_at_most(tasks: Any) -> None:
    """
    The first time it waits for anything, the second, ... to the last: before the effect the key is free at once, from
    there on it is settled or in doubt; the next caller gets the answer, runs it for the first time, or is told.
    """
    seen = set()

    async def cancelled_at(count: int) -> bool:
        gate = AsyncGate(Slow(tasks.store()), scope="acme", wait=5)
        charge, key = tasks.Effect("ch_1"), f"charge:{count}"

        async def pay(operation: Any) -> Any:
            await asyncio.sleep(0)
            with operation.effect():
                await asyncio.sleep(0)
                charge()
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            return "ch_1"

        work = Cancelled(gate.run(key, pay), count)
        task = asyncio.ensure_future(work)
        if count == 0:
            task.cancel()
            work._work.close()
        first = await ended(task)
        record = await gate.records.get(key)
        state, happened = record and record.state, charge.count
        retry = await ended(gate.run(key, pay))

        seen.add(state)
        assert first == ("cancelled" if work.struck else "ch_1")
        assert state in (None, "released", "in_doubt", "settled"), "a claim was left behind that nobody holds"
        assert charge.count <= 1
        if state in (None, "released"):
            assert (happened, retry) == (0, "ch_1")
        elif state == "settled":
            assert (happened, retry) == (1, "ch_1")
        else:
            assert isinstance(retry, InDoubt)
        await gate.close()
        return work.struck

    async def main() -> None:
        count = 0
        while await cancelled_at(count):
            count += 1

    asyncio.run(main())

    assert seen == {None, "released", "in_doubt", "settled"}


def test_a_cancelled_waiter_takes_nothing_along(tasks: Any) -> None:
    """
    The holder goes on, and its answer is there for whoever asks.
    """

    async def main() -> tuple[Any, Any]:
        async with AsyncGate(tasks.store(), scope="acme") as gate:
            finish, waiting = asyncio.Event(), asyncio.Event()
            gate.listen(lambda event: waiting.set() if event.type.value == "waiting" else None)

            async def pay() -> str:
                await finish.wait()
                return "ch_1"

            holder = asyncio.ensure_future(gate.run("charge:1", pay))
            while not (await gate.records.list()):
                await asyncio.sleep(0)
            waiter = asyncio.ensure_future(gate.run("charge:1", pay))
            await waiting.wait()
            waiter.cancel()
            heard = await ended(waiter)
            finish.set()
            return heard, await holder

    assert asyncio.run(main()) == ("cancelled", "ch_1")


def test_a_deadline_around_a_call_leaves_an_honest_record(tasks: Any) -> None:
    """
    `asyncio.timeout` is a cancellation: the caller gets TimeoutError, the record is in doubt.
    """

    async def main() -> str:
        async with AsyncGate(tasks.store(), scope="acme") as gate:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(None) as deadline:

                    async def slow() -> None:
                        deadline.reschedule(asyncio.get_running_loop().time())
                        await asyncio.sleep(30)

                    await gate.run("charge:1", slow)
            return (await gate.records.get("charge:1")).state

    assert asyncio.run(main()) == "in_doubt"


class TestClosing:
    """A coroutine that is closed cannot await any more; what it can still say is said."""

    def closed(self, tasks: Any, *, marked: bool) -> tuple[str, int]:
        """The record's state, and how often the effect took place, after a coroutine was closed in its function."""
        charge, began = tasks.Effect(), []

        async def with_a_mark(operation: Any) -> None:
            began.append(True)
            await asyncio.sleep(3_600)
            with operation.effect():
                charge()

        async def without_one() -> None:
            charge()
            began.append(True)
            await asyncio.sleep(3_600)

        async def main() -> str:
            async with AsyncGate(tasks.store(), scope="acme") as gate:
                await ClosedWhen(began, gate.run("charge:1", with_a_mark if marked else without_one))
                # The last write was sent, and nobody could wait for it.
                while (state := (await gate.records.get("charge:1")).state) == "claimed":
                    await asyncio.sleep(0.001)
                return state

        return asyncio.run(asyncio.wait_for(main(), 20)), charge.count

    @pytest.mark.parametrize("marked", [True, False], ids=["before-the-effect", "unmarked"])
    def test_inside_the_function(self, tasks: Any, marked: bool) -> None:
        """
        Before a marked effect it is released; otherwise it is in doubt. No claim is left behind.
        """
        assert (("released", 0) if marked else ("in_doubt", 1)) == self.closed(tasks, marked=marked)

    def test_before_it_was_ever_started(self, tasks: Any) -> None:
        """
        Nothing was asked of anybody.
        """
        charge = tasks.Effect()

        async def main() -> Any:
            async with AsyncGate(tasks.store(), scope="acme") as gate:
                gate.run("charge:1", charge).close()
                return await gate.records.get("charge:1")

        assert (asyncio.run(main()), charge.count) == (None, 0)

    def test_a_loop_that_is_closed_in_the_middle_leaves_a_claim_that_lapses(self, world: Any) -> None:
        """
        Like a crash: in flight until the lease is over, then in doubt; and the effect took place once.
        """
        if not world.awaits:
            pytest.skip("only an awaiting gate has an event loop")
        gate, charge = world.gate(), world.Effect()

        async def pay() -> None:
            charge()
            await asyncio.sleep(3_600)

        loop = asyncio.new_event_loop()
        task = loop.create_task(gate.gate.run("charge:1", pay))
        loop.set_exception_handler(lambda *_: None)  # It says that the task was destroyed while pending: that is meant.
        while not charge.count:
            loop.run_until_complete(asyncio.sleep(0.001))
        loop.close()
        del task
        gc.collect()
        world.env.advance(61)

        assert world.hear(lambda: world.gate().run("charge:1", charge)).code == "in_doubt"
        assert charge.count == 1
