"""The renewer only keeps books: nothing it does reaches an operation, and nothing ends it for good."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any

import pytest

from onceward import AsyncGate, Gate, StoreUnavailable
from onceward.gate import lease_renewer, leases
from onceward.testing.clock import StillEnvironment


class TestTheSchedule:
    """Both colours try at every look, from a third of the lease on, until a renewal has landed."""

    @pytest.mark.fault("an-awaiting-renewal-tries-half-as-often")
    def test_while_the_store_is_away_every_look_is_a_try(self, world: Any) -> None:
        """
        A lease of 3 s, a look every half second, the store back after 2.2 s: renewed at 2.5, in either colour.
        """
        gate, store = world.faulty(lease=3)
        tries: list[float] = []

        def away(number: int, what: str) -> None:
            if what == "renew":
                tries.append(world.env.monotonic() - began)
                if tries[-1] < 2.2:
                    raise StoreUnavailable

        began = world.env.monotonic()
        store.before = away

        def slow(operation: Any) -> float:
            for _ in range(5):
                world.env.advance(0.5)
                look(gate)
            return float(gate.get("k").lease_seconds_left)

        assert gate.run("k", slow) == 3
        assert tries == [1.0, 1.5, 2.0, 2.5]


def look(driven: Any) -> None:
    """One look of the renewer, as its thread or its timer takes it; what it begins is brought to its end."""
    renewer = driven.gate._renewer
    if not driven.world.awaits:
        renewer.sweep()
        return

    async def once(states: list[Any]) -> None:
        for state in states:
            # As in its own loop: the timer is replaced, and the tasks are awaited.
            state.timer, state.loop = None, asyncio.get_running_loop()
            renewer._look(state)
            state.timer.cancel()
            await asyncio.gather(*state.tasks)

    own = [(state, state.loop, state.timer) for state in renewer._loops.values()]
    driven.world.do(once([state for state, _, _ in own]))
    for state, loop, timer in own:
        state.loop, state.timer = loop, timer


class TestWhatGoesWrong:
    """It is logged, and the next look finds everything as it should be."""

    @pytest.mark.parametrize(
        "error", [OSError("no route"), KeyError("bug"), StoreUnavailable()], ids=lambda e: type(e).__name__
    )
    @pytest.mark.fault("an-unknown-error-ends-the-renewer")
    def test_an_error_of_a_store_does_not_keep_the_others_from_being_renewed(
        self, world: Any, error: Exception, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        Ours or not: the operation goes on, and is renewed at the next look.
        """
        gate, store = world.faulty(lease=60)
        store.fail("renew", 1, error=error)
        left: list[float] = []

        def slow(operation: Any) -> bool:
            for _ in range(2):
                world.env.advance(20)
                assert world.hear(lambda: raised(lambda: look(gate))) is None
                left.append(gate.get("k").lease_seconds_left)
            return bool(operation.lost)

        assert gate.run("k", slow) is False
        assert left == [40, 60]
        logged = [record for record in caplog.records if record.name == "onceward" and record.exc_info]
        assert bool(logged) is not isinstance(error, StoreUnavailable)

    @pytest.mark.fault("the-renewers-thread-ends-for-good")
    def test_the_thread_outlives_a_look_that_failed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Even if the whole look raises, and even what is no Exception: the next one takes place.
        """
        looks, again = [], threading.Event()

        def sweep(self: Any) -> None:
            looks.append(1)
            if len(looks) < 3:
                raise SystemExit
            again.set()

        monkeypatch.setattr(lease_renewer.LeaseRenewer, "sweep", sweep)
        with Gate("memory://", scope="acme", lease=0.06) as gate:
            assert gate.run("k", lambda: again.wait(20)) is True

    def test_a_thread_that_cannot_be_started_does_not_fail_the_operation(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        It runs without being renewed, and the next one tries to start it again.
        """
        start, refused = threading.Thread.start, [True]

        def cannot(self: threading.Thread) -> None:
            if self.name == "onceward-renewer" and refused:
                refused.pop()
                raise RuntimeError("can't start new thread")
            start(self)

        monkeypatch.setattr(threading.Thread, "start", cannot)
        with Gate("memory://", scope="acme") as gate:
            assert gate.run("k", lambda: "done") == "done"
            assert gate._renewer._thread is None
            assert gate.run("k2", lambda: "done") == "done"
            assert gate._renewer._thread is not None

        assert "no thread could be started" in caplog.text

    def test_a_thread_that_ended_is_started_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Whatever ended it: the next call that would need it has one.
        """
        with Gate("memory://", scope="acme", lease=0.3) as gate:
            monkeypatch.setattr(lease_renewer, "_keep_sweeping", lambda *_: None)
            gate.run("k", lambda: 1)
            assert gate._renewer._thread is not None
            gate._renewer._thread.join()
            monkeypatch.undo()
            renewed = threading.Event()
            gate.listen(lambda event: renewed.set() if event.type.value == "renewed" else None)

            assert gate.run("k2", lambda: renewed.wait(20), lease=0.2) is True


def raised(call: Any) -> Any:
    """What it raised, or None."""
    try:
        call()
    except Exception as error:
        return error
    return None


class Counting(threading.Event):
    """An event that counts how often somebody began to wait for it, and for how long."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []
        self.idle = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        if timeout is None or timeout >= lease_renewer.IDLE_SECONDS:
            self.idle.set()
        return super().wait(timeout)


