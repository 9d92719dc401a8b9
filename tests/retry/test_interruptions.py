"""Interrupts and cancellations at every step: whoever is stopped takes nothing along that belongs to all."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Generator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from retry_support import REFUSED, Script, Sleepless

from colours import Colour
from onceward import Retry, stop_of
from onceward._core.flow import Raised
from onceward.retry import Breaker, Budget, CircuitState, StopReason, time_left
from onceward.retry.resilience import OperationResilience


class Tripwire(Sleepless):
    """A clock during whose sleep something happens."""

    def __init__(self, strike: Callable[[], None]) -> None:
        super().__init__()
        self._strike = strike

    def sleep(self, seconds: float) -> None:
        self._strike()

    async def asleep(self, seconds: float) -> None:
        self._strike()
        await asyncio.sleep(0)


class TestInterruptions:
    """Whoever is stopped in the middle takes nothing along that belongs to all."""

    def test_an_interrupt_during_the_wait_gives_the_budget_back(self) -> None:
        """
        The retry that was paid for was not made. And the next call is its own owner again.
        """

        def strike() -> None:
            raise KeyboardInterrupt

        environment = Tripwire(strike)
        budget = Budget(environment=environment)
        with pytest.raises(KeyboardInterrupt):
            Retry(budget=budget, environment=environment).call(Script(REFUSED))

        assert (budget.tokens, budget.granted) == (10, 0)
        assert time_left() is None

    def test_a_cancelled_wait_gives_the_budget_back(self) -> None:
        """
        The same, awaiting.
        """

        async def main() -> Budget:
            environment = Tripwire(lambda: task.cancel() and None)
            budget = Budget(environment=environment)

            async def fails() -> None:
                raise REFUSED

            task = asyncio.create_task(Retry(budget=budget, environment=environment).acall(fails))
            with pytest.raises(asyncio.CancelledError):
                await task
            return budget

        assert asyncio.run(main()).tokens == 10

    @pytest.mark.parametrize("reason", [StopReason.BREAKER, StopReason.ELAPSED])
    def test_a_retry_that_is_not_made_after_all_is_not_paid_for(self, colour: Colour, reason: StopReason) -> None:
        """
        While it waited, the circuit opened, or the time ran out.
        """
        environment = Tripwire(lambda: circuit.trip() if reason is StopReason.BREAKER else environment.advance(99))
        circuit, budget = Breaker("p", environment=environment), Budget(environment=environment)
        policy = Retry(breaker=circuit, budget=budget, environment=environment)

        with pytest.raises(Exception) as raised:
            colour.call(policy, Script(REFUSED))
        stop = stop_of(raised.value)
        assert stop is not None
        assert (reason, 1, 10) == (stop.reason, stop.attempts, budget.tokens)

    @staticmethod
    async def _cancelled(policy: Retry, fn: Callable[[], Any], steps: int) -> None:
        """Start a call, and cancel it after so many turns of the event loop."""
        task = asyncio.create_task(policy.acall(fn))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    @pytest.mark.parametrize("steps", range(1, 5))
    def test_a_probe_that_is_cancelled_anywhere_gives_its_slot_back(self, still: Sleepless, steps: int) -> None:
        """
        At once, and not when it lapses: the next caller may probe.
        """
        circuit = Breaker("p", probe_lapse=86_400, environment=still)
        circuit.trip()
        still.advance(30)
        begun: list[int] = []

        async def slow() -> None:
            begun.append(1)
            for _ in range(9):
                await asyncio.sleep(0)

        asyncio.run(self._cancelled(Retry(breaker=circuit, environment=still), slow, steps))
        assert begun == [1]
        assert (circuit.state, circuit.retry_after()) == (CircuitState.HALF_OPEN, None)

    @pytest.mark.parametrize("steps", range(1, 9))
    def test_a_call_that_is_cancelled_anywhere_has_paid_for_the_retries_it_made(
        self, still: Sleepless, steps: int
    ) -> None:
        """
        In an attempt or in the wait before it: what was granted is what was sent again.
        """
        budget, circuit = Budget(environment=still), Breaker("p", threshold=99, environment=still)
        begun: list[int] = []

        async def fails() -> None:
            begun.append(1)
            await asyncio.sleep(0)
            raise REFUSED

        policy = Retry(5, budget=budget, breaker=circuit, environment=still)
        asyncio.run(self._cancelled(policy, fails, steps))
        assert (len(begun) - 1, 10 - (len(begun) - 1)) == (budget.granted, budget.tokens)

    def test_a_loop_that_is_stopped_gives_its_slot_back(self, colour: Colour, still: Sleepless) -> None:
        """
        The block's own way out reports it.
        """
        circuit = Breaker("p", probe_lapse=86_400, environment=still)
        circuit.trip()
        still.advance(30)

        with pytest.raises(colour.stop):
            colour.loop(Retry(breaker=circuit, environment=still), Script(colour.stop))
        assert circuit.retry_after() is None


@pytest.mark.fault("held-work-awaits-while-it-is-closed")
def test_held_work_that_is_thrown_away_lets_its_ticket_go(still: Sleepless) -> None:
    """
    Its coroutine is closed, so nothing can be awaited any more: the ticket comes back all the same.
    """
    back: list[Any] = []

    class Slow(Breaker):
        async def areport(self, ticket: Any, end: str) -> None:
            await asyncio.sleep(0)
            back.append("awaited")

        def let_go(self, ticket: Any) -> None:
            back.append("let go")

    @types.coroutine
    def never() -> Generator[None, None, None]:
        yield

    around = OperationResilience(None, Slow("p", environment=still), None)
    operation: Any = SimpleNamespace(rest=lambda: None, begin_attempt=lambda: None)

    async def work() -> None:
        left = await around.aenter(operation)
        try:
            await never()
        except BaseException as error:
            await left(Raised(error))
            raise

    thrown = work()
    thrown.send(None)
    with suppress(RuntimeError):  # "coroutine ignored GeneratorExit", if this is broken.
        thrown.close()

    assert back == ["let go"]
