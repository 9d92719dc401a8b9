"""A loop of attempts, an interrupted probe and a block do the same in both colours: nothing is lost in one of them."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from retry_support import REFUSED, Script, Sleepless

from colours import Colour
from onceward import CircuitOpen, Retry, deadline, stop_of
from onceward._core.stops import GivenUp, Stop, StopReason
from onceward.retry import Breaker
from onceward.stores.memory import AsyncMemoryStore, MemoryStore


class Letters:
    """Dead letters that are kept at once, or when they are awaited."""

    def __init__(self, *, awaits: bool) -> None:
        self.awaits = awaits
        self.kept: list[StopReason] = []

    def put(self, stop: Stop, call: GivenUp) -> object:
        if not self.awaits:
            return self.kept.append(stop.reason)

        async def keep() -> None:
            self.kept.append(stop.reason)

        return keep()


def opened(still: Sleepless, **options: Any) -> Breaker:
    breaker = Breaker("payments", environment=still, **options)
    breaker.trip()
    return breaker


@pytest.mark.fault("an-awaiting-loop-refuses-without-awaiting")
def test_an_awaiting_loop_that_is_refused_keeps_its_letter_and_awaits_its_hook(still: Sleepless) -> None:
    """
    An open circuit: the letter is kept and the hook has run to its end, as in an awaited call.
    """
    letters, told = Letters(awaits=True), []

    async def on_stop(stop: Stop) -> None:
        await asyncio.sleep(0)
        told.append(stop.reason)

    policy = Retry(breaker=opened(still), dead=letters, on_stop=on_stop, environment=still)

    async def main() -> None:
        async for attempt in policy.attempts():
            with attempt:
                pass

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A coroutine that nobody awaited, if this is broken.
        with pytest.raises(CircuitOpen):
            asyncio.run(main())

    assert (letters.kept, told) == ([StopReason.BREAKER], [StopReason.BREAKER])


def test_a_refused_loop_keeps_its_letter(colour: Colour, still: Sleepless) -> None:
    """
    In either colour, and letters that are awaited where the loop is; the body is never entered.
    """
    letters, script = Letters(awaits=colour.awaits), Script("done")
    with pytest.raises(CircuitOpen) as raised:
        colour.loop(Retry(breaker=opened(still), dead=letters, environment=still), script)
    stop = stop_of(raised.value)

    assert (letters.kept, script.calls) == ([StopReason.BREAKER], 0)
    assert stop is not None
    assert stop.attempts == 0


@pytest.mark.fault("a-refused-loop-asks-the-fallback-and-goes-on")
def test_a_loop_does_not_enter_its_body_because_there_is_a_fallback(colour: Colour, still: Sleepless) -> None:
    """
    A loop has no value to put the fallback's in the place of: it is refused, and the dependency is not called.
    """
    script = Script("done")
    with pytest.raises(CircuitOpen):
        colour.loop(Retry(breaker=opened(still, fallback=lambda _: "instead"), environment=still), script)

    assert script.calls == 0


@pytest.mark.fault("a-loop-without-time-takes-the-probe")
def test_a_loop_without_time_leaves_the_probe_to_others(colour: Colour, still: Sleepless) -> None:
    """
    The deadline is over: no probe's slot is taken, so the next caller may probe at once.
    """
    breaker = opened(still)
    still.advance(31)
    with deadline(1, environment=still):
        still.advance(2)
        with pytest.raises(Exception, match="leaves no time"):
            colour.loop(Retry(breaker=breaker, environment=still), Script("done"))

    assert breaker.retry_after() is None


def test_a_hook_that_is_awaited_says_so_where_nobody_awaits(still: Sleepless, caplog: Any) -> None:
    """
    A blocking call with an `async def` hook: a warning, not a coroutine that is thrown away in silence.
    """

    async def on_stop(stop: Stop) -> None:
        pass

    with pytest.raises(CircuitOpen):
        Retry(breaker=opened(still), on_stop=on_stop, environment=still).call(Script("done"))

    assert any("on_stop" in record.getMessage() for record in caplog.records)


class TestSharedProbes:
    """One probe for all processes: it comes back whatever becomes of the call that has it."""

    @staticmethod
    def pair(store: Any, still: Sleepless) -> tuple[Breaker, Breaker]:
        one, two = (Breaker.shared(store, "p", staleness=1e-9, patience=20, environment=still) for _ in range(2))
        return one, two

    @staticmethod
    async def open_both(one: Breaker, two: Breaker, still: Sleepless) -> None:
        async def refused() -> None:
            raise REFUSED

        for through in [one] * 5 + [two]:
            with pytest.raises(REFUSED):
                await through.acall(refused)
        still.advance(31)

    @pytest.mark.parametrize("through", ["policy", "call", "guard", "loop", "second attempt"])
    @pytest.mark.fault("a-cancelled-probe-keeps-its-slot")
    def test_a_cancelled_probe_is_free_at_once(self, through: str, still: Sleepless) -> None:
        """
        Its caller is cancelled: the next process may probe at once, and not when the probe has lapsed.
        """

        async def main() -> object:
            one, two = self.pair(AsyncMemoryStore(environment=still), still)
            await self.open_both(one, two, still)
            probing, policy = asyncio.Event(), Retry(breaker=one, environment=still)

            async def hang() -> None:
                probing.set()
                await asyncio.Event().wait()

            calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
                "policy": lambda: policy.acall(hang),
                "call": lambda: one.acall(hang),
                "guard": lambda: in_guard(one, hang),
                "loop": lambda: in_loop(policy, hang),
                "second attempt": lambda: after_a_failure(one, hang, still),
            }
            task = asyncio.create_task(calls[through]())
            await probing.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await two.aadmit()

        assert isinstance(asyncio.run(main()), int)

    @staticmethod
    def opened_for_both(colour: Colour, still: Sleepless) -> tuple[Breaker, Breaker]:
        """Two processes of this colour that know that the circuit is open, and that a probe is due."""
        store: Any = colour.pick(MemoryStore, AsyncMemoryStore)(environment=still)  # type: ignore[call-arg]
        one, two = TestSharedProbes.pair(store, still)
        for through in [one] * 5 + [two]:
            with pytest.raises(REFUSED):
                colour.call(through, Script(REFUSED))
        still.advance(31)
        return one, two

    @pytest.mark.parametrize("through", ["policy", "call", "guard", "loop", "second attempt"])
    def test_a_probe_that_is_stopped_from_outside_is_free_at_once(
        self, colour: Colour, through: str, still: Sleepless
    ) -> None:
        """
        An interrupt strikes the call, or a cancellation: the next process may probe at once.
        """
        one, two = self.opened_for_both(colour, still)
        policy, stopped = Retry(breaker=one, environment=still), Script(colour.stop)
        patient = Retry(
            breaker=one, base=40, cap=40, elapsed=600, jitter="none", jitter_reason="one caller", environment=still
        )
        ways: dict[str, Callable[[], Any]] = {
            "policy": lambda: colour.call(policy, stopped),
            "call": lambda: colour.call(one, stopped),
            "guard": lambda: colour.guard(one, stopped),
            "loop": lambda: colour.loop(policy, stopped),
            "second attempt": lambda: colour.call(patient, Script(REFUSED, colour.stop)),
        }
        with pytest.raises(colour.stop):
            ways[through]()
        colour.ask(one, "caught_up")

        assert isinstance(colour.ask(two, "admit"), int)

    @pytest.mark.parametrize("once", [False, True], ids=["goes on", "breaks off"])
    @pytest.mark.fault("a-blocks-end-tells-an-awaiting-store-nothing")
    def test_a_probe_that_succeeds_in_a_loop_closes_it_for_all(
        self, colour: Colour, once: bool, still: Sleepless
    ) -> None:
        """
        A block's end cannot await, and the store hears of it all the same.
        """
        one, two = self.opened_for_both(colour, still)
        colour.loop(Retry(breaker=one, environment=still), Script("done"), once=once)
        colour.ask(one, "caught_up")  # Whoever leaves the loop by `break` has not waited for the store.
        admitted = colour.ask(two, "admit")

        assert isinstance(admitted, int)
        assert two.state == "closed"


async def in_guard(breaker: Breaker, body: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    async with breaker.guard():
        await body()


async def in_loop(policy: Retry, body: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    async for attempt in policy.attempts():
        with attempt:
            await body()


async def after_a_failure(breaker: Breaker, body: Callable[[], Coroutine[Any, Any, Any]], still: Sleepless) -> None:
    """The probe fails, and the attempt after it, which is the next probe, hangs."""
    tries = []

    async def fail_first() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise REFUSED
        await body()

    policy = Retry(
        breaker=breaker, base=40, cap=40, elapsed=600, jitter="none", jitter_reason="one caller", environment=still
    )
    await policy.acall(fail_first)