class TestRest:
    """When nothing runs, nothing looks."""

    @pytest.mark.fault("an-idle-renewer-spins")
    def test_after_a_tiny_lease_the_thread_rests(self) -> None:
        """
        It looks while the operation runs, and then not once more until the next operation.
        """
        renewer = lease_renewer.LeaseRenewer(StillEnvironment(), _unused)
        wake = renewer._wake = Counting()
        watch_nothing(renewer, 0.001)

        assert renewer._seconds_to_next_check() == lease_renewer.IDLE_SECONDS
        assert renewer._ends_if_idle()
        assert wake.waits == []

    @pytest.mark.fault("every-short-operation-wakes-the-renewer")
    def test_short_operations_do_not_wake_it_one_by_one(self) -> None:
        """
        Woken for one that has ended meanwhile, it looks once more before it rests; those that follow find it awake.
        """
        renewer = lease_renewer.LeaseRenewer(StillEnvironment(), _unused)
        watch_nothing(renewer, 60)
        renewer._leases.shortest = 60  # As the one left it that woke the thread.
        pause = renewer._seconds_to_next_check(woken=True)

        assert pause == 60 / leases.CHECKS_PER_LEASE
        assert renewer._leases.shortest == 60  # Nobody with this lease, or a longer one, wakes it.
        assert renewer._seconds_to_next_check() == lease_renewer.IDLE_SECONDS

    def test_the_thread_of_a_gate_rests_and_wakes_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Seen on the thread itself: after the tiny lease it waits once, and long; the next operation is renewed.
        """
        counting = SimpleNamespace(Event=Counting, Thread=threading.Thread, Lock=threading.Lock)
        monkeypatch.setattr(lease_renewer, "threading", counting)
        with Gate("memory://", scope="acme", lease=0.3) as gate:
            gate.run("k", lambda: 1, lease=0.001)
            wake: Any = gate._renewer._wake
            assert wake.idle.wait(20)
            after = len(wake.waits)
            renewed = threading.Event()
            gate.listen(lambda event: renewed.set() if event.type.value == "renewed" else None)
            assert gate.run("k2", lambda: renewed.wait(20)) is True

        assert wake.waits[after - 1] == lease_renewer.IDLE_SECONDS
        assert wake.waits[after] == pytest.approx(0.3 / leases.CHECKS_PER_LEASE)

    def test_whoever_comes_while_the_thread_lies_down_wakes_it(self) -> None:
        """
        Between the look at the empty books and the rest nothing is missed: the lease is endless meanwhile.
        """
        renewer = lease_renewer.LeaseRenewer(StillEnvironment(), _unused)
        watch_nothing(renewer, 30.0)
        renewer._seconds_to_next_check()

        assert renewer._leases.shortest == float("inf")

    def test_a_thread_that_went_home_is_not_missed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        After ten idle seconds (here: none) it ends; a later operation has another one.
        """
        monkeypatch.setattr(lease_renewer, "IDLE_SECONDS", 0.0)
        with Gate("memory://", scope="acme", lease=0.3) as gate:
            gate.run("k", lambda: 1)
            while (thread := gate._renewer._thread) is not None:
                thread.join(0.01)
            renewed = threading.Event()
            gate.listen(lambda event: renewed.set() if event.type.value == "renewed" else None)

            assert gate.run("k2", lambda: renewed.wait(20)) is True


def _unused(ask: Any, flow: Any) -> Any:
    raise AssertionError("nothing is renewed here")


def watch_nothing(renewer: lease_renewer.LeaseRenewer, lease: float) -> None:
    """As after an operation with this lease that has begun and ended, its thread being somewhere else."""
    renewer._pid = os.getpid()
    renewer._leases.shortest = lease
    renewer._thread = threading.current_thread()


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Crowded(dict[Any, Any]):
    """The books of all loops, as whoever goes through them may find them: a new loop comes in the middle."""

    def values(self) -> Any:
        for one in super().values():
            yield one
            self[object()] = one

    def items(self) -> Any:
        for one in super().items():
            yield one
            self[object()] = one[1]


@pytest.mark.fault("loops-share-the-books")
def test_a_loop_that_comes_meanwhile_fails_nobody() -> None:
    """
    Each operation is in the books of its own loop, and its end goes through no others.
    """
    gate = AsyncGate("memory://", scope="acme")
    gate._renewer._loops = Crowded()

    async def heard() -> Any:
        try:
            return await gate.run("k", _done)
        except RuntimeError as error:
            return error

    assert asyncio.run(heard()) == "done"
    assert gate._renewer._loop_of == {}


@pytest.mark.slow
@pytest.mark.usefixtures("switching")
def test_one_gate_in_many_event_loops_fails_nobody() -> None:
    """
    32 threads, each with loops of its own that come and go: everybody gets the answer, and nothing is in doubt.
    """
    gate = AsyncGate("memory://", scope="acme")
    heard: list[Any] = []

    async def calls(number: int, loop: int) -> None:
        for call in range(10):

            async def body(value: str = f"{number}/{loop}/{call}") -> str:
                await asyncio.sleep(0)
                return value

            try:
                heard.append(await gate.run(f"k:{number}:{loop}:{call}", body))
            except BaseException as error:
                heard.append(error)

    def thread(number: int) -> None:
        for loop in range(4):
            asyncio.run(calls(number, loop))

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(thread, range(32)))

    assert [one for one in heard if not isinstance(one, str)] == []
    assert len(set(heard)) == 32 * 4 * 10
    assert asyncio.run(_doubts(gate)) == ()


async def _doubts(gate: AsyncGate) -> Any:
    return await gate.records.in_doubt()


def test_the_books_of_closed_loops_are_put_away() -> None:
    """
    A hundred loops that have ended leave at most one behind.
    """
    gate = AsyncGate("memory://", scope="acme")

    async def call(number: int) -> None:
        await gate.run(f"k:{number}", _done)

    for number in range(100):
        asyncio.run(call(number))

    assert len(gate._renewer._loops) == 1
    assert gate._renewer._loop_of == {}


async def _done() -> str:
    return "done"


@pytest.mark.fault("a-closed-awaiting-gate-goes-on-renewing")
def test_a_closed_gate_renews_no_more(world: Any) -> None:
    """
    Whoever looks finds that it is closed, and leaves what is due.
    """
    gate, store = world.faulty(lease=60)
    copy_context().run(gate.hold, "k")  # It is never ended, and must not be what runs in the test's.
    gate.close()
    world.env.advance(30)
    renewer = gate.gate._renewer

    async def looked() -> int:
        [state] = renewer._loops.values()
        renewer._look(state)
        return len(state.tasks)

    begun = world.do(looked()) if world.awaits else renewer._seconds_to_next_check() or 0

    assert (begun, store.calls.count("renew")) == (0, 0)
